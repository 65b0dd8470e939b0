// A handler: it acks every message.

import type { Message, Outcome } from "hostler:handler/types@1.2.0";

export const messageHandler = {
  handle(message: Message): Outcome {
    return { tag: "ack" };
  },
};
