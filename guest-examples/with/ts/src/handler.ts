// A handler for orders. order.ts reads them; this file connects the parts to hostler.

import type { Message, Outcome } from "hostler:handler/types@1.2.0";

// @with http
import { charge } from "./charge";
// @end
// @with publish
import { publish } from "./invoice";
// @end
import { log } from "./log";
import { Drop, Later, json, read } from "./order";
// @with secrets
import { check } from "./shop";
// @end
// @with key-value
import { add } from "./total";
// @end

export const messageHandler = {
  handle(message: Message): Outcome {
    try {
      fulfil(message);
      return { tag: "ack" };
    } catch (problem) {
      return outcome(problem);
    }
  },
};

/** Do everything for an order. */
function fulfil(message: Message): void {
  // @with secrets
  check(message);
  // @end
  const order = read(message.body);
  // @with http
  charge(order);
  // @end
  // @with key-value
  add(order);
  // @end
  // @with publish
  publish(order);
  // @end
  log(`done: ${json(order)}`);
}

/** The outcome of an order that is not done. */
function outcome(problem: unknown): Outcome {
  if (problem instanceof Drop) return { tag: "drop", val: problem.message };
  // The functions of hostler throw an Error whose payload is a text, or `{ tag: "timeout" }` and the like.
  const isFromHostler = problem instanceof Error && "payload" in problem;
  // A bug: hostler counts a failed attempt.
  if (!isFromHostler && !(problem instanceof Later)) throw problem;
  log(`later: ${isFromHostler ? JSON.stringify(problem.payload) : problem.message}`);
  // The message comes again, after the backoff of the queue.
  return { tag: "nack-requeue", val: null };
}
