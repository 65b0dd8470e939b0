// What happens to an order. Nothing here knows WebAssembly: `npm test` runs it as it is.

import { decode } from "./utf8.js";

/** The longest wait between two attempts, in milliseconds. */
export const DELAY_MAX = 10_000;

/** Charge an order. `attempt` is 1 the first time. */
export function handle(body, attempt) {
  const order = parse(body);
  if (!order) return { kind: "reject", reason: "not an order" };
  const reject = (why) => ({ kind: "reject", reason: `order ${order.id}: ${why}` });

  if (!(order.amount > 0)) return reject("nothing to charge");
  if (!/^[A-Z]{3}$/.test(order.currency)) return reject(`\`${order.currency}\` is no currency`);
  if (order.status === "cancelled") return reject("it was cancelled");
  // What goes wrong, to try things out.
  if (order.simulate === "payment-timeout" && attempt <= order.failures) {
    return { kind: "again", delayMs: delay(attempt) };
  }
  // A bug that no second attempt cures: the host counts it as a failed attempt.
  if (order.simulate === "crash") throw new Error(`order ${order.id} hit a bug`);
  return { kind: "ack" };
}

/** A verdict in words. */
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

/** Twice as long after every attempt, in milliseconds. */
export function delay(attempt) {
  return Math.min(100 * 2 ** Math.min(attempt - 1, 10), DELAY_MAX);
}

/** The order, if the body is one. */
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

/** `XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`. */
function textOrNumber(value) {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && isWhole(value) ? value : "";
}

/** JSON can escape half a character; what is not Unicode could not be answered. */
function isWhole(text) {
  return !/\p{Surrogate}/u.test(text);
}

/** The number that a text is, or NaN. */
function number(text) {
  return /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text) ? Number(text) : NaN;
}
