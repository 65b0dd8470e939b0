import wit from "hostler:handler/reply@1.2.0";

import { encode } from "./values.js";

export const reply = (value) => wit.set(encode(value));
