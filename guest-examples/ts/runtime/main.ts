// What hostler calls. The build begins with this file.

import type { Message, MessageHandler, Outcome } from "hostler:handler/types@1.2.0";

import { loaded, settled } from "./async.js";
import { forget } from "./random.js";
import { messageHandler as own } from "../src/handler";

const handler: MessageHandler = own;

const OUTCOMES = ["ack", "nack-requeue", "drop"];

export const messageHandler = {
  handle(message: Message): Outcome {
    const outcome = settled(() => handler.handle(message));
    if (OUTCOMES.includes(outcome?.tag)) return outcome;
    throw new TypeError(`handle returned ${JSON.stringify(outcome)}, and not an outcome such as { tag: "ack" }`);
  },
};

loaded();
forget();
