// Random numbers. QuickJS draws a seed when the component is built: its `Math.random` gives each message the same numbers.

import random from "wasi:random/random@0.2.6";

// Random numbers of 32 bits. A message must not get those that were drawn when the component was built.
let drawn = [];

/** Draw the next numbers anew. */
export function forget() {
  drawn = [];
}

function next() {
  if (drawn.length === 0) drawn = [...new Uint32Array(random.getRandomBytes(128).buffer)];
  return drawn.pop();
}

// The 53 bits of the fraction of a number.
Math.random = () => ((next() >>> 5) * 2 ** 26 + (next() >>> 6)) / 2 ** 53;

// The host gives at most so many bytes at a time, by default. It is also the limit of the standard.
const BYTES_MAX = 65_536;

globalThis.crypto = {
  getRandomValues(array) {
    const isView = ArrayBuffer.isView(array) && !(array instanceof DataView);
    if (!isView || /^Float/.test(array[Symbol.toStringTag])) throw new TypeError("not an array of integers");
    const { buffer, byteOffset, byteLength } = array;
    if (byteLength > BYTES_MAX) throw new RangeError(`more than ${BYTES_MAX} bytes at once`);
    new Uint8Array(buffer, byteOffset, byteLength).set(random.getRandomBytes(byteLength));
    return array;
  },

  randomUUID() {
    const bytes = random.getRandomBytes(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  },
};
