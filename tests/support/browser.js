// Opens dashboards in a browser without a screen and tells what is there: one line of JSON for each page and width.
// Its argument is a file: { playwright, chromium, grafana, user, seconds, pictures, pages: [{ name, widths, query, picture, follow }] }
const { readFileSync, writeFileSync } = require('node:fs');

const task = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { chromium } = require(task.playwright);

const AT_ONCE = 2;
const LEAST_HEIGHT = 1080;
const QUIET = 3; // readings of a page that are the same when it has settled
const PATIENCE = 60; // the same while a panel is blank
const ROOM_AROUND = 200; // Grafana's own bars above the panels, and some air below
const GRID_ROW = 38; // a line of Grafana's grid, with the gap below it
const VARIABLE = '[data-testid^="data-testid Dashboard template variables Variable Value DropDown value link text"]';
const OPTION = '[data-testid^="data-testid Dashboard template variables Variable Value DropDown option text"]';
const REFRESH = '[data-testid="data-testid RefreshPicker run button"]';
const MARK = 'rgb(17, 19, 24)'; // nearly that of the page: nobody sees it
const NETWORK_CHANGED = 'net::ERR_NETWORK_CHANGED';
const ATTEMPTS = 5;
const COLLAPSED_ROW = '.dashboard-row--collapsed .dashboard-row__title';

/** Waits until Grafana has a result for each panel, none of them an old one, nothing is asked, and the page stays as it is. */
async function settled(page, pending, dashboard, old = {}) {
  const deadline = Date.now() + task.seconds * 1000;
  const queried = panelsOf(dashboard).filter(({ targets }) => targets?.length > 0).map(({ id }) => id);
  for (let [before, same] = [null, 0]; ; ) {
    const { running, blank, look } = await page.evaluate(reading, { uid: dashboard.uid, queried, old });
    same = pending.size === 0 && look !== null && look === before ? same + 1 : 0;
    before = look;
    if (same >= (blank.length > 0 ? PATIENCE : QUIET)) return;
    if (Date.now() > deadline) {
      const asked = [...pending].map((request) => request.url());
      throw new Error(`not settled after ${task.seconds} s; asked: ${asked}; without a result: ${running}; blank: ${blank}`);
    }
  }
}

function panelsOf(dashboard) {
  return dashboard.panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
}

async function dashboardOf(context, name) {
  const answer = await context.request.get(`${task.grafana}/api/dashboards/uid/gputally-${name}`);
  return (await answer.json()).dashboard;
}

/** The height at which all its panels are in sight, those of collapsed rows too: they are made when they come into it. */
function heightOf(dashboard) {
  const bottom = (panels) => Math.max(0, ...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const inside = (row) => (row.panels?.length ? bottom(row.panels) - row.gridPos.y : 0);
  const lines = bottom(dashboard.panels) + dashboard.panels.reduce((sum, panel) => sum + inside(panel), 0);
  return Math.max(LEAST_HEIGHT, lines * GRID_ROW + ROOM_AROUND);
}

/**
 * A picture of all of the page. Chromium may still have a frame from before the window grew, and repeat it: only a
 * whole one has the mark in its last corner.
 */
async function takePicture(page, path) {
  await page.evaluate((color) => {
    const mark = document.createElement('div');
    mark.style = `position: fixed; right: 0; bottom: 0; width: 2px; height: 2px; z-index: 99999; background: ${color}`;
    document.body.append(mark);
  }, MARK);
  const lastPixel = async (encoded) => {
    const blob = await (await fetch(`data:image/png;base64,${encoded}`)).blob();
    const { width, height } = await createImageBitmap(blob);
    const context = new OffscreenCanvas(1, 1).getContext('2d');
    context.drawImage(await createImageBitmap(blob, width - 1, height - 1, 1, 1), 0, 0);
    return `rgb(${[...context.getImageData(0, 0, 1, 1).data].slice(0, 3).join(', ')})`;
  };
  for (const deadline = Date.now() + task.seconds * 1000; Date.now() < deadline; await page.waitForTimeout(200)) {
    const taken = await page.screenshot();
    if ((await page.evaluate(lastPixel, taken.toString('base64'))) === MARK) return writeFileSync(path, taken);
  }
  throw new Error('there is no picture of the whole page');
}

/** What one can choose of each variable. */
async function offered(page) {
  const [variables, options, found] = [page.locator(VARIABLE), page.locator(OPTION), []];
  for (let index = 0; index < (await variables.count()); index += 1) {
    await variables.nth(index).click();
    await options.first().waitFor();
    found.push(await options.allInnerTexts());
    await page.keyboard.press('Escape');
    await options.first().waitFor({ state: 'hidden' });
  }
  return found;
}

/** Runs in the page, before all else: what the functions below have in common. */
function prepare() {
  const pixels = (canvas) =>
    canvas.width * canvas.height === 0
      ? new Uint32Array()
      : new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const content = (item) => item.querySelector('[class*="panel-content"], [data-testid="data-testid panel content"]');
  window.gputally = {
    items: () => [...document.querySelectorAll('.react-grid-item[data-panelid]')],
    text: (element) => (element ? element.innerText.trim() : ''),
    isRow: (item) => item.querySelector('.dashboard-row') !== null,
    content,
    isInSight: (item) => {
      const { top, bottom } = item.getBoundingClientRect();
      return bottom > 0 && top < window.innerHeight;
    },
    /** Nothing to read and nothing drawn, or a graph that is not drawn yet. A line within a number may be. */
    isBlank: (item) => {
      const inside = content(item);
      if (inside === null) return true;
      const graphs = [...inside.querySelectorAll('.uplot')].filter((graph) => graph.querySelector('.u-axis') !== null);
      if (graphs.some((graph) => !pixels(graph.querySelector('canvas')).some((pixel) => pixel !== 0))) return true;
      return inside.innerText.trim() === '' && inside.querySelector('svg, img') === null && graphs.length === 0;
    },
    /** Panel -> how far its last query is, and the number of that query, as Grafana tells programs that drive it. */
    results: () =>
      Object.fromEntries(
        Object.entries(window.grafanaRuntime?.getPanelData() ?? {}).map(([id, result]) => [
          id,
          { state: result?.state, request: result?.request?.requestId },
        ]),
      ),
    /** The same for the same picture, by every so-manieth pixel of it. */
    picture: (canvas) => {
      const [drawn, step] = [pixels(canvas), 97];
      let sum = 0;
      for (let index = 0; index < drawn.length; index += step) sum = (sum * 31 + drawn[index]) % 1000003;
      return sum;
    },
  };
}

/** Runs in the page: how far it is, two frames after it was asked. */
async function reading({ uid, queried, old }) {
  const { items, text, isRow, content, isInSight, isBlank, picture, results } = window.gputally;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const panels = items().filter((item) => !isRow(item) && isInSight(item));
  const found = results();
  const hasResult = (id) => /^(Done|Error)$/.test(found[id]?.state) && found[id].request !== old[id];
  const running = panels.map(({ dataset }) => Number(dataset.panelid)).filter((id) => queried.includes(id) && !hasResult(id));
  const isThere = panels.length > 0 && running.length === 0 && document.fonts.status === 'loaded';
  if (!isThere || window.grafanaRuntime.getDashboardSaveModel()?.uid !== uid) return { running, blank: [], look: null };
  return {
    running,
    blank: panels.filter(isBlank).map((item) => text(item.querySelector('h6, h2'))),
    look: JSON.stringify(
      panels.map((item) => [
        [item.offsetWidth, item.offsetHeight],
        text(content(item)),
        [...item.querySelectorAll('canvas')].map(picture),
      ]),
    ),
  };
}

/** Runs in the page: what is there. */
function describe(variable) {
  const { items, text, isRow, isInSight, isBlank } = window.gputally;
  // Widths are fractions of a pixel, and the smallest excess makes an ellipsis; scrollWidth is rounded.
  const HAIR = 0.05;
  const isCut = (title) => {
    const { paddingLeft, paddingRight } = getComputedStyle(title);
    const words = document.createRange();
    words.selectNodeContents(title);
    const room = title.getBoundingClientRect().width - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return words.getBoundingClientRect().width > room + HAIR;
  };
  const cutTitles = (parent) => [...parent.querySelectorAll('h6, h2')].filter(isCut).map(text);
  // A few pixels are the edge of the last cell.
  const isTooWide = (table) => table !== null && table.scrollWidth > table.clientWidth + 8;
  // Of a heading only the words count: the arrow of a sorted column may not have room.
  const cutHeadings = (parent) =>
    [...parent.querySelectorAll('[role=columnheader] button')]
      .filter((button) => button.firstElementChild.getBoundingClientRect().right > button.getBoundingClientRect().right + HAIR)
      .map(text);
  const panels = items().map((item) => ({
    id: Number(item.dataset.panelid),
    title: text(item.querySelector('h6, h2')),
    isRow: isRow(item),
    isEmpty: /\bNo data\b/.test(item.innerText),
    isBlank: !isRow(item) && isInSight(item) && isBlank(item),
    hasFailed: /^(\w*Error: |An unexpected error happened)/m.test(item.innerText),
    hasComplaint: item.querySelector('[aria-label="Panel status"], [data-testid^="data-testid Panel status"]') !== null,
    headings: [...item.querySelectorAll('[role=columnheader]')].map(text),
    cut: [...cutTitles(item), ...cutHeadings(item)],
    isTooWide: isTooWide(item.querySelector('[role=table] .scrollbar-view')),
  }));
  const linked = [...document.querySelectorAll('.react-grid-item a[href*="/d/gputally-"]')];
  return {
    panels,
    links: [...new Set(linked.filter((link) => text(link) !== '').map((link) => link.href))],
    variables: [...document.querySelectorAll(variable)].map(text),
    alerts: [...document.querySelectorAll('[data-testid="data-testid Alert error"]')].map(text),
  };
}

/** Clicks on a link of a panel: on one that leads elsewhere and names something, if there is such a one. */
async function followLink(context, page, name, pending, said) {
  const links = page.locator('.react-grid-item a[href*="/d/gputally-"]');
  const addresses = await links.evaluateAll((found) => found.map((link) => link.href));
  if (addresses.length === 0) throw new Error('no panel has a link');
  const worth = (address) => {
    const { pathname, searchParams } = new URL(address);
    const named = [...searchParams].some(
      ([key, value]) => /^var-(?!datasource|cluster)/.test(key) && value !== '' && value !== 'All',
    );
    return (pathname.includes(`/gputally-${name}`) ? 0 : 1) + (named ? 2 : 0);
  };
  const best = Math.max(...addresses.map(worth));
  const chosen = addresses.findIndex((address) => worth(address) === best);
  const before = page.url();
  await links.nth(chosen).click();
  await page.waitForURL((url) => String(url) !== before);
  const dashboard = await dashboardOf(context, /gputally-(\w+)/.exec(new URL(page.url()).pathname)[1]);
  await page.setViewportSize({ width: page.viewportSize().width, height: LEAST_HEIGHT });
  await settled(page, pending, dashboard);
  const found = await page.evaluate(describe, VARIABLE);
  return { link: addresses[chosen], address: page.url(), ...found, said: said.splice(0) };
}

/** Whether somebody may want to see it. */
function isOdd({ said, alerts, panels }) {
  const isOddPanel = (panel) =>
    panel.isEmpty || panel.isBlank || panel.hasFailed || panel.hasComplaint || panel.isTooWide || panel.cut.length > 0;
  return said.length > 0 || alerts.length > 0 || panels.some(isOddPanel);
}

/** Opens a dashboard, and tells what is there at each width. */
async function look(context, { name, widths, query, picture, follow }) {
  const page = await context.newPage();
  const said = [];
  const pending = new Set();
  page.on('console', (message) => message.type() === 'error' && said.push(message.text()));
  page.on('pageerror', (error) => said.push(String(error)));
  page.on('request', (request) => request.url().includes('/api/') && pending.add(request));
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => pending.delete(request));
  const opened = Date.now() / 1000;
  let isOpen = false;
  for (const width of widths) {
    const file = `${picture}-${width}.png`;
    let found;
    try {
      const dashboard = await dashboardOf(context, name);
      await page.setViewportSize({ width, height: heightOf(dashboard) });
      // Chromium aborts requests when a network interface appears, as it does while a cluster starts: open it again.
      for (let attempt = 1; ; attempt += 1) {
        const isLast = () => attempt === ATTEMPTS || !said.some((text) => text.includes(NETWORK_CHANGED));
        try {
          const old = isOpen ? await refresh(page) : await open(page, dashboard, query);
          isOpen = true;
          await settled(page, pending, dashboard, old);
        } catch (error) {
          if (isLast()) throw error;
        }
        if (isLast()) break;
        said.splice(0);
        isOpen = false;
      }
      found = { name, width, opened, ...(await page.evaluate(describe, VARIABLE)), said: said.splice(0) };
      if (task.pictures || isOdd(found)) await takePicture(page, file);
      if (width === widths[0]) found.offered = await offered(page);
      const failed = (error) => ({ failed: String(error), said: said.splice(0) });
      if (follow && width === widths.at(-1)) found.followed = await followLink(context, page, name, pending, said).catch(failed);
    } catch (error) {
      await page.screenshot({ path: file }).catch(() => undefined);
      found = { name, width, said: said.splice(0), failed: String(error) };
    }
    console.log(JSON.stringify(found));
  }
  await page.close();
}

async function open(page, dashboard, query) {
  // With a refresh graphs are drawn anew, and are empty for a moment. One that is not offered becomes the shortest.
  const refresh = dashboard.timepicker.refresh_intervals.at(-1);
  await page.goto(`${task.grafana}/d/${dashboard.uid}?${query}&refresh=${refresh}`, { waitUntil: 'domcontentloaded' });
  await page.waitForSelector('.react-grid-item');
  for (const row of await page.locator(COLLAPSED_ROW).all()) await row.click();
  return {};
}

/** Asks for everything again, as a graph has fewer points on a narrower screen, and returns the old queries. */
async function refresh(page) {
  const old = await page.evaluate(() =>
    Object.fromEntries(Object.entries(window.gputally.results()).map(([id, { request }]) => [id, request])),
  );
  await page.click(REFRESH);
  await page.mouse.move(0, 0);
  return old;
}

async function logIn(context) {
  const page = await context.newPage();
  await page.goto(`${task.grafana}/login`);
  await page.fill('input[name=user]', task.user.name);
  await page.fill('input[name=password]', task.user.password);
  await page.click('button[type=submit]');
  await page.waitForURL((url) => url.pathname !== '/login');
  await page.close();
}

async function main() {
  const browser = await chromium.launch({ executablePath: task.chromium, args: ['--no-sandbox', '--disable-gpu'] });
  const context = await browser.newContext();
  context.setDefaultTimeout(task.seconds * 1000);
  await context.addInitScript(prepare);
  if (task.user) await logIn(context);
  const waiting = [...task.pages];
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await look(context, next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
