// Opens dashboards in a browser without a screen and tells what is there: one line of JSON for each page.
// Its argument is a file: { playwright, chromium, grafana, seconds, pages: [{ name, width, query, picture }] }
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

async function look(context, { name, width, query, picture }) {
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
    return { name, width, said, ...found, seconds: (Date.now() - began) / 1000 };
  } catch (error) {
    await page.screenshot({ path: picture }).catch(() => undefined);
    return { name, width, said, failed: String(error), seconds: (Date.now() - began) / 1000 };
  } finally {
    await page.close();
  }
}

async function main() {
  const browser = await chromium.launch({ executablePath: task.chromium, args: ['--no-sandbox', '--disable-gpu'] });
  const context = await browser.newContext();
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
