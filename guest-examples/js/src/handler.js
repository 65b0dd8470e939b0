// A handler for orders. order.js decides; this file connects it to hostler.

import { log } from "./log.js";
import * as order from "./order.js";

export const messageHandler = {
  handle(message) {
    const verdict = order.handle(message.body, message.attempt);
    log(`attempt ${message.attempt}: ${order.show(verdict)}`);
    switch (verdict.kind) {
      case "again":
        return { tag: "nack-requeue", val: verdict.delayMs };
      case "reject":
        return { tag: "drop", val: verdict.reason };
      default:
        return { tag: "ack" };
    }
  },
};
