// The report of a failure: its type, its text, and where in the handler's own sources it was. Hostler makes the cause of
// a dead letter of it.

// Functions that are named, innermost first.
const FRAMES_MAX = 4;

/** An error with type and text as its message, and with the handler's own functions as its stack. */
export function asError(reason) {
  const error = new Error(text(reason));
  error.stack = frames(reason).join("\n");
  return error;
}

/** Those that StarlingMonkey throws for a refused call of the host are errors of another global object. */
function isError(reason) {
  return reason instanceof Error || typeof reason?.message === "string";
}

function text(reason, depth = 0) {
  if (!isError(reason)) return `rejected with ${typeof reason === "object" ? json(reason) : String(reason)}`;
  const type = reason.name === "Error" ? reason.constructor?.name : reason.name;
  const said = `${type || "Error"}: ${reason.message}`;
  return isError(reason.cause) && depth < 3 ? `${said} (cause: ${text(reason.cause, depth + 1)})` : said;
}

function json(value) {
  try {
    return JSON.stringify(value);
  } catch {
    return String(value);
  }
}

// `price@handler.js:5:49`, or `    at price (/build/handler.js:5:49)`.
const FRAME = /^\s*(?:at )?(?:async\*)?(.*?)[@ ]?\(?[^@( ]*:(\d+):(\d+)\)?$/;

function frames(reason) {
  const found = [];
  let last;
  for (const line of String(reason?.stack ?? "").split("\n")) {
    const frame = FRAME.exec(line);
    const place = frame && source(Number(frame[2]), Number(frame[3]));
    if (!place) continue;
    // The build makes functions inside of functions: `price/<`. And the module is `handler_default`.
    const parts = frame[1].replace(/<anonymous>/, "").split(/[/<.]+/).filter(Boolean);
    const name = (parts.pop() ?? "").replace(/_default$/, "");
    // The constructor of the error, or the function around a function of the build.
    if (name !== "" && (name === last || name === reason.constructor?.name)) continue;
    last = name;
    found.push(name ? `    at ${name} (${place})` : `    at ${place}`);
    if (found.length === FRAMES_MAX) break;
  }
  return found;
}

/** The place in a source of the handler; `undefined` = it is in a package, or in this runtime. */
function source(line, column) {
  // The build adds the table: for each line of the bundle, the columns at which another place begins.
  const map = globalThis[Symbol.for("hostler.sources")];
  if (!map) return undefined;
  const places = map.lines[line] ?? [];
  const place = places.findLast(([from]) => from < column);
  return place && place[1] >= 0 ? `${map.sources[place[1]]}:${place[2]}` : undefined;
}
