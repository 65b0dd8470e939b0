import store from "hostler:handler/key-value@1.2.0";

import { decode, encode } from "./values.js";

export const keyValue = {
  get(key) {
    const value = this.getBytes(key);
    return value && JSON.parse(decode(value));
  },
  getBytes: (key) => store.get(key) ?? undefined,
  set(key, value, ttlMs = undefined) {
    store.set(key, ArrayBuffer.isView(value) ? value : encode(JSON.stringify(value)), ttlMs);
  },
  delete: (key) => store.delete(key),
  increment: (key, by = 1) => Number(store.increment(key, by)),
};
