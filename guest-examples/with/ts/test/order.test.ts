import assert from "node:assert/strict";
import test from "node:test";

import { Drop, json, read } from "../src/order";

const body = (text: string) => new TextEncoder().encode(text);

test("an order is read and written", () => {
  const order = read(body('{"id":"o-1","customer":"c-7","cents":4250,"note":"x"}'));
  assert.equal(json(order), '{"order":"o-1","customer":"c-7","cents":4250}');
});

test("other bodies are dropped with a reason", () => {
  const cases: [text: string, reason: string][] = [
    ["", "not an order"],
    ["hello", "not an order"],
    ["null", "not an order"],
    ['{"id":"o-1","cents":1}', "not an order"],
    ['{"id":"o 1","customer":"c","cents":1}', "not an order"],
    ['{"id":"o","customer":"c","cents":-1}', "not an order"],
    ['{"id":"o","customer":"c","cents":0}', "order o: nothing to charge"],
  ];
  for (const [text, reason] of cases) {
    assert.throws(() => read(body(text)), new Drop(reason), text);
  }
});
