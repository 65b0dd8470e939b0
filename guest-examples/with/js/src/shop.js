// @with secrets
// Knows who may send orders.

import secrets from "hostler:handler/secrets@1.2.0";

import { Drop } from "./order.js";

/** Compare the token of the message with the secret. */
export function check(message) {
  const secret = secrets.get("shop");
  const isRight = message.headers.some(([name, value]) => name === "x-shop-token" && value === secret);
  if (!isRight) throw new Drop("the token of the shop is wrong");
}
// @end
