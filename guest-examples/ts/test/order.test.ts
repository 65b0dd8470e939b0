import assert from "node:assert/strict";
import { test } from "node:test";

import { delay, DELAY_MAX, handle, type Verdict } from "../src/order";
import { decode, encode } from "../src/utf8";

const bytes = (text: string) => new TextEncoder().encode(text);
const dropped = (reason: string): Verdict => ({ kind: "reject", reason });

test("good orders are acked", () => {
  const bodies = [
    '{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid"}',
    '{"id":1,"amount":5}',
    // All fields of a stream entry are text.
    '{"id":"1","amount":"5"}',
  ];
  for (const body of bodies) assert.deepEqual(handle(bytes(body), 1), { kind: "ack" });
});

test("a payment that times out is tried again with growing delays", () => {
  const body = bytes('{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":3}');
  for (const [attempt, delayMs] of [[1, 100], [2, 200], [3, 400]] as const) {
    assert.deepEqual(handle(body, attempt), { kind: "again", delayMs });
  }
  assert.deepEqual(handle(body, 4), { kind: "ack" });
  assert.equal(delay(2 ** 32 - 1), DELAY_MAX);
});

test("bodies that are not orders are dropped", () => {
  const bodies = ["", "hello", "[]", "null", "{}", '{"id":"o-3"}', '{"id":"","amount":1}', '{"id":"\\ud800","amount":1}'];
  for (const body of bodies) assert.deepEqual(handle(bytes(body), 1), dropped("not an order"), body);
  assert.deepEqual(handle(new Uint8Array([0xff]), 1), dropped("not an order"));
});

test("orders that cannot be charged are dropped with a reason", () => {
  const cases: [body: string, reason: string][] = [
    ['{"id":"o-4","amount":0}', "order o-4: nothing to charge"],
    ['{"id":5,"amount":1,"status":"cancelled"}', "order 5: it was cancelled"],
    ['{"id":"o-6","amount":1,"currency":"euros"}', "order o-6: `euros` is not a currency"],
  ];
  for (const [body, reason] of cases) assert.deepEqual(handle(bytes(body), 1), dropped(reason));
});

test("a bug crashes", () => {
  assert.throws(() => handle(bytes('{"id":"o-7","amount":1,"simulate":"crash"}'), 1), /o-7 hit a bug/);
});

test("UTF-8 is read and written as everywhere", () => {
  const text = "a é ☕ 😀 \u0000 \u07ff \u0800 \uffff \u{10ffff}".repeat(500);
  assert.deepEqual(encode(text), bytes(text));
  assert.equal(decode(bytes(text)), text);
  const wrong = [[0x80], [0xc0, 0x80], [0xe0, 0x80, 0x80], [0xed, 0xa0, 0x80], [0xf0, 0x80, 0x80, 0x80], [0xf5, 0, 0, 0], [0xe2, 0x82]];
  for (const bad of wrong) assert.throws(() => decode(new Uint8Array(bad)), /not UTF-8/);
});
