// The SDK of handlers in JavaScript and TypeScript.

export { bytes, handler, text } from "./handler.js";
export { Drop, RetryAfter } from "./errors.js";
export { publish } from "./publish.js";
export { keyValue } from "./key-value.js";
export { hold } from "./hold.js";
export { reply } from "./reply.js";
export { recall, remember } from "./journal.js";
export { secrets } from "./secrets.js";
export { config } from "./config.js";
export { deadline } from "./deadline.js";
export { log } from "./log.js";
