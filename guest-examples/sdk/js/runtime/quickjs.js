// What QuickJS lacks.

import stdout from "wasi:cli/stdout@0.2.6";

import "./promise.js";
import { forget } from "./random.js";
import { TextDecoder, TextEncoder } from "./text.js";

globalThis.TextDecoder ??= TextDecoder;
globalThis.TextEncoder ??= TextEncoder;
globalThis.self ??= globalThis;

// A stream takes at most so many bytes at a time.
const CHUNK = 4096;

const shown = (value) => {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
};

function print(...values) {
  const bytes = new TextEncoder().encode(`${values.map(shown).join(" ")}\n`);
  const output = stdout.getStdout();
  for (let at = 0; at < bytes.length; at += CHUNK) output.blockingWriteAndFlush(bytes.subarray(at, at + CHUNK));
}

globalThis.console = { log: print, info: print, warn: print, error: print, debug: print, trace: print };

/** A failed attempt. The runtime of QuickJS shows the message and the stack. */
export function fail(error) {
  throw error;
}

/** Nothing outlives a message here. */
export function ended() {}

export { forget };
