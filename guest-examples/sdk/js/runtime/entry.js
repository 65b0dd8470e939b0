// What hostler calls.

import { asError } from "./error.js";
import { loaded, settled } from "./promise.js";

const OUTCOMES = ["ack", "nack-requeue", "drop"];

/** The export of the component, of what the module of the handler exports, and of the functions of the engine. */
export function entry(module, { ended, fail, forget }) {
  const handler = module.default ?? module.messageHandler;
  const handle = typeof handler === "function" ? handler : handler?.handle?.bind(handler);
  if (!handle) throw new Error("the module exports no handler: `export default handler(async (payload) => { ... })`");
  loaded();
  forget();
  const conclude = ({ error, value }) => {
    ended();
    if (error === undefined && OUTCOMES.includes(value?.tag)) return value;
    const given = () => `handle returned ${JSON.stringify(value)}, and not an outcome such as { tag: "ack" }`;
    return fail(asError(error ?? new TypeError(given())));
  };
  return {
    handle: (message) => settled(() => handle(message), conclude),
  };
}
