// @with http
// Charges an order by HTTP.

import http from "hostler:handler/http@1.2.0";

import { Drop, Later, json } from "./order.js";
import { encode } from "./utf8.js";

// `hostler.toml` grants this URL.
const CHARGES = "https://payments.example.com/charges";

/** hostler adds an idempotency key, the same in every attempt at this order: no order is paid twice. */
export function charge(order) {
  // It throws if there is no answer: the payload of the Error is `{ tag: "timeout" }` or the like.
  const { status } = http.fetch({
    method: "POST",
    url: CHARGES,
    headers: [["content-type", encode("application/json")]],
    body: encode(json(order)),
    timeoutMs: null,
  });
  if (status >= 200 && status < 300) return;
  if (status >= 400 && status < 500) throw new Drop(`order ${order.id}: the payment was declined (${status})`);
  throw new Later(`the payment server answered ${status}`);
}
// @end
