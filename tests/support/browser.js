// Opens dashboards in a browser without a screen and tells what is there: one line of JSON for each page.
// Its argument is a file: { playwright, chromium, grafana, user, seconds, pages: [{ name, width, query, picture, follow }] }
const { readFileSync, writeFileSync } = require('node:fs');

const task = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { chromium } = require(task.playwright);

const AT_ONCE = 2;
const LEAST_HEIGHT = 1080;
const SETTLED_MS = 400;
const PATIENCE_MS = 20000; // for a panel that stays blank although nothing is asked and nothing changes
const ROOM_AROUND = 200; // Grafana's own bars above the panels, and some air below
const GRID_ROW = 38; // a line of Grafana's grid, with the gap below it
const VARIABLE = '[data-testid^="data-testid Dashboard template variables Variable Value DropDown value link text"]';
const OPTION = '[data-testid^="data-testid Dashboard template variables Variable Value DropDown option text"]';
const MARK = 'rgb(17, 19, 24)'; // nearly that of the page: nobody sees it
const COLLAPSED_ROW = '.dashboard-row--collapsed .dashboard-row__title';

/** Waits until nothing is asked, no panel loads, each has drawn something, and the page stays as it is. */
async function settled(page, pending) {
  const deadline = Date.now() + task.seconds * 1000;
  let [before, since] = [null, Date.now()];
  for (;;) {
    const { loading, blank, look } = await page.evaluate(reading);
    if (pending.size > 0 || loading || look !== before) [before, since] = [look, Date.now()];
    if (Date.now() - since >= (blank.length > 0 ? PATIENCE_MS : SETTLED_MS)) return;
    if (Date.now() > deadline) {
      const asked = [...pending].map((request) => request.url());
      throw new Error(`not settled after ${task.seconds} s; asked: ${asked}; blank: ${blank}`);
    }
    await page.waitForTimeout(100);
  }
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
    /** The same for the same picture, by every so-manieth pixel of it. */
    picture: (canvas) => {
      const [drawn, step] = [pixels(canvas), 97];
      let sum = 0;
      for (let index = 0; index < drawn.length; index += step) sum = (sum * 31 + drawn[index]) % 1000003;
      return sum;
    },
  };
}

/** Runs in the page: how far it is. */
function reading() {
  const { items, text, isRow, content, isInSight, isBlank, picture } = window.gputally;
  const panels = items().filter((item) => !isRow(item) && isInSight(item));
  return {
    loading: panels.length === 0 || document.querySelector('[aria-label="Panel loading bar"]') !== null,
    blank: panels.filter(isBlank).map((item) => text(item.querySelector('h6, h2'))),
    look: JSON.stringify(panels.map((item) => [text(content(item)), [...item.querySelectorAll('canvas')].map(picture)])),
  };
}

/** Runs in the page: what is there. */
function describe(variable) {
  const { items, text, isRow, isInSight, isBlank } = window.gputally;
  const cut = (parent, what) =>
    [...parent.querySelectorAll(what)].filter((element) => element.scrollWidth > element.clientWidth + 1).map(text);
  // A few pixels are the edge of the last cell.
  const isTooWide = (table) => table !== null && table.scrollWidth > table.clientWidth + 8;
  // Of a heading only the words count: the arrow of a sorted column may not have room.
  const cutHeadings = (parent) =>
    [...parent.querySelectorAll('[role=columnheader] button')]
      .filter((button) => button.firstElementChild.getBoundingClientRect().right > button.getBoundingClientRect().right + 1)
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
    cut: [...cut(item, 'h6, h2'), ...cutHeadings(item)],
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
async function followLink(page, name, pending, said) {
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
  const [before, saidBefore] = [page.url(), said.length];
  await links.nth(chosen).click();
  await page.setViewportSize({ width: page.viewportSize().width, height: LEAST_HEIGHT });
  await page.waitForURL((url) => String(url) !== before, { timeout: task.seconds * 1000 });
  await page.waitForSelector('.react-grid-item', { timeout: task.seconds * 1000 });
  await settled(page, pending);
  const found = await page.evaluate(describe, VARIABLE);
  return { link: addresses[chosen], address: page.url(), ...found, said: said.splice(saidBefore) };
}

async function look(context, { name, width, query, picture, follow }) {
  const began = Date.now();
  const page = await context.newPage();
  const said = [];
  const pending = new Set();
  page.on('console', (message) => message.type() === 'error' && said.push(message.text()));
  page.on('pageerror', (error) => said.push(String(error)));
  page.on('request', (request) => request.url().includes('/api/') && pending.add(request));
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => pending.delete(request));
  try {
    const dashboard = await dashboardOf(context, name);
    await page.setViewportSize({ width, height: heightOf(dashboard) });
    // With a refresh graphs are drawn anew, and are empty for a moment. One that is not offered becomes the shortest.
    const refresh = dashboard.timepicker.refresh_intervals.at(-1);
    const address = `${task.grafana}/d/gputally-${name}?${query}&refresh=${refresh}`;
    await page.goto(address, { waitUntil: 'domcontentloaded' });
    await page.waitForSelector('.react-grid-item', { timeout: task.seconds * 1000 });
    for (const row of await page.locator(COLLAPSED_ROW).all()) await row.click();
    await settled(page, pending);
    const found = await page.evaluate(describe, VARIABLE);
    await takePicture(page, picture);
    found.offered = await offered(page);
    const already = said.length;
    const failed = (error) => ({ failed: String(error), said: said.splice(already) });
    const followed = follow ? await followLink(page, name, pending, said).catch(failed) : null;
    return { name, width, said, ...found, followed, opened: began / 1000, seconds: (Date.now() - began) / 1000 };
  } catch (error) {
    await page.screenshot({ path: picture }).catch(() => undefined);
    return { name, width, said, failed: String(error), seconds: (Date.now() - began) / 1000 };
  } finally {
    await page.close();
  }
}

async function logIn(context) {
  const page = await context.newPage();
  await page.goto(`${task.grafana}/login`);
  await page.fill('input[name=user]', task.user.name);
  await page.fill('input[name=password]', task.user.password);
  await page.click('button[type=submit]');
  await page.waitForURL((url) => url.pathname !== '/login', { timeout: task.seconds * 1000 });
  await page.close();
}

async function main() {
  const browser = await chromium.launch({ executablePath: task.chromium, args: ['--no-sandbox', '--disable-gpu'] });
  const context = await browser.newContext();
  await context.addInitScript(prepare);
  if (task.user) await logIn(context);
  const waiting = [...task.pages];
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) console.log(JSON.stringify(await look(context, next)));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
