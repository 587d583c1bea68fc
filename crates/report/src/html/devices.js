// Of drawings of machines: the ring or tree that is chosen, and the paths of a device while it has the pointer or the focus: at the other devices, and in a line above the drawing.
"use strict";
const drawings = (within) => {
  for (const map of within.querySelectorAll(".devices")) {
    // One ring or tree at a time.
    const select = map.querySelector(".layers select");
    const layers = [...map.querySelectorAll("[data-layer]")];
    const choose = () => { for (const it of layers) it.classList.toggle("off", it.dataset.layer !== select.value); };
    if (select) {
      select.addEventListener("change", choose);
      choose();
    }
    const all = JSON.parse(map.dataset.paths);
    const line = map.querySelector(".paths-of");
    const devices = [...map.querySelectorAll("[data-device]")];
    if (!line || !devices.length) continue;
    const usual = line.textContent;
    const classes = ["near", "middle", "far", "chosen"];
    const clear = () => {
      for (const it of devices) {
        it.classList.remove(...classes);
        it.querySelector(".badge").textContent = "";
      }
      line.textContent = usual;
    };
    const show = (device) => {
      clear();
      const paths = all[device.dataset.device] || [];
      if (!paths.length) return;
      const picture = device.closest("svg");
      device.classList.add("chosen");
      for (const [name, kind, words] of paths) {
        for (const it of devices) {
          const same = it.dataset.device === name && it.dataset.machine === device.dataset.machine;
          if (!same || it.closest("svg") !== picture) continue;
          it.classList.add(kind);
          it.querySelector(".badge").textContent = words.split(",")[0];
        }
      }
      // Devices with the same path are named together.
      const groups = new Map();
      for (const [name, , words] of paths) groups.set(words, [...(groups.get(words) || []), name]);
      line.textContent = device.dataset.device + ": " +
        [...groups].map(([words, names]) => words + " to " + names.join(", ")).join("; ");
    };
    for (const it of devices) {
      it.addEventListener("mouseenter", () => show(it));
      it.addEventListener("mouseleave", clear);
      it.addEventListener("focus", () => show(it));
      it.addEventListener("blur", clear);
    }
  }
};
