// QuickJS has no console, so this file imports standard output.

import stdout from "wasi:cli/stdout@0.2.6";

import { encode } from "./utf8";

// A stream accepts at most 4096 bytes at a time.
const CHUNK = 4096;

/** Write one line. It becomes an event of the host's log. */
export function log(line: string): void {
  const bytes = encode(`${line}\n`);
  const output = stdout.getStdout();
  for (let at = 0; at < bytes.length; at += CHUNK) {
    output.blockingWriteAndFlush(bytes.subarray(at, at + CHUNK));
  }
}
