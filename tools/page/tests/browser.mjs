// Chromium with the page in it, and what every test needs of it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const launch = () =>
  chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** A tab that remembers what went wrong in it. */
export const tab = async (browser, options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.wrong = [];
  page.on("console", (it) => ["error", "warning"].includes(it.type()) && page.wrong.push(`console: ${it.text()}`));
  page.on("pageerror", (it) => page.wrong.push(`error: ${it.message}`));
  page.on("dialog", (it) => { page.wrong.push(`dialog: ${it.message()}`); it.dismiss(); });
  page.on("request", (it) => /^(file|blob|data|about):/.test(it.url()) || page.wrong.push(`request: ${it.url()}`));
  return page;
};

/** Opens the built page. */
export const open = async (page, file) => {
  await page.goto(pathToFileURL(file).href);
  await page.waitForSelector("html[data-ready]", { state: "attached" });
  return page;
};

/** Waits for the next answer while `act` asks for it; what the page says. */
export const answer = async (page, act, timeout = 60_000) => {
  const before = await page.evaluate(() => window.plumb.answers());
  await act();
  await page.waitForFunction((it) => window.plumb.answers() > it, before, { timeout });
  return page.evaluate(() => window.plumb.last());
};

/** The faults that axe calls serious or critical. */
export const faults = async (page) => {
  // Through the debugger: no policy of a page holds there.
  if (!(await page.evaluate("typeof axe === 'object'"))) await page.evaluate(axe);
  const found = await page.evaluate(() =>
    axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"] })
      .then((it) => it.violations.filter((one) => ["serious", "critical"].includes(one.impact))
        .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)));
  return found;
};
