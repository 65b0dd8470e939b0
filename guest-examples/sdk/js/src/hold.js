import flow from "hostler:handler/flow@1.2.0";

import { RetryAfter } from "./errors.js";

export function hold(ms) {
  flow.hold(ms);
  return new RetryAfter(ms);
}
