import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { component } from "./component.js";

test("the end of the function is the outcome", async () => {
  const { handle, lines } = await component(`
    import { Drop, RetryAfter, handler } from "hostler";
    export default handler(async (order, message) => {
      await null;
      if (order.how === "drop") throw new Drop("declined");
      if (order.how === "later") throw new RetryAfter(1500.4);
      if (order.how === "now") throw new RetryAfter(0, "busy");
      console.log([message.id, message.queue, message.attempt, message.maxAttempts, message.enqueuedMs, message.headers.tenant].join(" "));
    });`);
  assert.deepEqual(await handle({ how: "ack" }, { headers: [["tenant", "7"]] }), { tag: "ack" });
  assert.deepEqual(lines, ["1-0 orders 1 4 5 7"]);
  assert.deepEqual(await handle({ how: "drop" }), { tag: "drop", val: "declined" });
  assert.deepEqual(await handle({ how: "later" }), { tag: "nack-requeue", val: 1500 });
  assert.deepEqual(await handle({ how: "now" }), { tag: "nack-requeue", val: 0 });
  assert.deepEqual(lines, ["retry: busy"]);
});

test("a payload that is not valid becomes a dead letter", async () => {
  const { handle } = await component(`
    import { handler, text, bytes } from "hostler";
    const parse = { parse: (value) => { if (typeof value.cents !== "number") throw new Error("no cents"); return { cents: value.cents + 1 }; } };
    const standard = { "~standard": { validate: (value) => value.id ? { value } : { issues: [{ path: ["id"], message: "is missing" }] } } };
    const handlers = {
      json: handler((value) => console.log(JSON.stringify(value))),
      parse: handler(parse, (value) => console.log(JSON.stringify(value))),
      standard: handler(standard, (value) => console.log(JSON.stringify(value))),
      text: handler(text, (value) => console.log(value)),
      bytes: handler(bytes, (value) => console.log(value.length)),
    };
    export default (message) => handlers[message.queue](message);`);
  const drop = (reason) => ({ tag: "drop", val: `the payload is not valid: ${reason}` });
  const outcome = async (queue, body) => handle(body, { queue });
  assert.deepEqual(await outcome("json", { a: 1 }), { tag: "ack" });
  assert.match((await outcome("json", "{")).val, /^the payload is not valid: /);
  assert.match((await outcome("json", new Uint8Array([0xff]))).val, /^the payload is not valid: /);
  assert.deepEqual(await outcome("parse", { cents: 1 }), { tag: "ack" });
  assert.deepEqual(await outcome("parse", {}), drop("no cents"));
  assert.deepEqual(await outcome("standard", { id: 1 }), { tag: "ack" });
  assert.deepEqual(await outcome("standard", {}), drop("id: is missing"));
  assert.deepEqual(await outcome("text", "not json"), { tag: "ack" });
  assert.match((await outcome("text", new Uint8Array([0xff]))).val, /^the payload is not valid: /);
  assert.deepEqual(await outcome("bytes", new Uint8Array([0xff])), { tag: "ack" });
});

test("an error names its type, its text, its cause, and the lines of the source", async () => {
  const { handle } = await component(`
import { handler } from "hostler";
class OutOfStock extends Error {}
function price(order: any) {
  return order.amount.value;
}
async function weight(order: any) {
  await null;
  return order.amount.value;
}
const cases: Record<string, any> = {
  type: () => price({}),
  behind: async () => weight({}),
  own: () => { throw new OutOfStock("no stock\\n of item 4"); },
  cause: () => { try { price({}); } catch (cause) { throw new Error("charging", { cause }); } },
  text: () => { throw "only text"; },
  object: () => { throw { code: 7 }; },
};
export default handler<{ how: string }>(async ({ how }) => { await cases[how](); });`);
  const fault = async (how) => (await handle({ how })).fault;
  assert.match(await fault("type"), /^Uncaught TypeError: .*\n    at price \(.*handler\.ts:5\)\n    at .*\(.*handler\.ts:12\)/);
  assert.match(await fault("behind"), /^Uncaught TypeError: .*\n    at .*handler\.ts:9\)?/);
  assert.match(await fault("own"), /^Uncaught OutOfStock: no stock of item 4\n    at .*handler\.ts:14/);
  assert.match(await fault("cause"), /^Uncaught Error: charging \(cause: TypeError: .*\)\n/);
  assert.equal(await fault("text"), "Uncaught rejected with only text");
  assert.equal(await fault("object"), 'Uncaught rejected with {"code":7}');
});

test("the functions of hostler are called with what they take, and only those that are used are imported", async () => {
  const calls = [];
  const call =
    (name, answer) =>
    (...values) => {
      const shown = values.map((value) => (value?.buffer ? new TextDecoder().decode(value) : value));
      calls.push(JSON.parse(JSON.stringify([name, ...shown])));
      return answer;
    };
  const publisher = { publish: (queue, { body, headers, delayMs }) => call("publish")(queue, body, headers, delayMs) };
  const stored = new TextEncoder().encode('{"a":1}');
  const store = { get: call("get", stored), set: call("set"), delete: call("delete"), increment: call("increment", 3n) };
  const journal = { recall: (name) => (name === "id" ? stored : null), remember: call("remember") };
  const host = {
    "hostler:handler/journal@1.2.0": journal,
    "hostler:handler/publisher@1.2.0": publisher,
    "hostler:handler/key-value@1.2.0": store,
    "hostler:handler/secrets@1.2.0": { get: call("secret", "s3cret") },
    "wasi:config/store@0.2.0-rc.1": { get: call("config", null) },
    "wasi:logging/logging@0.1.0-draft": { log: call("log") },
  };
  const used = await component(
    `import { config, handler, keyValue, log, publish, recall, remember, secrets } from "hostler";
    export default handler(() => {
      publish("invoices", { a: 1 }, { tenant: "7" }, 50);
      publish("raw", "text");
      keyValue.set("k", { b: 2 }, 1000);
      keyValue.set("raw", new TextEncoder().encode("raw"));
      keyValue.delete("k");
      console.log(JSON.stringify([keyValue.get("k"), keyValue.increment("n"), secrets.get("shop"), config.get("region") ?? "none"]));
      log.warn("slow", { ms: 5 });
      remember("id", { b: recall("id").a });
      remember("none", recall("other") ?? null);
    });`,
    host,
  );
  assert.deepEqual(await used.handle("1"), { tag: "ack" });
  assert.deepEqual(used.lines, ['[{"a":1},3,"s3cret","none"]']);
  const json = ["content-type", "application/json"];
  assert.deepEqual(calls, [
    ["publish", "invoices", '{"a":1}', [json, ["tenant", "7"]], 50],
    ["publish", "raw", "text", [], null],
    ["set", "k", '{"b":2}', 1000],
    ["set", "raw", "raw", null],
    ["delete", "k"],
    ["get", "k"],
    ["increment", "n", 1],
    ["secret", "shop"],
    ["config", "region"],
    ["log", "warn", "", 'slow {"ms":5}'],
    ["remember", "id", '{"b":1}'],
    ["remember", "none", "null"],
  ]);
  assert.deepEqual([...used.imports].sort(), [...Object.keys(host), "wasi:cli/exit@0.2.6"].sort());
  const { imports } = await component('import { handler } from "hostler"; export default handler(() => {});');
  assert.deepEqual(imports, ["wasi:cli/exit@0.2.6"]);
});

test("a held message comes again, and one that is not held says why", async () => {
  const host = (hold) => ({ "hostler:handler/flow@1.2.0": { hold } });
  const source = 'import { handler, hold } from "hostler"; export default handler(() => { throw hold(1500); });';
  const asked = [];
  const held = await component(source, host((ms) => asked.push(ms)));
  assert.deepEqual(await held.handle("1"), { tag: "nack-requeue", val: 1500 });
  assert.deepEqual(asked, [1500]);
  const refused = await component(source, host(() => { throw "it was held too often"; }));
  assert.match((await refused.handle("1")).fault, /^Uncaught rejected with it was held too often/);
  class ComponentError {
    message = "it was held too often";
  }
  const foreign = await component(source, host(() => { throw new ComponentError(); }));
  assert.match((await foreign.handle("1")).fault, /^Uncaught Error: it was held too often/);
});

test("a reply is bytes, text or JSON, and one that is refused says why", async () => {
  const host = (set) => ({ "hostler:handler/reply@1.2.0": { set } });
  const source = 'import { handler, reply } from "hostler"; export default handler((body) => reply(body));';
  const said = [];
  const replying = await component(source, host((value) => said.push(new TextDecoder().decode(value))));
  assert.deepEqual(await replying.handle('{"total":9.5}'), { tag: "ack" });
  assert.deepEqual(await replying.handle('"paid"'), { tag: "ack" });
  assert.deepEqual(said, ['{"total":9.5}', "paid"]);
  const refused = await component(source, host(() => { throw "the reply has 70000 bytes"; }));
  assert.match((await refused.handle("1")).fault, /the reply has 70000 bytes/);
});

test("a handler of raw WIT, and a module without a handler", async () => {
  const raw = await component('export const messageHandler = { async handle(message) { return { tag: "drop", val: message.id }; } };');
  assert.deepEqual(await raw.handle("x"), { tag: "drop", val: "1-0" });
  const wrong = await component("export default () => ({ tag: 'nack' });");
  assert.match((await wrong.handle("x")).fault, /^Uncaught TypeError: handle returned \{"tag":"nack"\}, and not an outcome/);
  await assert.rejects(component("export const other = 1;"), /the module exports no handler/);
});

test("packages that cannot run are refused by the build, with the reason", async () => {
  const imported = (name, engine) => component(`import it from "${name}"; export default () => it;`, {}, engine);
  await assert.rejects(imported("got"), /got cannot run in a handler: it sends requests by modules of Node.js. Take `fetch`, ky or axios/);
  await assert.rejects(imported("pg/lib/client"), /pg cannot run in a handler: it opens sockets/);
  await assert.rejects(imported("@aws-sdk/client-s3", "quickjs"), /client-s3 cannot run in a handler: it needs `fetch`. Build with --engine/);
});

test("the package has the WIT of hostler", async () => {
  const own = await readFile(new URL("../wit/hostler.wit", import.meta.url), "utf8");
  assert.equal(own, await readFile(new URL("../../../../wit/world.wit", import.meta.url), "utf8"));
});
