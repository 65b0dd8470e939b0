// Promises that end with the message. QuickJS has a queue of jobs, and nothing runs it while a message is handled: what
// stands behind the first `await` would be lost. So promises have a queue here, and `settled` runs it. The build
// rewrites `async` functions: they use these promises.

/** Call the handler, and run everything that it started. Returns what its promise resolves to. */
export function settled(call) {
  let end;
  new Promise((resolve) => resolve(call())).then(
    (value) => (end = { value }),
    (error) => (end = { error }),
  );
  run();
  if (end && "error" in end) throw asError(end.error);
  refuseRejections();
  if (!end) throw new Error("handle waits for a promise that nothing settles");
  if (waiting.size > 0) throw new Error("handle returned while promises are unfinished, and nothing settles them");
  return end.value;
}

/** Run what the modules started when they were loaded. That is part of the build. */
export function loaded() {
  run();
  refuseRejections();
  waiting.clear();
}

// The jobs to run, the next one first.
let jobs = [];
// The callbacks that wait for a promise.
const waiting = new Set();
// The rejected promises that nothing handles, with the reasons.
const unhandled = new Map();
// The functions that settle a promise.
const settlers = new WeakSet();

function run() {
  while (jobs.length > 0) {
    const batch = jobs;
    jobs = [];
    for (const job of batch) job();
  }
}

function refuseRejections() {
  for (const reason of unhandled.values()) throw asError(reason);
}

// The log shows the message and the stack of an error: so the message names the type, too.
function asError(reason) {
  if (!(reason instanceof Error)) return new Error(`rejected with ${String(reason)}`);
  const type = reason.name === "Error" ? reason.constructor?.name : reason.name;
  const error = new Error(`${type || "Error"}: ${reason.message}`);
  error.stack = reason.stack;
  return error;
}

const [PENDING, FULFILLED, REJECTED] = [0, 1, 2];

const Native = globalThis.Promise;
// The executor of promises that this file settles.
const NONE = () => {};

const Own = class Promise {
  static name = "Promise";

  #state = PENDING;
  #value;
  #reactions = [];
  #isHandled = false;

  constructor(executor) {
    if (executor === NONE) return;
    if (typeof executor !== "function") throw new TypeError("the executor of a promise is not a function");
    const [resolve, reject] = this.#settlers();
    try {
      executor(resolve, reject);
    } catch (error) {
      reject(error);
    }
  }

  static get [Symbol.species]() {
    return this;
  }

  static resolve(value) {
    if (value instanceof Own && value.constructor === this) return value;
    if (this !== Own) return new this((resolve) => resolve(value));
    const promise = new Own(NONE);
    promise.#resolve(value);
    return promise;
  }

  static reject(reason) {
    return new this((_, reject) => reject(reason));
  }

  then(onFulfilled, onRejected) {
    this.#isHandled = true;
    unhandled.delete(this);
    const next = new Own(NONE);
    const reaction = { onFulfilled, onRejected, next };
    if (this.#state === PENDING) {
      this.#reactions.push(reaction);
      // A callback that settles another promise is no work. What waits for that promise is counted there.
      const settles = settlers.has(onFulfilled) || settlers.has(onRejected);
      if (typeof onFulfilled === "function" && !settles) waiting.add(reaction);
    } else {
      this.#react(reaction);
    }
    const Next = this.constructor?.[Symbol.species] ?? Own;
    return Next === Own ? next : new Next((resolve, reject) => next.then(resolve, reject));
  }

  // Two functions that settle the promise. The first call counts.
  #settlers() {
    let isUsed = false;
    const once = (settle) => {
      const settler = (value) => {
        if (isUsed) return;
        isUsed = true;
        settle(value);
      };
      settlers.add(settler);
      return settler;
    };
    return [once((value) => this.#resolve(value)), once((reason) => this.#settle(REJECTED, reason))];
  }

  #resolve(value) {
    if (value === this) return this.#settle(REJECTED, new TypeError("a promise waits for itself"));
    let then;
    try {
      const canHave = (typeof value === "object" && value !== null) || typeof value === "function";
      then = canHave ? value.then : undefined;
    } catch (error) {
      return this.#settle(REJECTED, error);
    }
    if (typeof then !== "function") return this.#settle(FULFILLED, value);
    const [resolve, reject] = this.#settlers();
    jobs.push(() => {
      try {
        then.call(value, resolve, reject);
      } catch (error) {
        reject(error);
      }
    });
  }

  #settle(state, value) {
    this.#state = state;
    this.#value = value;
    if (state === REJECTED && !this.#isHandled) unhandled.set(this, value);
    for (const reaction of this.#reactions) this.#react(reaction);
    this.#reactions = undefined;
  }

  // The promise is settled: the callback is called next.
  #react(reaction) {
    waiting.delete(reaction);
    jobs.push(() => {
      const { onFulfilled, onRejected, next } = reaction;
      const callback = this.#state === FULFILLED ? onFulfilled : onRejected;
      if (typeof callback !== "function") return next.#settle(this.#state, this.#value);
      let value;
      try {
        value = callback(this.#value);
      } catch (error) {
        return next.#settle(REJECTED, error);
      }
      next.#resolve(value);
    });
  }
};

// `all`, `race`, `finally` and the others of the engine work with every class of promises.
for (const [own, native] of [[Own, Native], [Own.prototype, Native.prototype]]) {
  for (const key of Reflect.ownKeys(native)) {
    if (!Object.hasOwn(own, key)) Object.defineProperty(own, key, Object.getOwnPropertyDescriptor(native, key));
  }
}

globalThis.Promise = Own;
if (!((async () => {})() instanceof Own)) throw new Error("build with --supported:async-await=false");
globalThis.queueMicrotask = (callback) => {
  jobs.push(() => new Own((resolve) => resolve(callback())));
};

// What else would use promises of the engine.
Native.prototype.then = () => {
  throw new TypeError("nothing settles this promise: it is not of the class Promise");
};
delete Array.fromAsync;
delete globalThis.AsyncDisposableStack;

// The build does not rewrite code that is made of text.
const ASYNC = /\basync\s*(function\b|\*|\(|[\w$]+\s*(=>|\())|\bimport\s*\(/;

function synchronous(compile) {
  const check = (texts) => {
    if (texts.some((text) => ASYNC.test(String(text)))) throw new TypeError("code made of text cannot be async");
  };
  return new Proxy(compile, {
    apply(target, self, texts) {
      check(texts);
      return Reflect.apply(target, self, texts);
    },
    construct(target, texts) {
      check(texts);
      return Reflect.construct(target, texts);
    },
  });
}

globalThis.eval = synchronous(eval);
globalThis.Function = synchronous(Function);
for (const sample of [() => {}, function* () {}]) {
  const kind = Object.getPrototypeOf(sample);
  Object.defineProperty(kind, "constructor", { value: synchronous(kind.constructor) });
}
