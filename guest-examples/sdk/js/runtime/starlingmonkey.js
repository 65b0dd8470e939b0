// Timers and requests of StarlingMonkey belong to the message: it waits for them. Alone, the engine forgets them when
// `handle` returns.

import * as exit from "wasi:cli/exit@0.2.6";

import { adopt, detached, task } from "./promise.js";

adopt();

const engine = {
  fetch: globalThis.fetch,
  setTimeout: globalThis.setTimeout,
  setInterval: globalThis.setInterval,
  clearTimeout: globalThis.clearTimeout,
  clearInterval: globalThis.clearInterval,
};

/** A failed attempt: hostler reads this text, and counts the attempt. */
export function fail(error) {
  console.error([`Uncaught ${error.message.replace(/\s*\n\s*/g, " ")}`, error.stack].filter(Boolean).join("\n"));
  exit.exit({ tag: "err" });
}

// Whether modules are loaded, while the component is built.
let isLoading = true;
const running = new Map();
let last = 0;

// As in Node.js, where libraries call `unref`.
class Timer {
  #id = (last += 1);
  #isRef = true;
  #callback;
  #task;
  #native;

  constructor(callback, delay, repeats) {
    this.#callback = callback;
    running.set(this.#id, this);
    if (isLoading) return;
    this.#task = task(true);
    const { step, end } = this.#task;
    const run = () => detached(this.#callback);
    this.#native = repeats
      ? engine.setInterval.call(globalThis, () => step(run), delay)
      : engine.setTimeout.call(globalThis, () => running.delete(this.#id) && end(run), delay);
  }

  clear() {
    if (!running.delete(this.#id)) return;
    engine.clearTimeout.call(globalThis, this.#native);
    this.#task?.end(() => {});
  }

  #setRef(isRef) {
    this.#isRef = isRef;
    if (running.has(this.#id)) this.#task?.await(isRef);
    return this;
  }

  ref() {
    return this.#setRef(true);
  }

  unref() {
    return this.#setRef(false);
  }

  hasRef() {
    return this.#isRef;
  }

  [Symbol.toPrimitive]() {
    return this.#id;
  }
}

function start(callback, delay, args, repeats) {
  if (typeof callback !== "function") throw new TypeError("the callback of a timer is not a function");
  return new Timer(() => callback(...args), Number(delay) || 0, repeats);
}

const clear = (timer) => running.get(Number(timer ?? 0))?.clear();

globalThis.setTimeout = (callback, delay, ...args) => start(callback, delay, args, false);
globalThis.setInterval = (callback, delay, ...args) => start(callback, delay, args, true);
globalThis.setImmediate = (callback, ...args) => start(callback, 0, args, false);
globalThis.clearTimeout = globalThis.clearInterval = globalThis.clearImmediate = clear;

globalThis.fetch = function fetch(input, init) {
  return new Promise((resolve, reject) => {
    if (isLoading) throw new Error("fetch: there are no requests while modules are loaded, in the build");
    const sent = engine.fetch.call(globalThis, input, init);
    const { end } = task(true);
    sent.then(
      (response) => end(() => resolve(response)),
      (error) => end(() => reject(error)),
    );
  });
};

// The engine's own would go on behind the message.
AbortSignal.timeout = (delay) => {
  const controller = new AbortController();
  const late = () => controller.abort(new DOMException(`no end after ${delay} ms`, "TimeoutError"));
  setTimeout(late, delay).unref();
  return controller.signal;
};

// The engine does not have it.
ReadableStream.prototype[Symbol.asyncIterator] ??= function () {
  const reader = this.getReader();
  const stop = async (value) => {
    await reader.cancel(value);
    reader.releaseLock();
    return { done: true, value };
  };
  return { next: () => reader.read(), return: stop };
};

// The engine does not know the names of Unicode, \p{...}. Libraries make such expressions while they are loaded, and often
// do not use them: so it is an error to use one.
globalThis.RegExp = new Proxy(RegExp, {
  construct(target, [pattern, flags], kind) {
    try {
      return Reflect.construct(target, [pattern, flags], kind);
    } catch (error) {
      if (!/\\p\{/i.test(String(pattern))) throw error;
      const refuse = () => {
        throw new SyntaxError(`this engine does not know \\p{...}, in /${pattern}/`);
      };
      return Object.defineProperty(new target("(?!)"), "exec", { value: refuse });
    }
  },
});

/** The modules are loaded. Timers that they have started run in no message. */
export function forget() {
  for (const timer of running.values()) {
    if (timer.hasRef()) throw new Error("a module starts a timer while it is loaded: start it in the handler");
  }
  running.clear();
  isLoading = false;
}

/** What the message does not wait for ends with it. */
export function ended() {
  for (const timer of [...running.values()]) timer.clear();
}
