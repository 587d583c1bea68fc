// The page in Chromium: node run.mjs PAGE PLUMB CASES
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync, openSync, writeSync, closeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { answer, faults, launch, open, tab } from "./browser.mjs";

const [file, plumb, cases] = process.argv.slice(2).map((it) => resolve(it));
const folder = mkdtempSync(join(tmpdir(), "plumb-page-"));
const browser = await launch();
let failed = 0;
const test = async (name, body) => {
  const start = performance.now();
  try {
    const said = await body();
    console.log(`ok   ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)${said ? ": " + said : ""}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${error.stack}`);
  }
};
/** What plumb prints, whatever its exit code. */
const said = (...args) => {
  const { cwd } = typeof args[0] === "object" ? args.shift() : { cwd: cases };
  return new Promise((done, refuse) =>
    execFile(plumb, args, { cwd, maxBuffer: 1 << 28, env: { ...process.env, COLUMNS: "100" } },
      (error, out) => (error && typeof error.code !== "number" ? refuse(error) : done(out))));
};
const clean = (page) => assert.deepEqual(page.wrong, []);
const drop = (page, files) => page.evaluate((files) => {
  const transfer = new DataTransfer();
  for (const [name, text] of files) transfer.items.add(new File([text], name));
  dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}, files);
const recordings = readdirSync(cases).filter((it) => statSync(join(cases, it)).isDirectory()).sort();
const HANG = "g6e-4x4-efa";

const page = await open(await tab(browser), file);

await test("the page itself is accessible, light and dark", async () => {
  assert.deepEqual(await faults(page), []);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.deepEqual(await faults(page), []);
  await page.emulateMedia({ colorScheme: "light" });
  assert.match(await page.textContent("#p-drop"), /Nothing is uploaded/);
});

await test("dropped files give the verdict", async () => {
  const log = "host:1:1 [0] NCCL INFO cudaDriverVersion 12040\nhost:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
    + "host:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes\n";
  const it = await answer(page, () => drop(page, [["rank0.log", log]]));
  assert.ok(JSON.parse(it.json).findings.length > 0);
  assert.match(await page.textContent("#p-answer"), /shm/);
  await page.click("#p-clear");
});

await test("a folder, a finding, and its line in the log", async () => {
  const it = await answer(page, () => page.setInputFiles("#p-folder", join(cases, HANG)));
  assert.deepEqual(JSON.parse(it.json).inputs.map((it) => it.file), [`${HANG}/rank0.log`], "no README.md");
  const place = page.locator("#p-answer button.p-place").first();
  const text = await place.textContent();
  await place.click();
  await page.waitForSelector("#p-lines .p-hit");
  const [, , line] = /^(.*?):(\d+)(?::\d+)?$/.exec(text.trim());
  assert.equal(await page.textContent("#p-lines .p-hit i"), line);
  assert.ok((await page.locator("#p-lines span").count()) > 5, "lines around it");
  assert.deepEqual(await faults(page), []);
  await page.click("#p-close");
});

await test("search finds words of the answer and lines of the logs", async () => {
  await page.fill("#p-query", "NCCL INFO");
  await page.press("#p-query", "Enter");
  await page.waitForSelector("#p-found li");
  assert.match(await page.textContent("#p-found p"), /in the answer, .*lines of the logs/);
  await page.locator("#p-found li button").nth(3).click();
  await page.waitForSelector("#p-lines .p-hit");
  assert.match(await page.textContent("#p-lines .p-hit"), /NCCL INFO/);
  await page.click("#p-close");
  assert.deepEqual(await faults(page), []);
});

await test("dark, print, narrow", async () => {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.click("#p-theme");
  assert.notEqual(await paper(), light);
  assert.deepEqual(await faults(page), []);
  await page.emulateMedia({ media: "print" });
  assert.equal(await paper(), light, "paper is light");
  assert.equal(await page.isVisible("#p-answer"), true);
  for (const id of ["#p-drop", ".p-bar", "#p-actions"]) assert.equal(await page.isVisible(id), false, id);
  await page.emulateMedia({ media: "screen" });
  assert.ok((await page.pdf()).length > 10_000);
  await page.click("#p-theme");
  await page.setViewportSize({ width: 390, height: 800 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} pixels wide on a screen of 390`);
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.click("#p-clear");
});

await test("lint, topo, expect, explain and compare say what the commands say", async () => {
  const same = async (it, ...args) => assert.equal(it.json || it.text, await said(...args));
  const ask = () => page.click("#p-ask");
  await page.click("[data-command=explain]");
  await page.fill("#p-text", "NCCL_P2P_LEVEL");
  await same(await answer(page, ask), "explain", "NCCL_P2P_LEVEL");
  await page.click("[data-command=expect]");
  await page.fill("#p-instance", "p5.48xlarge");
  await page.fill("#p-nodes", "2");
  await page.fill("#p-measured", "300");
  await same(await answer(page, ask), "expect", "all_reduce", "--instance", "p5.48xlarge", "--nodes", "2", "--measured", "300", "-f", "json");
  await page.click("[data-command=topo]");
  await same(await answer(page, ask), "topo", "--instance", "p5.48xlarge", "--nodes", "2", "-f", "json");
  // Rings and trees to choose, and the paths of a device under the pointer.
  const choice = page.locator("#p-answer .layers select");
  assert.ok((await choice.locator("option").count()) > 4, "rings and trees");
  const drawn = () => page.locator("#p-answer [data-layer]:not(.off)").evaluateAll((all) => all.map((it) => it.dataset.layer));
  const before = await drawn();
  await choice.selectOption({ index: 1 });
  assert.notDeepEqual(await drawn(), before);
  await page.locator("#p-answer [data-device=GPU0]").first().hover();
  assert.match(await page.textContent("#p-answer .paths-of"), /^GPU0: NVL/);
  await page.fill("#p-what-if", "NCCL_CROSS_NIC=0");
  const tried = ["topo", "--instance", "p5.48xlarge", "--nodes", "2", "--what-if", "NCCL_CROSS_NIC=0", "-f", "json"];
  await same(await answer(page, ask), ...tried);
  assert.match(await page.textContent("#p-answer"), /NCCL_CROSS_NIC=0 changes/);
  for (const id of ["#p-instance", "#p-nodes", "#p-what-if"]) await page.fill(id, "");
  await page.click("[data-command=compare]");
  const runs = ["efa.log", "eni.log"];
  await page.setInputFiles("#p-files", runs.map((it) => join(cases, "g6e-eni-vs-efa", it)));
  await same(await answer(page, ask), { cwd: join(cases, "g6e-eni-vs-efa") }, "compare", ...runs, "-f", "json");
  await page.click("#p-clear");
  await page.click("[data-command=lint]");
  const job = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: b\n    resources: {limits: {nvidia.com/gpu: 8}}\n    command: [torchrun, --nproc_per_node=8, train.py]\n";
  writeFileSync(join(folder, "job.yaml"), job);
  const linted = await answer(page, () => page.setInputFiles("#p-files", join(folder, "job.yaml")));
  await same(linted, { cwd: folder }, "lint", "job.yaml", "-f", "json");
  assert.ok(JSON.parse(linted.json).findings.length > 0);
  assert.deepEqual(await faults(page), []);
  await page.click("#p-clear");
  await page.click("[data-command=doctor]");
});

await test("answers name the fields, not the flags of the command", async () => {
  await page.click("[data-command=topo]");
  const it = await answer(page, async () => {
    await page.setInputFiles("#p-files", join(cases, "h200-topo/topo.txt"));
    await page.click("#p-ask");
  });
  assert.match(await page.textContent("#drawing"), /not drawn: .* add the field \u201cGPU\u201d or the field \u201cMachine\u201d/);
  assert.match(it.html, /add --gpu MODEL or --instance NAME/, "what is saved is the command's");
  await page.fill("#p-what-if", "NCCL_CROSS_NIC=0");
  const refused = await answer(page, () => page.click("#p-ask"));
  assert.match(refused.error, /--gpu MODEL/);
  assert.match(await page.textContent("#p-notes"), /add the field \u201cGPU\u201d/);
  assert.doesNotMatch(await page.textContent("#p-notes"), /--/);
  await page.fill("#p-what-if", "");
  await page.click("#p-clear");
  await page.click("[data-command=compare]");
  for (const name of ["training-2-nodes", "training-1-rank"]) await page.setInputFiles("#p-folder", join(cases, name));
  await answer(page, () => page.click("#p-ask"));
  assert.match(await page.textContent("#p-answer"), /the field \u201cJob file\u201d adds it/);
  await page.click("#p-clear");
  // A flag of a program in a line of the input is not a field.
  await page.click("[data-command=doctor]");
  const log = "host:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\nRuntimeError: give the type with --instance NAME\n";
  await answer(page, () => drop(page, [["rank0.log", log]]));
  assert.match(await page.textContent("#p-answer .quote"), /--instance NAME/);
  await page.click("#p-clear");
});

await test("the page names what may be dropped, and the command that answers about it", async () => {
  assert.match(await page.textContent("#p-kinds"), /NCCL_DEBUG=INFO.*nccl-tests.*topo and lint/);
  await answer(page, () => page.setInputFiles("#p-files", join(cases, "h200-topo/topo.txt")));
  assert.match(await page.textContent("#p-notes"), /a description of a machine and not a log/);
  const topo = await answer(page, () => page.click("#p-notes button"));
  assert.equal(JSON.parse(topo.json).schema, "plumb.topo/1");
  await page.click("#p-clear");
  await page.click("[data-command=doctor]");
  const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: b\n    resources: {limits: {nvidia.com/gpu: 8}}\n";
  await answer(page, () => drop(page, [["pod.yaml", pod]]));
  const linted = await answer(page, () => page.click("#p-notes button"));
  assert.equal(JSON.parse(linted.json).schema, "plumb.lint/1");
  await page.click("#p-clear");
  await page.click("[data-command=doctor]");
  await page.fill("#p-instance", "p6.blah");
  await answer(page, () => page.setInputFiles("#p-files", join(cases, "h200-topo/topo.txt")));
  assert.match(await page.textContent("#p-notes"), /the field \u201cMachine\u201d lists them/);
  await page.fill("#p-instance", "");
  await page.click("#p-clear");
});

await test("what is hostile stays text", async () => {
  const markup = "<img src=x onerror=alert(1)><script>alert(2)</scr" + "ipt></style></title>\u001b]0;x\u0007\u001b[31m<svg onload=alert(3)>";
  const name = "<img src=x onerror=alert(4)>.log";
  const log = [
    "host:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4",
    `host:1:1 [0] NCCL INFO NCCL_IB_HCA set by environment to ${markup}`,
    `${markup}:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1000 - Init COMPLETE`,
    `host:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/${markup} to 33030532 bytes`,
    `RuntimeError: ${markup}`,
  ].join("\n");
  const yaml = `apiVersion: v1\nkind: Pod\nmetadata: {name: '${markup.replaceAll(/[\u001b\u0007]/g, "")}'}\nspec:\n  containers:\n  - name: a\n    image: '<script>alert(5)</scr` + `ipt>'\n    resources: {limits: {nvidia.com/gpu: 8}}\n    command: [torchrun, --nproc_per_node=8, '<b>x</b>.py']\n`;
  for (const command of ["doctor", "lint", "topo"]) {
    await page.click(`[data-command=${command}]`);
    await answer(page, async () => {
      await drop(page, [[name, log], ["</textarea><script>alert(6)<" + "/script>.yaml", yaml]]);
      if (command === "topo") await page.click("#p-ask");
    });
    await page.fill("#p-query", "<img");
    await page.press("#p-query", "Enter");
    await page.waitForSelector("#p-found:not([hidden])");
    const bad = await page.evaluate(() => [...document.querySelectorAll(
      "img, iframe, object, embed, script:not([type='text/plain']), [onerror], [onload], #p-answer script")].map((it) => it.outerHTML.slice(0, 60)));
    assert.equal(bad.length, 1, `only the page's own script: ${bad}`);
    const text = await page.evaluate(() => document.body.innerText);
    assert.ok(!/[\u0007\u001b]/.test(await page.textContent("#p-answer")), "no escape");
    assert.match(text, /<img src=x/);
    await page.click("#p-clear");
  }
  await page.click("[data-command=doctor]");
});

await test("a long log can be cancelled, and the page works on", async () => {
  const large = join(folder, "large.log");
  const block = Buffer.from("host:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n".repeat(1 << 14));
  const out = openSync(large, "w");
  for (let written = 0; written < 256 << 20; written += block.length) writeSync(out, block);
  closeSync(out);
  await page.setInputFiles("#p-files", large);
  await page.waitForSelector("#p-busy:not([hidden])");
  await page.waitForFunction(() => document.getElementById("p-progress").value > 0.02);
  await page.click("#p-cancel");
  assert.match(await page.textContent("#p-notes"), /Cancelled/);
  await page.click("#p-clear");
  rmSync(large);
  const it = await answer(page, () => page.setInputFiles("#p-folder", join(cases, HANG)));
  assert.ok(it.json.length > 0);
  await page.click("#p-clear");
});

await test("no error, no request, no violation of the policy so far", () => clean(page));

await test(`the JSON of ${recordings.length} recordings is the command's`, async () => {
  const different = [];
  let next = 0;
  const work = async (page) => {
    for (let name = recordings[next++]; name; name = recordings[next++]) {
      const [it, json] = await Promise.all([
        answer(page, () => page.setInputFiles("#p-folder", join(cases, name))),
        said("doctor", name, "-f", "json"),
      ]);
      if (it.error || it.json !== json) different.push(`${name} ${it.error ?? ""}`);
      await page.click("#p-clear");
    }
    clean(page);
  };
  const second = await open(await tab(browser), file);
  await Promise.all([work(page), work(second)]);
  await second.context().close();
  assert.deepEqual(different, []);
});

await test(`the HTML of ${recordings.length} recordings`, async () => {
  const reports = join(folder, "reports");
  mkdirSync(reports);
  let next = 0;
  const sizes = [];
  const wrong = [];
  const work = async () => {
    const page = await tab(browser);
    for (let name = recordings[next++]; name; name = recordings[next++]) {
      const report = join(reports, `${name}.html`);
      const html = await said("doctor", name, "-f", "html");
      writeFileSync(report, html);
      sizes.push(Buffer.byteLength(html));
      await page.goto(pathToFileURL(report).href);
      const found = [...page.wrong.splice(0), ...(await faults(page))];
      if (found.length) wrong.push(`${name}: ${found.join("; ")}`);
    }
    await page.context().close();
  };
  await Promise.all([work(), work()]);
  assert.deepEqual(wrong, []);
  sizes.sort((one, other) => one - other);
  return `${sizes[0] >> 10} to ${sizes.at(-1) >> 10} KiB, median ${sizes[sizes.length >> 1] >> 10}`;
});

await test("the HTML of the other commands, light, dark and narrow", async () => {
  const inputs = join(cases, "../crates/cli/tests");
  const asked = [
    "lint manifests", "node", "env --instance p5.48xlarge", "topo --instance p4d.24xlarge",
    "topo --instance p5.48xlarge --nodes 2 --decide", "topo --instance p5.48xlarge --nodes 2 --what-if NCCL_CROSS_NIC=0",
    "expect all_reduce --instance p5.48xlarge --nodes 2 --measured 300",
    "predict predict/g6e-zero3.toml --what-if network=eni", "plan plan/llama-70b-p5.toml",
    "bench --compare CASES/bench-2-nodes/bench.json CASES/bench-2-nodes-1-channel/bench.json",
    "validate --simulate nodes=24,slow=node017:0.6,link=node003-node009:0.5",
    "compare CASES/training-2-nodes CASES/training-2-nodes-1-channel CASES/training-1-rank",
    "compare CASES/bench-2-nodes CASES/bench-2-nodes-1-channel",
  ];
  const page = await tab(browser);
  const wrong = [];
  for (const [number, line] of asked.entries()) {
    const html = await said({ cwd: inputs }, ...line.replaceAll("CASES", cases).split(" "), "--format", "html");
    assert.ok(html.startsWith("<!doctype html>"), `${line}: ${html.slice(0, 80)}`);
    const report = join(folder, `${number}.html`);
    writeFileSync(report, html);
    await page.goto(pathToFileURL(report).href);
    const found = [...page.wrong.splice(0), ...(await faults(page))];
    await page.emulateMedia({ colorScheme: "dark" });
    found.push(...(await faults(page)));
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 800 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    if (wide > 390) found.push(`${wide} pixels wide on a screen of 390`);
    await page.setViewportSize({ width: 1280, height: 900 });
    if (found.length) wrong.push(`${line}: ${found.join("; ")}`);
  }
  await page.context().close();
  assert.deepEqual(wrong, []);
});

await browser.close();
rmSync(folder, { recursive: true });
console.log(failed ? `${failed} failed` : "all passed");
process.exitCode = failed ? 1 : 0;
