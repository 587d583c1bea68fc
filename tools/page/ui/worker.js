"use strict";
// Runs WebAssembly on files of the page. Each question has a new instance: nothing of the last one is in its memory.
const BLOCK = 4 << 20;
const reader = new FileReaderSync();
let module = null;
let files = [];

const run = (question) => {
  let memory = null;
  let trouble = "";
  let read = 0;
  let told = 0;
  let block = { file: -1, from: 0, bytes: new Uint8Array(0) };
  const tell = (more) => {
    read += more;
    const now = performance.now();
    if (now - told > 100) {
      told = now;
      postMessage({ read });
    }
  };
  const worker = {
    read(file, from, to, length) {
      const inside = from - block.from;
      if (block.file !== file || inside < 0 || inside >= block.bytes.length) {
        try {
          const part = files[file].slice(from, from + Math.max(length, BLOCK));
          block = { file, from, bytes: new Uint8Array(reader.readAsArrayBuffer(part)) };
        } catch (error) {
          return -1;
        }
        tell(block.bytes.length);
      }
      const part = block.bytes.subarray(from - block.from, from - block.from + length);
      new Uint8Array(memory.buffer, to, part.length).set(part);
      return part.length;
    },
    failed(at, length) {
      trouble = new TextDecoder().decode(new Uint8Array(memory.buffer, at, length));
    },
  };
  try {
    const guest = new WebAssembly.Instance(module, { worker }).exports;
    memory = guest.memory;
    const bytes = new TextEncoder().encode(JSON.stringify(question));
    // Memory may grow in every call, and has another buffer then.
    const room = guest.room(bytes.length);
    new Uint8Array(memory.buffer, room, bytes.length).set(bytes);
    const length = guest.ask();
    const at = guest.reply();
    const reply = JSON.parse(new TextDecoder().decode(new Uint8Array(memory.buffer, at, length)));
    return { reply, memory: memory.buffer.byteLength };
  } catch (error) {
    return { reply: { error: "plumb failed: " + (trouble || error.message), notes: [], lines: [] } };
  }
};

onmessage = ({ data }) => {
  if (data.module) module = data.module;
  if (data.files) files = data.files;
  if (data.question) postMessage({ id: data.id, ...run(data.question) });
};
