import publisher from "hostler:handler/publisher@1.2.0";

import { encode } from "./values.js";

/** Publish a message together with the acknowledgement: both happen, or neither. */
export function publish(queue, value, headers = {}, delayMs = undefined) {
  const sent = { ...(typeof value === "object" && !(ArrayBuffer.isView(value)) && { "content-type": "application/json" }), ...headers };
  publisher.publish(queue, { body: encode(value), headers: Object.entries(sent), delayMs });
}
