// QuickJS has no TextDecoder and no TextEncoder.

/** Decode bytes. Throws an Error if they are not UTF-8. */
export function decode(bytes) {
  const pieces = [];
  let units = [];
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at++];
    const more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (more && (first < 0xc2 || first > 0xf4 || at + more > bytes.length)) throw new Error("not UTF-8");
    let point = more ? first & (0x3f >> more) : first;
    for (let i = 0; i < more; i++) {
      const next = bytes[at++];
      if ((next & 0xc0) !== 0x80) throw new Error("not UTF-8");
      point = (point << 6) | (next & 0x3f);
    }
    const isLong = (more === 2 && point < 0x800) || (more === 3 && point < 0x10000);
    if (isLong || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) throw new Error("not UTF-8");
    if (point < 0x10000) units.push(point);
    else units.push(0xd7c0 + (point >> 10), 0xdc00 | (point & 0x3ff));
    if (units.length >= 4096) {
      pieces.push(String.fromCharCode.apply(null, units));
      units = [];
    }
  }
  pieces.push(String.fromCharCode.apply(null, units));
  return pieces.join("");
}

/** Encode text as UTF-8. */
export function encode(text) {
  const bytes = [];
  for (const character of text) {
    const point = character.codePointAt(0);
    if (point < 0x80) bytes.push(point);
    else if (point < 0x800) bytes.push(0xc0 | (point >> 6), 0x80 | (point & 0x3f));
    else if (point < 0x10000) bytes.push(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 0x3f), 0x80 | (point & 0x3f));
    else
      bytes.push(
        0xf0 | (point >> 18),
        0x80 | ((point >> 12) & 0x3f),
        0x80 | ((point >> 6) & 0x3f),
        0x80 | (point & 0x3f),
      );
  }
  return new Uint8Array(bytes);
}
