const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Bytes and text stay as they are. Everything else is JSON. */
export function encode(value) {
  if (ArrayBuffer.isView(value)) return value;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (text === undefined) throw new TypeError(`${typeof value} has no JSON`);
  return encoder.encode(text);
}

/** Text of bytes. Throws if they are not UTF-8. */
export const decode = (value) => decoder.decode(value);
