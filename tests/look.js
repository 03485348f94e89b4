// Opens dashboards in a browser without a screen and tells what is there: one line of JSON for each page.
// Its argument is a file: { playwright, chromium, grafana, user, seconds, pages: [{ name, width, query, picture, follow }] }
const { readFileSync } = require('node:fs');

const task = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { chromium } = require(task.playwright);

const AT_ONCE = 2;
const LEAST_HEIGHT = 1080;
const SETTLED_MS = 400;
const ROOM_AROUND = 200; // Grafana's own bars above the panels, and some air below
const COLLAPSED_ROW = '.dashboard-row--collapsed .dashboard-row__title';

/** Waits until nothing is asked and no panel loads, for a while. */
async function settled(page, pending) {
  const deadline = Date.now() + task.seconds * 1000;
  let quietSince = Date.now();
  while (Date.now() - quietSince < SETTLED_MS) {
    await page.waitForTimeout(50);
    const loading = await page.locator('[aria-label="Panel loading bar"]').count();
    if (pending.size > 0 || loading > 0) quietSince = Date.now();
    if (Date.now() > deadline) throw new Error(`still loading after ${task.seconds} s: ${[...pending].map((r) => r.url())}`);
  }
}

/** Panels are made when they come into sight: make room for all of them. */
async function showAll(page, width, pending) {
  for (const row of await page.locator(COLLAPSED_ROW).all()) await row.click();
  const height = await page.evaluate(() => document.querySelector('.react-grid-layout').scrollHeight);
  await page.setViewportSize({ width, height: Math.max(LEAST_HEIGHT, height + ROOM_AROUND) });
  await settled(page, pending);
  // The picture is of what has been drawn, and drawing so large a page takes a while.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** Runs in the page. */
function describe() {
  const text = (element) => (element ? element.innerText.trim() : '');
  const cut = (parent, what) =>
    [...parent.querySelectorAll(what)].filter((element) => element.scrollWidth > element.clientWidth + 1).map(text);
  // A few pixels are the edge of the last cell.
  const isTooWide = (table) => table !== null && table.scrollWidth > table.clientWidth + 8;
  // Of a heading only the words count: the arrow of a sorted column may not have room.
  const cutHeadings = (parent) =>
    [...parent.querySelectorAll('[role=columnheader] button')]
      .filter((button) => button.firstElementChild.getBoundingClientRect().right > button.getBoundingClientRect().right + 1)
      .map(text);
  const panels = [...document.querySelectorAll('.react-grid-item[data-panelid]')].map((item) => ({
    id: Number(item.dataset.panelid),
    title: text(item.querySelector('h6, h2')),
    isRow: item.querySelector('.dashboard-row') !== null,
    isEmpty: /\bNo data\b/.test(item.innerText),
    hasFailed: /^(\w*Error: |An unexpected error happened)/m.test(item.innerText),
    hasComplaint: item.querySelector('[aria-label="Panel status"], [data-testid^="data-testid Panel status"]') !== null,
    cut: [...cut(item, 'h6, h2'), ...cutHeadings(item)],
    isTooWide: isTooWide(item.querySelector('[role=table] .scrollbar-view')),
  }));
  const chosen = '[data-testid^="data-testid Dashboard template variables Variable Value DropDown value link text"]';
  return {
    panels,
    variables: [...document.querySelectorAll(chosen)].map(text),
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
  await page.waitForURL((url) => String(url) !== before, { timeout: task.seconds * 1000 });
  await page.waitForSelector('.react-grid-item', { timeout: task.seconds * 1000 });
  await settled(page, pending);
  const found = await page.evaluate(describe);
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
    await page.setViewportSize({ width, height: LEAST_HEIGHT });
    await page.goto(`${task.grafana}/d/gputally-${name}?${query}`, { waitUntil: 'domcontentloaded' });
    await page.waitForSelector('.react-grid-item', { timeout: task.seconds * 1000 });
    await showAll(page, width, pending);
    const found = await page.evaluate(describe);
    await page.screenshot({ path: picture });
    const followed = follow ? await followLink(page, name, pending, said).catch((error) => ({ failed: String(error), said: [] })) : null;
    return { name, width, said, ...found, followed, seconds: (Date.now() - began) / 1000 };
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
