"use strict";
(() => {
  const root = document.documentElement;
  const status = document.getElementById("said");
  const say = (text) => { status.textContent = text; };
  root.classList.add("js");

  // Light or dark: the reader's setting until the button is pressed. Nothing is stored: a file has no settings of its own.
  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const name = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.hidden = false;
  name();
  dark.addEventListener("change", name);
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });

  // Where the clipboard may not be written to, the text is selected for the keyboard.
  const byHand = (text) => {
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "unseen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  const copied = (button, done) => {
    const label = button.textContent;
    button.textContent = done ? "Copied" : "Not copied";
    say(done ? "Copied" : "The browser does not allow copying");
    setTimeout(() => { button.textContent = label; say(""); }, 1600);
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", () => {
      const text = button.dataset.copy;
      const written = navigator.clipboard ? navigator.clipboard.writeText(text) : Promise.reject(new Error());
      written.then(() => copied(button, true), () => copied(button, byHand(text)));
    });
  }

  // One part at a time.
  for (const choice of document.querySelectorAll(".choice")) {
    const select = choice.querySelector("select");
    const parts = [...choice.children].filter((it) => it.classList.contains("option"));
    const show = () => parts.forEach((it, at) => { it.hidden = at !== select.selectedIndex; });
    select.addEventListener("change", show);
    show();
  }

  // A link into a closed part opens it; paper shows everything.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let it = target; it; it = it.parentElement) {
      if (it.tagName === "DETAILS") it.open = true;
    }
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  const opened = [];
  addEventListener("beforeprint", () => {
    for (const it of document.querySelectorAll("details:not([open])")) { it.open = true; opened.push(it); }
  });
  addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; });
})();
