// @with secrets
// Knows who may send orders.

import secrets from "hostler:handler/secrets@1.2.0";
import type { Message } from "hostler:handler/types@1.2.0";

import { Drop } from "./order";

/** Compare the token of the message with the secret. */
export function check(message: Message): void {
  const secret = secrets.get("shop");
  const isRight = message.headers.some(([name, value]) => name === "x-shop-token" && value === secret);
  if (!isRight) throw new Drop("the token of the shop is wrong");
}
// @end
