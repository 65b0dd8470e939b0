#!/usr/bin/env node
// hostler-build: makes handler.wasm of a handler in JavaScript or TypeScript.

import { existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import { parseArgs } from "node:util";

import { ENGINES, build } from "./build.js";

const HELP = `hostler-build [ENTRY] [-o FILE] [--engine ENGINE]

Build a handler of hostler into a component.

  ENTRY            the module of the handler: src/handler.ts or src/handler.js
  -o FILE          the component: handler.wasm
  --engine ENGINE  ${ENGINES.join(" (default) or ")}
  --folder DIR     where the bundle and the world are written: build

Interfaces of WIT that the handler imports itself are read from wit/.`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    output: { type: "string", short: "o", default: "handler.wasm" },
    engine: { type: "string", default: ENGINES[0] },
    folder: { type: "string", default: "build" },
    help: { type: "boolean", short: "h" },
  },
});

if (values.help) {
  console.log(HELP);
} else {
  try {
    const entry = positionals[0] ?? ["src/handler.ts", "src/handler.js"].find((path) => existsSync(path));
    if (!entry || !existsSync(entry)) throw new Error(`there is no ${entry ?? "src/handler.ts or src/handler.js"}`);
    if (!ENGINES.includes(values.engine)) throw new Error(`--engine is ${ENGINES.join(" or ")}`);
    const { imports } = await build({ entry, ...values });
    const { size } = await stat(values.output);
    console.log(`${values.output}: ${(size / 2 ** 20).toFixed(1)} MiB, ${values.engine}${imports.length ? `, imports ${imports.join(", ")}` : ""}`);
  } catch (error) {
    // esbuild has said it already.
    if (!error.errors) console.error(`hostler-build: ${error.message}`);
    process.exitCode = 1;
  }
}
