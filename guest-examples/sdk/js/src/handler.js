import { Drop, RetryAfter } from "./errors.js";
import { decode } from "./values.js";

/** The payload is the body as text. */
export const text = { decode };

/** The payload is the body, byte for byte. */
export const bytes = { decode: (body) => body };

/** Make a handler of a function, and of what it takes. */
export function handler(...args) {
  const [schema, run] = args.length > 1 ? args : [undefined, args[0]];
  if (typeof run !== "function") throw new TypeError("handler takes a schema, or none, and a function");
  return async (raw) => {
    try {
      await run(await payload(schema, raw.body), message(raw));
      return { tag: "ack" };
    } catch (error) {
      if (error instanceof Drop) return { tag: "drop", val: error.message };
      if (!(error instanceof RetryAfter)) throw error;
      console.log(`retry: ${error.message}`);
      return { tag: "nack-requeue", val: Math.max(0, Math.round(error.ms)) };
    }
  };
}

// A payload that is not valid is not valid in the next attempt either.
async function payload(schema, body) {
  let value;
  try {
    if (schema?.decode && !schema.parse) return schema.decode(body);
    value = JSON.parse(decode(body));
  } catch (error) {
    throw new Drop(`the payload is not valid: ${error.message}`);
  }
  if (!schema) return value;
  const standard = schema["~standard"];
  if (standard) {
    const { issues, value: valid } = await standard.validate(value);
    if (issues) throw new Drop(`the payload is not valid: ${issues.slice(0, 3).map(issue).join("; ")}`);
    return valid;
  }
  try {
    return schema.parse(value);
  } catch (error) {
    throw new Drop(`the payload is not valid: ${error.message}`);
  }
}

function issue({ path = [], message }) {
  const place = path.map((part) => part?.key ?? part).join(".");
  return place ? `${place}: ${message}` : message;
}

function message(raw) {
  return {
    id: raw.id,
    queue: raw.queue,
    body: raw.body,
    headers: Object.fromEntries(raw.headers),
    attempt: raw.attempt,
    maxAttempts: raw.maxAttempts,
    enqueuedMs: Number(raw.enqueuedMs),
  };
}
