// Runs a bundle without its engine: in a context of its own, with the functions of hostler as objects.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import vm from "node:vm";

import { bundled } from "../build/build.js";

const ENGINE = `
  globalThis.later = (value) => new Promise((resolve) => setTimeout(resolve, 1, value));
  globalThis.fetch = async (url) => {
    await later();
    if (url === "http://fails/") throw new TypeError("refused");
    return { text: () => later("answer") };
  };
`;

const SDK = join(import.meta.dirname, "..");

/** Bundle a module, and make an instance of it. `host` has the interfaces that it imports. */
export async function component(source, host = {}, engine = "starlingmonkey") {
  const folder = await mkdtemp(join(tmpdir(), "hostler-sdk-"));
  const entry = join(folder, "handler.ts");
  await writeFile(entry, source.replaceAll('"hostler"', JSON.stringify(join(SDK, "src/index.js"))));
  const { code, imports } = await bundled(entry, engine, folder);
  await rm(folder, { recursive: true });
  return { ...instance(code, host), imports, instance: () => instance(code, host) };
}

function instance(code, host) {
  const lines = [];
  const print = (...values) => lines.push(values.join(" "));
  const exited = new Error("exit");
  const interfaces = {
    "wasi:cli/exit@0.2.6": {
      exit: () => {
        throw exited;
      },
    },
    ...host,
  };
  const globals = { AbortController, AbortSignal, Blob, DOMException, Event, EventTarget, Headers, ReadableStream, Request, Response };
  Object.assign(globals, { TextDecoder, TextEncoder, URL, URLSearchParams, clearInterval, clearTimeout, crypto, performance });
  Object.assign(globals, { setInterval, setTimeout, structuredClone });
  const context = vm.createContext({ ...globals, AbortSignal: class {}, console: { error: print, log: print, warn: print }, interfaces });
  // A script has no imports and exports.
  const imported = [];
  const script = code
    .replace(/^import \* as (\w+) from ("[^"]+");$/gm, (_, name, from) => (imported.push(`const ${name} = interfaces[${from}];`), ""))
    .replace(/^export \{\s*(\w+)(?: as messageHandler)?\s*\};$/m, "globalThis.messageHandler = $1;");
  // Promises of the engine are those of the context.
  vm.runInContext(ENGINE, context);
  // As StarlingMonkey waits: an `async` function of its own, and `then`.
  const call = vm.runInContext("(handle, message) => (async () => await handle(message))()", context);
  const waited = (message) => new Promise((done, failed) => call(context.messageHandler.handle, message).then(done, failed));
  // On one line: the lines of the bundle stay the same.
  vm.runInContext(imported.join(" ") + script, context, { filename: "handler.js" });

  /** The outcome of a message, or the lines of its fault. */
  async function handle(payload, message = {}) {
    lines.length = 0;
    const body = payload instanceof Uint8Array ? payload : new TextEncoder().encode(typeof payload === "string" ? payload : JSON.stringify(payload));
    const raw = { id: "1-0", queue: "orders", body, headers: [], attempt: 1, maxAttempts: 4, enqueuedMs: 5n, ...message };
    try {
      // An object of this context can be compared.
      return { ...(await waited(raw)) };
    } catch (error) {
      if (error !== exited) throw error;
      return { fault: lines.join("\n") };
    }
  }
  return { handle, lines };
}
