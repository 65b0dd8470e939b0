import assert from "node:assert/strict";
import { test } from "node:test";

import { component } from "./component.js";

const { handle, instance, lines } = await component(`
import { handler } from "hostler";
const never = new Promise(() => {});
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const cases = {
  async timer() { await sleep(5); console.log("slept"); },
  floating() { void (async () => { await sleep(5); await null; console.log("floated"); })(); },
  "a timer alone"() { setTimeout(() => console.log("late"), 5); },
  "an interval"() { let n = 0; const timer = setInterval(() => { console.log(n); if (++n === 3) clearInterval(timer); }, 1); },
  "a cleared timer"() { clearTimeout(setTimeout(() => console.log("no"), 60_000)); },
  "a timer without ref"() { setTimeout(() => console.log("no"), 60_000).unref(); },
  async "a race"() { console.log(await Promise.race([never, sleep(1).then(() => "won")])); },
  async "a request"() { console.log(await (await fetch("http://x/")).text()); },
  "a request that nobody waits for"() { void fetch("http://x/").then((response) => response.text()).then((text) => console.log(text)); },
  async settled() { console.log(JSON.stringify(await Promise.allSettled([1, Promise.reject(2), sleep(1)]))); },
  async "a promise of the engine"() { console.log(await later("done")); },
  "a promise of the engine that nobody waits for"() { later("done").then((text) => console.log(text)); },
  async generator() { async function* numbers() { yield 1; await sleep(1); yield 2; } for await (const n of numbers()) console.log(n); },
  "callbacks, in order"() { Promise.resolve().then(() => console.log(2)).finally(() => console.log(4)); queueMicrotask(() => console.log(3)); console.log(1); },

  "a rejection"() { void Promise.reject(new Error("nobody waits")); },
  "a rejection behind a timer"() { void (async () => { await sleep(1); throw new RangeError("late"); })(); },
  "a timer that throws"() { setTimeout(() => { throw new Error("in a timer"); }, 1); },
  "a request that fails"() { void fetch("http://fails/"); },
  async "a wait of handle"() { await never; },
  "a wait of something else"() { void (async () => { await never; })(); },
  "a callback that waits"() { never.then(() => console.log("never")); },
  "a wait behind others"() { void Promise.all([1, (async () => { await never; })()]).then(() => console.log("never")); },
};
export default handler(({ how }) => cases[how]());`);

for (const [how, expected] of [
  ["timer", ["slept"]],
  ["floating", ["floated"]],
  ["a timer alone", ["late"]],
  ["an interval", ["0", "1", "2"]],
  ["a cleared timer", []],
  ["a timer without ref", []],
  ["a race", ["won"]],
  ["a request", ["answer"]],
  ["a request that nobody waits for", ["answer"]],
  ["settled", ['[{"status":"fulfilled","value":1},{"status":"rejected","reason":2},{"status":"fulfilled"}]']],
  ["a promise of the engine", ["done"]],
  ["a promise of the engine that nobody waits for", ["done"]],
  ["generator", ["1", "2"]],
  ["callbacks, in order", ["1", "2", "3", "4"]],
]) {
  test(`before the ack: ${how}`, async () => {
    assert.deepEqual(await handle({ how }), { tag: "ack" });
    assert.deepEqual(lines, expected);
  });
}

const unfinished = "UnfinishedWork: handle returned while promises are unfinished, and nothing settles them";
for (const [how, said] of [
  ["a rejection", "Error: nobody waits"],
  ["a rejection behind a timer", "RangeError: late"],
  ["a timer that throws", "Error: in a timer"],
  ["a request that fails", "TypeError: refused"],
  ["a wait of handle", "UnfinishedWork: handle waits for a promise that nothing settles"],
  ["a wait of something else", unfinished],
  ["a callback that waits", unfinished],
  ["a wait behind others", unfinished],
]) {
  test(`a fault: ${how}`, async () => {
    const { fault } = await instance().handle({ how });
    assert.ok(fault?.startsWith(`Uncaught ${said}`), fault);
  });
}

test("a module starts nothing while it is loaded", async () => {
  const start = (text) => component(`import { handler } from "hostler"; ${text} export default handler(() => {});`);
  await assert.rejects(start("setInterval(() => {}, 1000);"), /a module starts a timer while it is loaded/);
  await assert.rejects(start('void fetch("http://x/");'), /there are no requests while modules are loaded/);
  await assert.rejects(start('void (async () => { await null; throw new Error("at load"); })();'), /at load/);
  await start("setInterval(() => {}, 1000).unref();");
});
