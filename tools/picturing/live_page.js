// Takes pictures of a page. Its argument is a file: { playwright, chromium, url, pictures: [{ path, width, scheme }] }
const { readFileSync } = require('node:fs');

const task = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { chromium } = require(task.playwright);

async function main() {
  const browser = await chromium.launch({ executablePath: task.chromium, args: ['--no-sandbox', '--disable-gpu'] });
  for (const { path, width, scheme } of task.pictures) {
    const page = await browser.newPage({ viewport: { width, height: 800 }, colorScheme: scheme, reducedMotion: 'reduce' });
    await page.goto(task.url);
    await page.waitForFunction(() => document.querySelector('article .line')?.getAttribute('d').includes('L'));
    await page.screenshot({ path, fullPage: true });
    await page.close();
  }
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
