// A handler for orders. order.ts decides; this file connects it to hostler.

import type { Message, Outcome } from "hostler:handler/types@1.2.0";

import { log } from "./log";
import * as order from "./order";

export const messageHandler = {
  handle(message: Message): Outcome {
    const verdict = order.handle(message.body, message.attempt);
    log(`attempt ${message.attempt}: ${order.show(verdict)}`);
    switch (verdict.kind) {
      case "ack":
        return { tag: "ack" };
      case "again":
        return { tag: "nack-requeue", val: verdict.delayMs };
      case "reject":
        return { tag: "drop", val: verdict.reason };
    }
  },
};
