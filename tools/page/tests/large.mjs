// Time and memory of a large log in the page: node large.mjs PAGE LOG
import { readdirSync, readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { answer, launch, open, tab } from "./browser.mjs";

const [file, log] = process.argv.slice(2).map((it) => resolve(it));
const browser = await launch();
const page = await open(await tab(browser), file);
// The largest resident set of a renderer of this browser.
const resident = () => Math.max(...readdirSync("/proc").filter((it) => /^\d+$/.test(it)).map((it) => {
  try {
    const renderer = readFileSync(`/proc/${it}/cmdline`, "utf8").includes("--type=renderer");
    return renderer ? Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${it}/status`, "utf8"))[1]) / 1024 : 0;
  } catch { return 0; }
}));
let most = 0;
const watch = setInterval(() => { most = Math.max(most, resident()); }, 200);
const start = performance.now();
const it = await answer(page, () => page.setInputFiles("#p-files", log), 600_000);
const seconds = (performance.now() - start) / 1000;
clearInterval(watch);
console.log(`${(statSync(log).size / 1e6).toFixed(0)} MB: ${seconds.toFixed(1)} s; WebAssembly ${(it.memory / 2 ** 20).toFixed(0)} MiB; the tab's process at most ${most.toFixed(0)} MiB`);
console.log(it.text.split("\n")[0]);
await browser.close();
