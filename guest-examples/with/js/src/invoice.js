// @with publish
// Publishes an invoice.

import publisher from "hostler:handler/publisher@1.2.0";

import { json } from "./order.js";
import { encode } from "./utf8.js";

/** The invoice appears together with the acknowledgement: once for each order, or not at all. */
export function publish(order) {
  publisher.publish("invoices", {
    body: encode(json(order)),
    headers: [["content-type", "application/json"]],
    delayMs: null,
  });
}
// @end
