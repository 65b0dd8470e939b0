// Modules of Node.js that libraries import. Those that need no machine are there. Every other one throws when it is used,
// with its name: so a library that only mentions it runs.

import { builtinModules, createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(import.meta.url);
const OWN = join(import.meta.dirname, "../node");

const THERE = {
  buffer: "buffer/",
  events: "events/",
  path: "path-browserify",
  "path/posix": "path-browserify",
  stream: "readable-stream",
  "stream/promises": join(OWN, "stream-promises.js"),
  string_decoder: "string_decoder/",
  util: join(OWN, "util.cjs"),
  crypto: join(OWN, "crypto.js"),
  os: join(OWN, "os.js"),
  process: join(OWN, "process.js"),
  timers: join(OWN, "timers.js"),
  querystring: join(OWN, "querystring.js"),
  url: join(OWN, "url.js"),
  assert: join(OWN, "assert.cjs"),
  async_hooks: join(OWN, "async_hooks.js"),
};

const NAMES = new RegExp(`^node:|^(${builtinModules.filter((name) => !name.startsWith("_")).join("|")})$`);

export const nodeModules = {
  name: "node-modules",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: NAMES }, ({ path }) => {
      const name = path.replace(/^node:/, "");
      const there = THERE[name];
      if (there) return { path: there.startsWith("/") ? there : require.resolve(there), sideEffects: false };
      return { path: name, namespace: "no-such-module" };
    });
    onLoad({ filter: /.*/, namespace: "no-such-module" }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(join(OWN, "missing.cjs"))}).missing(${JSON.stringify(path)});`,
      resolveDir: OWN,
      loader: "js",
    }));
  },
};
