// UTF-8, for QuickJS.

export class TextDecoder {
  encoding = "utf-8";
  #isFatal;

  constructor(label = "utf-8", { fatal = false } = {}) {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`${label} is not supported`);
    this.#isFatal = fatal;
  }

  decode(input = new Uint8Array()) {
    const bytes = ArrayBuffer.isView(input)
      ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength)
      : new Uint8Array(input);
    const pieces = [];
    let units = [];
    for (let at = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0; at < bytes.length; ) {
      const first = bytes[at++];
      const more = first < 0x80 ? 0 : first < 0xc2 || first > 0xf4 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
      let point = more > 0 ? first & (0x3f >> more) : first;
      // What a second byte may be, so that no text has two forms and none has half a surrogate pair.
      let least = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
      let most = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
      let left = more;
      while (left > 0 && bytes[at] >= least && bytes[at] <= most) {
        point = (point << 6) | (bytes[at++] & 0x3f);
        [least, most] = [0x80, 0xbf];
        left -= 1;
      }
      if (left !== 0) {
        if (this.#isFatal) throw new TypeError("not UTF-8");
        point = 0xfffd;
      }
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
}

export class TextEncoder {
  encoding = "utf-8";

  encode(text = "") {
    const bytes = [];
    for (const character of String(text)) {
      let point = character.codePointAt(0);
      if (point >= 0xd800 && point <= 0xdfff) point = 0xfffd;
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
}
