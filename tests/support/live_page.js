// Drives the live page in a browser without a screen: one line of JSON for each part of the task.
// Its argument is a file: { playwright, chromium, seconds, axe, url, login, pictures, parts: [name] }
const { readFileSync } = require('node:fs');

const task = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { chromium } = require(task.playwright);

const LOOKS = [
  { look: 'light', width: 1280, colorScheme: 'light' },
  { look: 'dark', width: 1280, colorScheme: 'dark' },
  { look: 'phone', width: 360, colorScheme: 'light' },
];

/** The page, and everything that it complains about. */
async function open(browser, { width = 1280, colorScheme = 'light' } = {}) {
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme,
    ignoreHTTPSErrors: true,
    httpCredentials: task.login ?? undefined,
  });
  context.setDefaultTimeout(task.seconds * 1000);
  const page = await context.newPage();
  const said = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && said.push(message.text()));
  page.on('pageerror', (error) => said.push(String(error)));
  await page.exposeFunction('gputallyViolated', (text) => said.push(text));
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => window.gputallyViolated(`${event.violatedDirective} ${event.blockedURI}`));
  });
  const loads = [];
  page.on('framenavigated', (frame) => frame === page.mainFrame() && loads.push(frame.url()));
  await page.goto(task.url);
  await page.waitForSelector('article');
  return { context, page, said, loads };
}

const card = (page, gpu) => page.locator('article', { has: page.getByRole('heading', { name: `GPU ${gpu}`, exact: true }) });

/** Values change without a reload. */
async function changes(browser) {
  const { context, page, said, loads } = await open(browser);
  const power = card(page, 0).locator('.meter', { hasText: 'Power' }).locator('.value');
  const seen = new Set([await power.textContent()]);
  while (seen.size < 3) {
    const [last] = [...seen].slice(-1);
    await page.waitForFunction((before) => document.querySelector('article .meter:nth-child(3) .value').textContent !== before, last);
    seen.add(await power.textContent());
  }
  const found = { values: [...seen], loads: loads.length, said, connection: await page.locator('.heard').textContent() };
  await context.close();
  return found;
}

/** A pod appears on GPU 1 and disappears, while the other card stays the same elements. */
async function visits(browser) {
  const { context, page, said, loads } = await open(browser);
  const visitor = card(page, 1).getByText(/^visitor-\d+$/);
  await visitor.waitFor({ state: 'detached' });
  const kept = await card(page, 0).elementHandle();
  await visitor.waitFor({ state: 'visible' });
  const text = await card(page, 1).locator('tbody', { hasText: 'visitor-' }).innerText();
  await visitor.waitFor({ state: 'detached' });
  const isSame = await kept.evaluate((element) => element.isConnected);
  const found = { text, isSame, loads: loads.length, said };
  await context.close();
  return found;
}

/** A GPU is lost: red, with its reason, and announced. */
async function loss(browser) {
  const { context, page, said, loads } = await open(browser);
  const gpu = card(page, 2);
  const state = gpu.locator('.state');
  await state.getByText('up', { exact: true }).waitFor();
  const before = await gpu.evaluate((element) => getComputedStyle(element).backgroundColor);
  await state.getByText('lost', { exact: true }).waitFor();
  const found = {
    before,
    after: await gpu.evaluate((element) => getComputedStyle(element).backgroundColor),
    reason: await gpu.locator('.reason').innerText(),
    announced: await page.locator('[aria-live=polite]').innerText(),
    status: await page.getByRole('status').innerText(),
    loads: loads.length,
    said,
  };
  await context.close();
  return found;
}

/** Rules of axe that the page breaks, in each look; its width, and whether anything is wider. */
async function looks(browser) {
  const axe = readFileSync(task.axe, 'utf8');
  const found = {};
  for (const { look, width, colorScheme } of LOOKS) {
    const { context, page, said } = await open(browser, { width, colorScheme });
    await card(page, 2).locator('.state').getByText('lost', { exact: true }).waitFor();
    const complaints = [...said];
    await page.evaluate(axe);
    const { violations, passes } = await page.evaluate(() => window.axe.run());
    found[look] = {
      violations: violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`),
      passes: passes.length,
      isTooWide: await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth),
      said: complaints,
    };
    await page.screenshot({ path: `${task.pictures}/live-${look}.png`, fullPage: true });
    await context.close();
  }
  return found;
}

/** By keyboard alone: pause, continue, and another timeline. */
async function keyboard(browser) {
  const { context, page, said } = await open(browser);
  const tabTo = async (selector) => {
    for (let presses = 0; presses < 50; presses += 1) {
      await page.keyboard.press('Tab');
      if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
    }
    throw new Error(`${selector} has no focus after 50 presses of Tab`);
  };
  const chart = card(page, 0).locator('svg');
  await tabTo('button');
  await page.keyboard.press('Enter');
  const paused = await page.locator('.heard').textContent();
  const frozen = await page.locator('main').innerText();
  const { receivedAt } = await page.evaluate(() => new Promise((done) => {
    const source = new EventSource('api/v1/stream');
    let messages = 0;
    source.addEventListener('snapshot', ({ timeStamp }) => {
      messages += 1;
      if (messages < 3) return;
      source.close();
      done({ receivedAt: timeStamp });
    });
  }));
  const isFrozen = (await page.locator('main').innerText()) === frozen;
  await page.keyboard.press('Enter');
  await page.locator('.heard').getByText('live').waitFor();
  await tabTo('input[name=timeline]');
  const before = await chart.getAttribute('aria-label');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((old) => document.querySelector('article svg').getAttribute('aria-label') !== old, before);
  const found = { paused, isFrozen, receivedAt, before, after: await chart.getAttribute('aria-label'), said };
  await context.close();
  return found;
}

/** All streams are taken: the page reads the JSON instead. */
async function refused(browser) {
  const { context, page, said } = await open(browser);
  await page.locator('.heard').getByText('every').waitFor();
  const found = { gpus: await page.locator('article').count(), said };
  await context.close();
  return found;
}

const PARTS = { changes, visits, loss, looks, keyboard, refused };

async function main() {
  const browser = await chromium.launch({ executablePath: task.chromium, args: ['--no-sandbox', '--disable-gpu'] });
  const results = await Promise.all(task.parts.map(async (part) => [part, await PARTS[part](browser)]));
  for (const [part, found] of results) console.log(JSON.stringify({ part, ...found }));
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
