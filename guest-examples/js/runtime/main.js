// What hostler calls. The build begins with this file.

import { loaded, settled } from "./async.js";
import { forget } from "./random.js";
import { messageHandler as handler } from "../src/handler.js";

const OUTCOMES = ["ack", "nack-requeue", "drop"];

export const messageHandler = {
  handle(message) {
    const outcome = settled(() => handler.handle(message));
    if (OUTCOMES.includes(outcome?.tag)) return outcome;
    throw new TypeError(`handle returned ${JSON.stringify(outcome)}, and not an outcome such as { tag: "ack" }`);
  },
};

loaded();
forget();
