// Reads orders. This file does not depend on WebAssembly, so `npm test` runs it directly.

import { decode } from "./utf8";

/** The order can never be done. The message is the reason. */
export class Drop extends Error {}

/** Something failed that may work later. */
export class Later extends Error {}

/** An order, as a shop sends it. */
export interface Order {
  id: string;
  customer: string;
  cents: number;
}

// A part of a key: 1 to 64 letters, digits and `-`.
const NAME = /^[A-Za-z0-9-]{1,64}$/;

/** Read an order. Throws a Drop if it is not one. */
export function read(body: Uint8Array): Order {
  const order = parse(body);
  if (!isOrder(order)) throw new Drop("not an order");
  if (order.cents === 0) throw new Drop(`order ${order.id}: nothing to charge`);
  return order;
}

function parse(body: Uint8Array): unknown {
  try {
    return JSON.parse(decode(body));
  } catch {
    return null;
  }
}

function isOrder(value: unknown): value is Order {
  const { id, customer, cents } = (value ?? {}) as Partial<Record<string, unknown>>;
  const isName = (name: unknown) => typeof name === "string" && NAME.test(name);
  const isCents = typeof cents === "number" && Number.isInteger(cents) && cents >= 0 && cents < 2 ** 32;
  return isName(id) && isName(customer) && isCents;
}

/** What others get to know about an order. */
export function json({ id, customer, cents }: Order): string {
  return JSON.stringify({ order: id, customer, cents });
}
