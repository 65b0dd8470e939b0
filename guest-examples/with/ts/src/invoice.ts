// @with publish
// Publishes an invoice.

import publisher from "hostler:handler/publisher@1.2.0";

import { type Order, json } from "./order";
import { encode } from "./utf8";

/** The invoice appears together with the acknowledgement: once for each order, or not at all. */
export function publish(order: Order): void {
  publisher.publish("invoices", {
    body: encode(json(order)),
    headers: [["content-type", "application/json"]],
    delayMs: null,
  });
}
// @end
