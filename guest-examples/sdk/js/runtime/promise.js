import { asError } from "./error.js";

// Promises that end with the message. An engine that loses sight of them acks a message whose work is not done: QuickJS
// runs no jobs while a message is handled, and StarlingMonkey forgets what `handle` does not wait for. So promises have a
// queue here. The build rewrites `async` functions: they use these promises.

/**
 * Call the handler, and run everything that it started. Returns what `conclude` makes of its end, `{ value }` or
 * `{ error }`; or a promise of the engine, if the host still has something to do for the handler.
 */
export function settled(call, conclude) {
  let end;
  new Promise((resolve) => resolve(call())).then(
    (value) => (end = { value }),
    (error) => (end = { error }),
  );
  // How it ended; `undefined` = it goes on.
  const ended = () => {
    if (end && "error" in end) return end;
    if (jobs.length > 0 || awaited > 0 || (tasks > 0 && (!end || waiting > 0))) return undefined;
    for (const error of unhandled.values()) return { error };
    if (!end) return { error: new Lost("handle waits for a promise that nothing settles") };
    if (waiting > 0) return { error: new Lost("handle returned while promises are unfinished, and nothing settles them") };
    return end;
  };
  atRest = () => {};
  run();
  isEngineNext = true;
  const known = ended();
  if (known) return conclude(known);
  return new Native((resolve, reject) => {
    atRest = () => {
      try {
        const known = ended();
        if (!known) return;
        atRest = () => {};
        resolve(conclude(known));
      } catch (error) {
        reject(error);
      }
    };
  });
}

// Work that would be lost. No function of the handler is at fault.
class Lost extends Error {
  name = "UnfinishedWork";
  stack = "";
}

/** Run what the modules started when they were loaded. That is part of the build. */
export function loaded() {
  run();
  for (const error of unhandled.values()) throw asError(error);
  waiting = 0;
  period += 1;
}

/**
 * Begin something that the host does for the handler. `isAwaited`: the message waits for its end, also if no promise
 * does. Call `end` with what follows from it.
 */
export function task(isAwaited) {
  tasks += 1;
  if (isAwaited) awaited += 1;
  return {
    /** Change whether the message waits for it. */
    await(isNow) {
      awaited += Number(isNow) - Number(isAwaited);
      isAwaited = isNow;
    },
    /** Something follows from it, and it goes on. */
    step(follow) {
      follow();
      run();
    },
    end(follow) {
      tasks -= 1;
      if (isAwaited) awaited -= 1;
      follow();
      run();
    },
  };
}

/** Run a callback that nothing waits for. What it throws is a rejection that nothing handles. */
export function detached(callback) {
  new Own((resolve) => resolve(callback()));
}

/** Take over the promises of the engine: it settles them while the host works. */
export function adopt() {
  Native.prototype.then = function (onFulfilled, onRejected) {
    if (isEngineNext && !isRunning) {
      isEngineNext = false;
      return nativeThen.call(this, onFulfilled, onRejected);
    }
    const adopted = new Own((resolve, reject) => {
      const { end } = task(false);
      nativeThen.call(
        this,
        (value) => end(() => resolve(value)),
        (reason) => end(() => reject(reason)),
      );
    });
    return adopted.then(onFulfilled, onRejected);
  };
  const settledByEngine = Native.resolve();
  schedule = () => nativeThen.call(settledByEngine, run);
}

// What the host does, and how much of it the message waits for.
let tasks = 0;
let awaited = 0;
// The engine waits for the answer of `handle` by `then`. It does so at once: that is no work of the handler.
let isEngineNext = false;
// Called when no job is left.
let atRest = () => {};
// Lets the engine call `run`, after a callback that this file does not know.
let schedule = () => {};

// The reactions to promises that are settled, the next one first.
let jobs = [];
// How many callbacks wait for a promise, and the period in which they began to wait: that of the build, or that of messages.
let waiting = 0;
let period = 1;
// The rejected promises that nothing handles, with the reasons.
const unhandled = new Map();

let isRunning = false;

function run() {
  if (isRunning) return;
  isRunning = true;
  while (jobs.length > 0) {
    const batch = jobs;
    jobs = [];
    for (const job of batch) react(job);
  }
  isRunning = false;
  atRest();
}

function add(reaction) {
  if (jobs.push(reaction) === 1 && !isRunning) schedule();
}

const [PENDING, FULFILLED, REJECTED] = [0, 1, 2];

const Native = globalThis.Promise;
const nativeThen = Native.prototype.then;

// The fields of a promise. They are symbols, and not private: private fields cost much in an interpreter.
const [STATE, VALUE, REACTIONS, HANDLED] = ["state", "value", "reactions", "handled"].map(Symbol);
// The mark of the functions that settle a promise.
const SETTLES = Symbol("settles");
// The executor of promises that this file settles.
const NONE = () => {};

const isOwn = (value) => typeof value === "object" && value !== null && STATE in value;

const Own = class Promise {
  static name = "Promise";

  constructor(executor) {
    this[STATE] = PENDING;
    this[VALUE] = undefined;
    this[REACTIONS] = undefined;
    this[HANDLED] = false;
    if (executor === NONE) return;
    if (typeof executor !== "function") throw new TypeError("the executor of a promise is not a function");
    const [done, failed] = settlers(this);
    try {
      executor(done, failed);
    } catch (error) {
      failed(error);
    }
  }

  static get [Symbol.species]() {
    return this;
  }

  // Those of the engine are promises, too.
  static [Symbol.hasInstance](value) {
    return Function.prototype[Symbol.hasInstance].call(this, value) || (this === Own && value instanceof Native);
  }

  static resolve(value) {
    if (isOwn(value) && value.constructor === this) return value;
    if (this !== Own) return new this((done) => done(value));
    const promise = new Own(NONE);
    resolve(promise, value);
    return promise;
  }

  static reject(reason) {
    return new this((_, failed) => failed(reason));
  }

  then(onFulfilled, onRejected) {
    this[HANDLED] = true;
    if (unhandled.size > 0) unhandled.delete(this);
    const next = new Own(NONE);
    const reaction = { promise: this, onFulfilled, onRejected, next, period: 0 };
    if (this[STATE] === PENDING) {
      (this[REACTIONS] ??= []).push(reaction);
      // A callback that settles another promise is no work. What waits for that promise is counted there.
      if (typeof onFulfilled === "function" && !onFulfilled[SETTLES] && !onRejected?.[SETTLES]) {
        reaction.period = period;
        waiting += 1;
      }
    } else {
      add(reaction);
    }
    const Next = this.constructor?.[Symbol.species] ?? Own;
    return Next === Own ? next : new Next((done, failed) => next.then(done, failed));
  }
};

// Two functions that settle the promise. The first call counts.
function settlers(promise) {
  let isUsed = false;
  const done = (value) => {
    if (isUsed) return;
    isUsed = true;
    resolve(promise, value);
  };
  const failed = (reason) => {
    if (isUsed) return;
    isUsed = true;
    settle(promise, REJECTED, reason);
  };
  done[SETTLES] = failed[SETTLES] = true;
  return [done, failed];
}

function resolve(promise, value) {
  if (value === promise) return settle(promise, REJECTED, new TypeError("a promise waits for itself"));
  let then;
  try {
    const canHave = (typeof value === "object" && value !== null) || typeof value === "function";
    then = canHave ? value.then : undefined;
  } catch (error) {
    return settle(promise, REJECTED, error);
  }
  if (typeof then !== "function") return settle(promise, FULFILLED, value);
  const [done, failed] = settlers(promise);
  addCallback(() => {
    try {
      then.call(value, done, failed);
    } catch (error) {
      failed(error);
    }
  });
}

function settle(promise, state, value) {
  promise[STATE] = state;
  promise[VALUE] = value;
  if (state === REJECTED && !promise[HANDLED]) unhandled.set(promise, value);
  const reactions = promise[REACTIONS];
  if (!reactions) return;
  promise[REACTIONS] = undefined;
  for (const reaction of reactions) {
    if (reaction.period === period) waiting -= 1;
    add(reaction);
  }
}

function addCallback(onFulfilled) {
  add({ promise: DONE, onFulfilled, onRejected: undefined, next: new Own(NONE) });
}

// The promise of the reaction is settled.
function react({ promise, onFulfilled, onRejected, next }) {
  const [state, value] = [promise[STATE], promise[VALUE]];
  const callback = state === FULFILLED ? onFulfilled : onRejected;
  if (typeof callback !== "function") return settle(next, state, value);
  let result;
  try {
    result = callback(value);
  } catch (error) {
    return settle(next, REJECTED, error);
  }
  resolve(next, result);
}

const DONE = Own.resolve();

// `all`, `race`, `finally` and the others of the engine work with every class of promises.
for (const [own, native] of [[Own, Native], [Own.prototype, Native.prototype]]) {
  for (const key of Reflect.ownKeys(native)) {
    if (!Object.hasOwn(own, key)) Object.defineProperty(own, key, Object.getOwnPropertyDescriptor(native, key));
  }
}

globalThis.Promise = Own;
if (!isOwn((async () => {})())) throw new Error("build with --supported:async-await=false");
globalThis.queueMicrotask = (callback) => addCallback(() => detached(callback));

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
