// @with key-value
// Remembers how much each customer has ordered.

import keyValue from "hostler:handler/key-value@1.2.0";

import type { Order } from "./order";
import { decode, encode } from "./utf8";

/** The sum is written together with the acknowledgement: each order counts once. */
export function add(order: Order): void {
  const key = `total:${order.customer}`;
  const known = keyValue.get(key);
  const sum = Number(known ? decode(known) : 0) + order.cents;
  keyValue.set(key, encode(`${sum}`), null);
  // A customer who orders needs no reminder. It goes with the acknowledgement, too.
  keyValue.delete(`reminder:${order.customer}`);
  // At once: an order that is handled twice counts twice.
  keyValue.increment("attempts", 1);
}
// @end
