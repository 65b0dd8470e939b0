// Reads orders. This file does not depend on WebAssembly, so `npm test` runs it directly.

import { decode } from "./utf8.js";

/** The order can never be done. The message is the reason. */
export class Drop extends Error {}

/** Something failed that may work later. */
export class Later extends Error {}

// A part of a key: 1 to 64 letters, digits and `-`.
const NAME = /^[A-Za-z0-9-]{1,64}$/;

/** Read an order. Throws a Drop if it is not one. */
export function read(body) {
  const { id, customer, cents } = parse(body) ?? {};
  const isOrder =
    [id, customer].every((name) => typeof name === "string" && NAME.test(name)) &&
    Number.isInteger(cents) && cents >= 0 && cents < 2 ** 32;
  if (!isOrder) throw new Drop("not an order");
  if (cents === 0) throw new Drop(`order ${id}: nothing to charge`);
  return { id, customer, cents };
}

function parse(body) {
  try {
    return JSON.parse(decode(body));
  } catch {
    return null;
  }
}

/** What others get to know about an order. */
export function json({ id, customer, cents }) {
  return JSON.stringify({ order: id, customer, cents });
}
