// Decides about an order. This file does not depend on WebAssembly, so `npm test` runs it directly.

import { decode } from "./utf8";

/** The longest delay between two attempts, in milliseconds. */
export const DELAY_MAX = 10_000;

export type Verdict = { kind: "ack" } | { kind: "again"; delayMs: number } | { kind: "reject"; reason: string };

interface Order {
  id: string;
  amount: number;
  currency: string;
  status: string;
  /** What to simulate: `payment-timeout`, `random` or `crash`. */
  simulate: string;
  /** How many attempts fail with `payment-timeout`. */
  failures: number;
}

class NotAnOrder extends Error {}

/** Charge an order. `attempt` is 1 the first time. */
export function handle(body: Uint8Array, attempt: number): Verdict {
  let order: Order;
  try {
    order = parse(body);
  } catch {
    return { kind: "reject", reason: "not an order" };
  }
  const reject = (why: string): Verdict => ({ kind: "reject", reason: `order ${order.id}: ${why}` });

  if (!(order.amount > 0)) return reject("nothing to charge");
  if (!/^[A-Z]{3}$/.test(order.currency)) return reject(`\`${order.currency}\` is not a currency`);
  if (order.status === "cancelled") return reject("it was cancelled");
  if (order.simulate === "payment-timeout" && attempt <= order.failures) {
    return { kind: "again", delayMs: delay(attempt) };
  }
  // No other message gets this number.
  if (order.simulate === "random") return reject(`drew ${Math.random()}`);
  // A bug that a second attempt does not cure. The host counts a failed attempt.
  if (order.simulate === "crash") throw new Error(`order ${order.id} hit a bug`);
  return { kind: "ack" };
}

/** The log text of a verdict. */
export function show(verdict: Verdict): string {
  switch (verdict.kind) {
    case "ack":
      return "charged";
    case "again":
      return `payment timed out, again in ${verdict.delayMs} ms`;
    case "reject":
      return verdict.reason;
  }
}

/** The delay doubles after every attempt, in milliseconds. */
export function delay(attempt: number): number {
  return Math.min(100 * 2 ** Math.min(attempt - 1, 10), DELAY_MAX);
}

function parse(body: Uint8Array): Order {
  const json: unknown = JSON.parse(decode(body));
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw new NotAnOrder("it is not an object");
  const fields = json as Record<string, unknown>;
  return {
    id: textOrNumber(fields["id"]),
    amount: number(textOrNumber(fields["amount"])),
    currency: text(fields["currency"] ?? "EUR"),
    status: text(fields["status"] ?? ""),
    simulate: text(fields["simulate"] ?? ""),
    failures: count(fields["failures"] === undefined ? 1 : fields["failures"]),
  };
}

/** `XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`, so text and numbers are accepted. */
function textOrNumber(value: unknown): string {
  const given = typeof value === "number" ? String(value) : text(value);
  if (given === "") throw new NotAnOrder("a field is empty");
  return given;
}

/** JSON can escape half a character. Such text is not valid Unicode, so an answer could not contain it. */
function text(value: unknown): string {
  if (typeof value !== "string" || /\p{Surrogate}/u.test(value)) throw new NotAnOrder("a field is not text");
  return value;
}

function number(text: string): number {
  const value = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text) ? Number(text) : NaN;
  if (!Number.isFinite(value)) throw new NotAnOrder(`${text} is not a number`);
  return value;
}

function count(value: unknown): number {
  const isCount = typeof value === "number" && Number.isInteger(value) && value >= 0 && value < 2 ** 32;
  if (!isCount) throw new NotAnOrder("a field is not a count");
  return value;
}
