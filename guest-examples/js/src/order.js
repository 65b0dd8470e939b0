// Decides about an order. This file does not depend on WebAssembly, so `npm test` runs it directly.

import { decode } from "./utf8.js";

/** The longest delay between two attempts, in milliseconds. */
export const DELAY_MAX = 10_000;

/** Charge an order. `attempt` is 1 the first time. */
export function handle(body, attempt) {
  const order = parse(body);
  if (!order) return { kind: "reject", reason: "not an order" };
  const reject = (why) => ({ kind: "reject", reason: `order ${order.id}: ${why}` });

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
export function show(verdict) {
  switch (verdict.kind) {
    case "again":
      return `payment timed out, again in ${verdict.delayMs} ms`;
    case "reject":
      return verdict.reason;
    default:
      return "charged";
  }
}

/** The delay doubles after every attempt, in milliseconds. */
export function delay(attempt) {
  return Math.min(100 * 2 ** Math.min(attempt - 1, 10), DELAY_MAX);
}

/** Parse an order. Returns null if the body is not an order. */
function parse(body) {
  let fields;
  try {
    fields = JSON.parse(decode(body));
  } catch {
    return null;
  }
  if (typeof fields !== "object" || fields === null || Array.isArray(fields)) return null;
  const order = {
    id: textOrNumber(fields.id),
    amount: number(textOrNumber(fields.amount)),
    currency: fields.currency ?? "EUR",
    status: fields.status ?? "",
    simulate: fields.simulate ?? "",
    failures: fields.failures === undefined ? 1 : fields.failures,
  };
  const texts = [order.currency, order.status, order.simulate];
  const isOrder =
    order.id &&
    Number.isFinite(order.amount) &&
    texts.every((text) => typeof text === "string" && isWhole(text)) &&
    Number.isInteger(order.failures) &&
    order.failures >= 0 &&
    order.failures < 2 ** 32;
  return isOrder ? order : null;
}

/** `XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`, so text and numbers are accepted. */
function textOrNumber(value) {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && isWhole(value) ? value : "";
}

/** JSON can escape half a character. Such text is not valid Unicode, so an answer could not contain it. */
function isWhole(text) {
  return !/\p{Surrogate}/u.test(text);
}

/** The number in a text, or NaN. */
function number(text) {
  return /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text) ? Number(text) : NaN;
}
