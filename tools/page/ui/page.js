"use strict";
(() => {
  const root = document.documentElement;
  const at = (id) => document.getElementById("p-" + id);
  const say = (text) => { at("said").textContent = text; };
  const make = (name, text, className) => {
    const it = document.createElement(name);
    if (text !== undefined) it.textContent = text;
    if (className) it.className = className;
    return it;
  };

  // ---- Light or dark: the reader's setting until the button is pressed.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const nameTheme = () => { at("theme").textContent = isDark() ? "Light" : "Dark"; };
  dark.addEventListener("change", nameTheme);
  at("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  nameTheme();

  // ---- WebAssembly in a worker. Cancelling ends the worker; the next question starts another.
  const text = (id) => at(id).textContent;
  const compiled = (async () => {
    const packed = Uint8Array.from(atob(text("wasm").trim()), (it) => it.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return WebAssembly.compile(await new Response(stream).arrayBuffer());
  })();
  const source = URL.createObjectURL(new Blob([text("worker")], { type: "text/javascript" }));
  let worker = null;
  let waiting = new Map();
  let asked = 0;
  let stale = true;

  const ask = async (question, progress) => {
    const module = await compiled;
    if (!worker) {
      worker = new Worker(source);
      worker.postMessage({ module });
      stale = true;
      worker.onmessage = ({ data }) => {
        if (data.id === undefined) {
          for (const it of waiting.values()) it.progress?.(data.read);
          return;
        }
        const it = waiting.get(data.id);
        waiting.delete(data.id);
        if (it) it.resolve(data);
      };
      worker.onerror = (event) => {
        event.preventDefault();
        for (const it of waiting.values()) it.resolve({ reply: { error: "the worker failed: " + event.message, notes: [], lines: [] } });
        stop();
      };
    }
    if (stale) {
      worker.postMessage({ files: given.map((it) => it.file) });
      stale = false;
    }
    const files = given.map((it) => ({ name: it.name, size: it.file.size, named: it.named }));
    const id = ++asked;
    return new Promise((resolve) => {
      waiting.set(id, { resolve, progress });
      worker.postMessage({ id, question: { ...question, files } });
    });
  };
  const stop = () => {
    if (worker) worker.terminate();
    worker = null;
    waiting = new Map();
  };

  // ---- Files.
  let given = [];
  const add = (files) => {
    if (!files.length) return;
    // A name that is given again replaces the file.
    const names = new Set(files.map((it) => it.name));
    given = given.filter((it) => !names.has(it.name)).concat(files);
    listed();
    if (command === "doctor" || command === "lint") submit();
  };
  const size = (bytes) => {
    const units = ["bytes", "KB", "MB", "GB"];
    let unit = 0;
    while (bytes >= 1000 && unit < 3) { bytes /= 1000; unit += 1; }
    return (unit && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)) + " " + units[unit];
  };
  const total = () => given.reduce((sum, it) => sum + it.file.size, 0);
  const listed = () => {
    stale = true;
    at("given").hidden = !given.length;
    at("drop").classList.toggle("few", given.length > 0);
    at("count").textContent = given.length + (given.length === 1 ? " file, " : " files, ") + size(total());
    at("list").replaceChildren(...given.map((it) => make("li", it.name + " (" + size(it.file.size) + ")")));
    const option = (value, label) => { const it = make("option", label); it.value = value; return it; };
    at("file").replaceChildren(option("", "none: the machine by its name"), ...given.map((it) => option(it.name, it.name)));
    if (given.length) at("file").value = given[given.length - 1].name;
    const runs = [...new Set(given.map((it) => it.name.split("/")[0]))];
    at("baseline").replaceChildren(...runs.map((it) => option(it, it)));
    // A job file is TOML: it is not a run.
    const jobs = given.filter((it) => it.name.toLowerCase().endsWith(".toml")).map((it) => it.name);
    at("job").replaceChildren(option("", "none"), ...jobs.map((it) => option(it, it)));
    if (jobs.length) at("job").value = jobs[jobs.length - 1];
    at("search").hidden = !given.length;
  };
  const plain = (file) => ({ file, name: file.webkitRelativePath || file.name, named: !file.webkitRelativePath });
  at("choose-files").addEventListener("click", () => at("files").click());
  at("choose-folder").addEventListener("click", () => at("folder").click());
  for (const id of ["files", "folder"]) {
    at(id).addEventListener("change", () => {
      add([...at(id).files].map(plain));
      at(id).value = "";
    });
  }
  at("clear").addEventListener("click", () => { given = []; listed(); clear(); });

  const entries = (reader) => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
  const opened = (entry) => new Promise((resolve, reject) => entry.file(resolve, reject));
  const walk = async (entry, above, found) => {
    const name = above + entry.name;
    if (entry.isFile) {
      found.push({ file: await opened(entry), name, named: !above });
      return;
    }
    const reader = entry.createReader();
    for (let some = await entries(reader); some.length; some = await entries(reader)) {
      for (const it of some) await walk(it, name + "/", found);
    }
  };
  const dropped = async (transfer) => {
    const items = [...transfer.items].filter((it) => it.kind === "file");
    const all = items.map((it) => it.webkitGetAsEntry?.() || it.getAsFile());
    const found = [];
    for (const it of all) {
      if (it instanceof File) found.push(plain(it));
      else if (it) await walk(it, "", found);
    }
    add(found);
  };
  addEventListener("dragover", (event) => { event.preventDefault(); at("drop").classList.add("over"); });
  addEventListener("dragleave", () => at("drop").classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    at("drop").classList.remove("over");
    dropped(event.dataTransfer).catch((error) => refused("a dropped item could not be read: " + error.message));
  });
  let pasted = 0;
  const paste = (text) => {
    if (!text.trim()) return;
    pasted += 1;
    add([{ file: new File([text], "pasted"), name: pasted === 1 ? "pasted text" : "pasted text " + pasted, named: true }]);
  };
  addEventListener("paste", (event) => {
    if (event.target.closest?.("input, textarea")) return;
    if (event.clipboardData.files.length) dropped(event.clipboardData);
    else paste(event.clipboardData.getData("text/plain"));
  });
  at("paste").addEventListener("click", () => {
    at("pasted").hidden = !at("pasted").hidden;
    if (!at("pasted").hidden) at("pasted-text").focus();
  });
  at("pasted").addEventListener("submit", (event) => {
    event.preventDefault();
    paste(at("pasted-text").value);
    at("pasted-text").value = "";
    at("pasted").hidden = true;
  });

  // ---- Commands.
  const about = {
    doctor: "Diagnose the logs of a job: which paths it uses, what is wrong, what to change.",
    lint: "Check manifests, scripts and settings before they are submitted.",
    topo: "Show how a machine is wired, which paths NCCL uses and what speed is normal: from nvidia-smi topo -m, NCCL's XML, a log, or a machine by its name.",
    expect: "Show the normal bandwidth of a collective, and whether a measured one is normal.",
    explain: "Explain a rule, a variable, a term, a machine, a GPU or a line of a log.",
    compare: "Compare runs: what differs, what each took, and how much of it their paths explain. Each folder or file that you drop is a run.",
  };
  const kinds = {
    doctor: [
      "logs of NCCL (NCCL_DEBUG=INFO), of its plugins, PyTorch, DeepSpeed and launchers, one per rank or all in one",
      "tables and JSON of nccl-tests, dumps of the Flight Recorder, answers of NCCL RAS, dmesg",
      "nvidia-smi topo -m and manifests beside them; alone, they are for topo and lint",
      "gzip, zstd, xz, tar and zip of these; a page that plumb wrote",
    ],
    lint: ["manifests of Kubernetes, scripts of Slurm and the shell, files of variables"],
    topo: ["one of: nvidia-smi topo -m, NCCL's topology XML, a log with NCCL_DEBUG=INFO"],
    compare: ["two runs or more, each a log or a folder of logs; a job file (TOML) for what they do not say"],
  };
  let command = "doctor";
  const choose = (name) => {
    command = name;
    for (const it of at("commands").querySelectorAll("button")) {
      if (it.dataset.command === name) it.setAttribute("aria-current", "true");
      else it.removeAttribute("aria-current");
    }
    at("about").textContent = about[name];
    at("kinds").replaceChildren(...(kinds[name] || []).map((it) => make("li", it)));
    at("drop").hidden = name === "expect" || name === "explain";
    at("given").hidden = at("drop").hidden || !given.length;
    for (const it of at("fields").querySelectorAll(".p-field")) it.hidden = !it.dataset.for.split(" ").includes(name);
    at("ask").textContent = "Run " + name;
    if (!at("machines").children.length) machines();
  };
  const machines = async () => {
    const { reply } = await ask({ command: "machines" });
    at("machines").replaceChildren(...(reply.names || []).map((name) => { const it = make("option"); it.value = name; return it; }));
  };
  at("commands").addEventListener("click", (event) => {
    const name = event.target.dataset.command;
    if (!name) return;
    clear();
    choose(name);
  });
  const question = () => {
    if (command === "explain") return { command, text: at("text").value };
    const flags = {};
    for (const it of at("fields").querySelectorAll(".p-field:not([hidden]) input, .p-field:not([hidden]) select")) {
      if (!["file", "baseline", "text"].includes(it.name)) flags[it.name] = it.value;
    }
    const asked = { command, flags };
    if (command === "topo") asked.file = at("file").value || null;
    if (command === "compare") asked.baseline = at("baseline").value || null;
    return asked;
  };
  let last = null;
  let running = false;
  let run = 0;
  // For scripts: the last answer, and how many there were.
  let answers = 0;
  window.plumb = { last: () => last, answers: () => answers };
  const clear = () => {
    run += 1;
    if (running) stop();
    busy(false);
    last = null;
    at("answer").replaceChildren();
    document.adoptedStyleSheets = [];
    for (const id of ["notes", "actions", "found"]) at(id).hidden = true;
  };
  const refused = (why) => {
    const reason = named(why);
    at("notes").replaceChildren(make("li", reason));
    at("notes").classList.add("p-error");
    at("notes").hidden = false;
    say(reason);
  };
  const busy = (doing) => {
    running = Boolean(doing);
    at("busy").hidden = !doing;
    at("doing").textContent = doing || "";
    at("progress").removeAttribute("value");
  };
  const progress = (all) => (read) => {
    at("progress").value = Math.min(read / Math.max(all, 1), 1);
    at("doing").textContent = "Reading, " + size(read) + " of " + size(all);
  };
  const submit = async () => {
    const needs = ["doctor", "lint", "compare"].includes(command);
    clear();
    if (needs && !given.length) return refused("Drop files first.");
    const mine = ++run;
    busy("Reading");
    const { reply, memory } = await ask(question(), progress(total()));
    if (mine !== run) return;
    busy(false);
    last = { ...reply, command, memory };
    answers += 1;
    if (reply.error) return refused(reply.error);
    show(last);
  };
  at("fields").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  at("cancel").addEventListener("click", () => {
    run += 1;
    stop();
    busy(false);
    say("Cancelled");
    at("notes").replaceChildren(make("li", "Cancelled."));
    at("notes").classList.remove("p-error");
    at("notes").hidden = false;
  });

  // ---- Answers name the flags of the command: here they are fields. Only those of the chosen command are: in a script, `--nodes` is not ours.
  const fields = () => new Map([...at("fields").querySelectorAll(".p-field")]
    .filter((it) => it.dataset.for.split(" ").includes(command))
    .map((it) => [it.querySelector("[name]").name.replaceAll("_", "-"), it.querySelector("label").textContent.split(/[:,]/)[0]]));
  const named = (text, labels = fields()) =>
    text.replace(/`?(?:plumb (\w+) )?--([a-z][a-z-]*)(?: [A-Z][A-Z_]*(?:=[A-Z]+)?|(?![\w=-]))`?/g, (all, other, flag) => {
      const label = labels.get(flag);
      if (!label) return all;
      return (other && other !== command ? other + " with " : "") + "the field \u201c" + label + "\u201d";
    }).replace(/`plumb machines` lists/g, labels.has("instance") ? "the field \u201c" + labels.get("instance") + "\u201d lists" : "$&");
  const translate = (within) => {
    const labels = fields();
    const walker = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    for (const node of nodes) {
      // Lines of the input stay as they are.
      if (!node.data.includes("--") || node.parentElement.closest("pre, .quote, svg")) continue;
      const text = named(node.data, labels);
      if (text === node.data) continue;
      const code = node.parentElement.tagName === "CODE" && !text.includes("--") ? node.parentElement : null;
      node.data = text;
      if (code && code.childNodes.length === 1) code.replaceWith(node);
    }
  };

  // ---- Inputs that another command answers about: all of them are descriptions of machines, or manifests.
  const elsewhere = (it) => {
    if (it.command !== "doctor" || !it.json) return null;
    const inputs = JSON.parse(it.json).inputs.filter((input) => !input.problem);
    const all = (kinds) => inputs.length > 0 && inputs.every((input) => kinds.includes(input.kind));
    const other = all(["topology-matrix", "topology-xml"]) ? ["topo", "a description of a machine"]
      : all(["manifest"]) ? ["lint", "a manifest"] : null;
    if (!other) return null;
    const note = make("li", "This is " + other[1] + " and not a log: ");
    const go = make("button", "Run " + other[0]);
    go.type = "button";
    go.addEventListener("click", () => { choose(other[0]); submit(); });
    note.append(go);
    return note;
  };

  // ---- The answer. It is a page of plumb's own, whose parts are adopted; no script of it runs.
  const show = (it) => {
    const answer = at("answer");
    if (it.html) {
      // The policy of this page holds for styles in a parsed document too, so they are taken out before. Input is escaped in the report.
      const styles = [];
      const body = it.html.replace(/<style>([^<]*)<\/style>/g, (_, style) => { styles.push(style); return ""; });
      const page = new DOMParser().parseFromString(body, "text/html");
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(styles.join("\n"));
      document.adoptedStyleSheets = [sheet];
      answer.replaceChildren(...[...page.querySelector("main").childNodes].map((node) => document.adoptNode(node)));
      for (const script of answer.querySelectorAll("script, style")) script.remove();
      root.classList.add("js");
      alive(answer);
      translate(answer);
    } else {
      const text = make("pre", it.text, "p-plain");
      text.tabIndex = 0;
      answer.replaceChildren(text);
      linked(text);
    }
    at("notes").replaceChildren(...it.notes.map((note) => make("li", named(note))));
    at("notes").classList.remove("p-error");
    const other = elsewhere(it);
    if (other) at("notes").append(other);
    at("notes").hidden = !at("notes").children.length;
    at("actions").hidden = false;
    at("save-html").hidden = !it.html;
    at("save-json").hidden = !it.json;
    answer.focus({ preventScroll: true });
    say("The answer is ready");
  };
  // Places of lines in texts: FILE:LINE of a file that was given.
  const known = (name) => given.some((it) => name === it.name || name.startsWith(it.name + ":"));
  const place = (text) => {
    const found = /^(.*?):(\d+)(?::\d+)?$/.exec(text.trim());
    return found && known(found[1]) ? { file: found[1], line: Number(found[2]) } : null;
  };
  const button = (text, to) => {
    const it = make("button", text, "p-place");
    it.type = "button";
    it.addEventListener("click", () => open(to.file, to.line));
    return it;
  };
  const alive = (answer) => {
    for (const it of answer.querySelectorAll(".quote > p, td")) {
      const to = place(it.textContent);
      if (to) it.replaceChildren(button(it.textContent, to));
    }
    for (const choice of answer.querySelectorAll(".choice")) {
      const select = choice.querySelector("select");
      const parts = [...choice.children].filter((it) => it.classList.contains("option"));
      const part = () => parts.forEach((it, number) => { it.hidden = number !== select.selectedIndex; });
      select.addEventListener("change", part);
      part();
    }
    drawings(answer);
  };
  // In a text answer: the name of a file, perhaps that of a file in it, and a line.
  const linked = (pre) => {
    const parts = [];
    let rest = pre.textContent;
    const names = given.map((it) => it.name).sort((one, other) => other.length - one.length);
    for (;;) {
      let first = null;
      for (const name of names) {
        const from = rest.indexOf(name + ":");
        if (from >= 0 && (!first || from < first.from)) first = { from, name };
      }
      if (!first) break;
      const after = rest.slice(first.from + first.name.length);
      const number = /^((?::[^\s:]*[^\s:\d][^\s:]*)?):(\d+)/.exec(after);
      parts.push(rest.slice(0, first.from));
      parts.push(number ? button(first.name + number[0], { file: first.name + number[1], line: Number(number[2]) }) : first.name);
      rest = number ? after.slice(number[0].length) : after;
    }
    pre.replaceChildren(...parts, rest);
  };
  at("answer").addEventListener("click", (event) => {
    const copy = event.target.closest("button.copy");
    if (copy) written(copy, copy.dataset.copy);
    const link = event.target.closest("a[href^='#']");
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    for (let it = target; it; it = it.parentElement) if (it.tagName === "DETAILS") it.open = true;
  });
  const written = async (button, text) => {
    const label = button.textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) {
      const area = make("textarea", text, "p-unseen");
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    button.textContent = done ? "Copied" : "Not copied";
    say(done ? "Copied" : "The browser does not allow copying");
    setTimeout(() => { button.textContent = label; }, 1600);
  };
  const save = (name, type, text) => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  at("save-html").addEventListener("click", () => save("plumb-" + last.command + ".html", "text/html", last.html));
  at("save-json").addEventListener("click", () => save("plumb-" + last.command + ".json", "application/json", last.json));
  at("copy-text").addEventListener("click", () => written(at("copy-text"), last.text));
  at("print").addEventListener("click", () => print());
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const it of at("answer").querySelectorAll("details:not([open])")) { it.open = true; closed.push(it); }
  });
  addEventListener("afterprint", () => { while (closed.length) closed.pop().open = false; });

  // ---- Lines of the logs.
  const AROUND = 20;
  let shown = null;
  const near = (file, line) => {
    const all = last?.landmarks?.[file] || [];
    return all.filter((it) => it[0] <= Math.max(line - AROUND, 1)).pop() || null;
  };
  const open = async (file, line, middle = line) => {
    at("context-name").textContent = file + ":" + line;
    if (!at("context").open) at("context").showModal();
    at("lines").replaceChildren("Reading");
    const { reply } = await ask({ command: "context", file, line: middle, around: AROUND, near: near(file, middle) });
    if (reply.error) return at("lines").replaceChildren(reply.error);
    shown = { file, line, middle };
    at("lines").replaceChildren(...reply.lines.map(([, number, text]) => {
      const row = make("span", undefined, number === line ? "p-hit" : "");
      row.append(make("i", String(number)), text);
      return row;
    }));
    (at("lines").querySelector(".p-hit") || at("lines").firstChild)?.scrollIntoView({ block: "center" });
  };
  at("earlier").addEventListener("click", () => shown && open(shown.file, shown.line, Math.max(shown.middle - 2 * AROUND, 1)));
  at("later").addEventListener("click", () => shown && open(shown.file, shown.line, shown.middle + 2 * AROUND));
  at("close").addEventListener("click", () => at("context").close());

  // ---- Search.
  const MOST = 500;
  const marks = () => {
    for (const it of at("answer").querySelectorAll("mark.p-match")) it.replaceWith(...it.childNodes);
    at("answer").normalize();
  };
  const mark = (text) => {
    const walker = document.createTreeWalker(at("answer"), NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    let count = 0;
    for (let node of nodes) {
      if (node.parentElement.closest("svg")) continue;
      for (let from = node.data.toLowerCase().indexOf(text); from >= 0 && count < MOST;) {
        const hit = node.splitText(from);
        const rest = hit.splitText(text.length);
        const it = make("mark", undefined, "p-match");
        hit.replaceWith(it);
        it.append(hit);
        for (let open = it; open; open = open.parentElement) if (open.tagName === "DETAILS") open.open = true;
        count += 1;
        node = rest;
        from = node.data.toLowerCase().indexOf(text);
      }
    }
    return count;
  };
  at("search").addEventListener("submit", async (event) => {
    event.preventDefault();
    const wanted = at("query").value.trim().toLowerCase();
    marks();
    if (!wanted) { at("found").hidden = true; return; }
    const here = mark(wanted);
    const mine = ++run;
    busy("Searching");
    const { reply } = await ask({ command: "search", text: wanted, most: MOST }, progress(total()));
    if (mine !== run) return;
    busy(false);
    if (reply.error) return refused(reply.error);
    const lines = reply.lines.length;
    const count = make("p", here + " in the answer, " + (lines >= MOST ? "the first " : "") + lines + (lines === 1 ? " line" : " lines") + " of the logs");
    const list = make("ol");
    list.tabIndex = 0;
    list.setAttribute("aria-label", "Lines of the logs");
    list.append(...reply.lines.map(([file, line, text]) => {
      const row = make("li");
      row.append(button(file + ":" + line, { file, line }), make("span", text));
      return row;
    }));
    at("found").replaceChildren(count, ...(lines ? [list] : []));
    at("found").hidden = false;
    say(count.textContent);
  });

  listed();
  choose("doctor");
  compiled.then(() => { root.dataset.ready = ""; }, (error) => refused("WebAssembly could not be started: " + error.message));
})();
