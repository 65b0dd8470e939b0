import journal from "hostler:handler/journal@1.2.0";

import { decode, encode } from "./values.js";

export function recall(name) {
  const value = journal.recall(name);
  return value ? JSON.parse(decode(value)) : undefined;
}

export const remember = (name, value) => journal.remember(name, encode(JSON.stringify(value)));
