// The parts of Node's crypto that need no keys: digests, HMAC, random numbers. For keys there is `crypto.subtle`.

import { hmac } from "@noble/hashes/hmac";
import { md5, sha1 } from "@noble/hashes/legacy";
import { sha224, sha256, sha384, sha512 } from "@noble/hashes/sha2";
import { Buffer } from "buffer/";

const HASHES = { md5, sha1, sha224, sha256, sha384, sha512 };

function hashOf(name) {
  const hash = HASHES[String(name).toLowerCase().replace("-", "")];
  if (!hash) throw new Error(`the digest ${name} is not there: ${Object.keys(HASHES).join(", ")} are`);
  return hash;
}

const bytesOf = (data, encoding) => (typeof data === "string" ? Buffer.from(data, encoding) : new Uint8Array(data.buffer ?? data, data.byteOffset, data.byteLength));

class Digest {
  #state;
  constructor(state) {
    this.#state = state;
  }
  update(data, encoding) {
    this.#state.update(bytesOf(data, encoding));
    return this;
  }
  digest(encoding) {
    const bytes = Buffer.from(this.#state.digest());
    return encoding && encoding !== "buffer" ? bytes.toString(encoding) : bytes;
  }
}

export const createHash = (name) => new Digest(hashOf(name).create());
export const createHmac = (name, key) => new Digest(hmac.create(hashOf(name), bytesOf(key instanceof KeyObject ? key.export() : key)));
export const randomUUID = () => crypto.randomUUID();
export const getRandomValues = (array) => crypto.getRandomValues(array);
export const randomFillSync = (array) => crypto.getRandomValues(array);
export const getHashes = () => Object.keys(HASHES);
export const webcrypto = globalThis.crypto;
export const subtle = globalThis.crypto?.subtle;

export function randomBytes(size, callback) {
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
  if (!callback) return bytes;
  queueMicrotask(() => callback(null, bytes));
}

export function randomInt(from, to) {
  const [low, high] = to === undefined ? [0, from] : [from, to];
  return low + Math.floor(Math.random() * (high - low));
}

export function timingSafeEqual(a, b) {
  const [left, right] = [bytesOf(a), bytesOf(b)];
  if (left.length !== right.length) throw new RangeError("Input buffers must have the same byte length");
  let difference = 0;
  for (let at = 0; at < left.length; at += 1) difference |= left[at] ^ right[at];
  return difference === 0;
}

const missing = (name) => () => {
  throw new Error(`crypto.${name} of Node.js does not exist in a handler: use crypto.subtle`);
};
const names = ["createCipheriv", "createDecipheriv", "createPrivateKey", "createPublicKey", "createSign", "createVerify", "generateKeyPairSync", "pbkdf2Sync", "scryptSync", "sign", "verify"];
const absent = Object.fromEntries(names.map((name) => [name, missing(name)]));
export const { createCipheriv, createDecipheriv, createPrivateKey, createPublicKey, createSign, createVerify, generateKeyPairSync, pbkdf2Sync, scryptSync, sign, verify } = absent;

/** A secret key: there are no others. */
export class KeyObject {
  type = "secret";
  #bytes;
  constructor(bytes) {
    this.#bytes = bytes;
  }
  export() {
    return Buffer.from(this.#bytes);
  }
}

export const createSecretKey = (key, encoding) => new KeyObject(bytesOf(key, encoding));

export default { ...absent, KeyObject, createHash, createHmac, createSecretKey, getHashes, getRandomValues, randomBytes, randomFillSync, randomInt, randomUUID, subtle, timingSafeEqual, webcrypto };
