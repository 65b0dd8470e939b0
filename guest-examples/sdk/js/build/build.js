// Makes a component of a handler: one bundle, and the engine that runs it.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";

import { build as bundle } from "esbuild";

import { nodeModules } from "./node.js";
import { refused } from "./refused.js";
import { sources } from "./sources.js";
import { WORLD, writeWorld } from "./wit.js";

const SDK = join(import.meta.dirname, "..");
const require = createRequire(import.meta.url);

export const ENGINES = ["starlingmonkey", "quickjs"];

/** Build `entry` into the component `output`. Returns its bytes, and what it imports. */
export async function build({ entry, output, engine = ENGINES[0], folder = "build" }) {
  const project = process.cwd();
  const { code, imports } = await bundled(resolve(entry), engine, project);
  const file = join(folder, "handler.js");
  await mkdir(folder, { recursive: true });
  await writeFile(file, code);
  const wit = resolve(folder, "wit");
  await writeWorld(wit, imports, project);
  await mkdir(dirname(resolve(output)), { recursive: true });
  const component = engine === "quickjs" ? await quickjs(wit, file, output) : await starlingmonkey(wit, file, code);
  if (component) await writeFile(output, component);
  return { imports };
}

/** The bundle of a handler, and the interfaces that it imports. */
export async function bundled(entry, engine, project) {
  const result = await bundle({
    stdin: { contents: main(entry, engine), resolveDir: project, sourcefile: "hostler:main", loader: "js" },
    bundle: true,
    write: false,
    absWorkingDir: project,
    outfile: join(project, "handler.js"),
    format: "esm",
    platform: "browser",
    conditions: ["worker", "module"],
    target: "es2022",
    // Promises belong to the message: see runtime/promise.js.
    supported: {
      "async-await": false,
      "async-generator": false,
      "for-await": false,
      "top-level-await": false,
      "dynamic-import": false,
      // StarlingMonkey does not know \p{...}: then the expression fails where it is made, and not the whole bundle.
      "regexp-unicode-property-escapes": false,
    },
    define: { "process.env.NODE_ENV": '"production"', global: "globalThis" },
    inject: [join(SDK, "build/globals.js")],
    plugins: [refused(engine), interfaces(engine), nodeModules],
    sourcemap: "external",
    sourcesContent: false,
    metafile: true,
    logLevel: "warning",
  });
  const [map, { text }] = result.outputFiles;
  // The places of packages, and of this one, say nothing about a failure of the handler.
  const shown = (path) => {
    const isOwn = !/(^|\/)node_modules\/|^[a-z-]+:/.test(path) && relative(SDK, resolve(project, path)).startsWith("..");
    return isOwn ? path.replace(/^(\.\.\/)+/, "") : undefined;
  };
  const table = JSON.stringify(sources(JSON.parse(map.text), shown));
  const outputs = Object.values(result.metafile.outputs);
  const imports = outputs.flatMap((output) => output.imports).filter(({ external }) => external);
  return {
    code: `${text}globalThis[Symbol.for("hostler.sources")] = ${table};\n`,
    // An optional package that is not installed is external, too: it throws where it is asked for.
    imports: [...new Set(imports.map(({ path }) => path))].filter((path) => INTERFACE.test(path)),
  };
}

/** A name such as `wasi:cli/exit@0.2.6`. */
const INTERFACE = /^[a-z0-9-]+:[a-z0-9-]+\//;

const main = (entry, engine) => `
import * as engine from ${JSON.stringify(join(SDK, "runtime", `${engine}.js`))};
import * as handler from ${JSON.stringify(entry)};
import { entry } from ${JSON.stringify(join(SDK, "runtime/entry.js"))};
export const messageHandler = entry(handler, engine);
`;

/** Interfaces of WIT, by one name in both engines: QuickJS has them as defaults, and StarlingMonkey by name. */
const interfaces = (engine) => ({
  name: "interfaces",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: INTERFACE }, ({ path, namespace }) => {
      if (path.startsWith("node:")) return undefined;
      return namespace === "interface" ? { path, external: true } : { path, namespace: "interface", sideEffects: false };
    });
    onLoad({ filter: /.*/, namespace: "interface" }, ({ path }) => {
      const name = JSON.stringify(path);
      const contents =
        engine === "quickjs"
          ? `import all from ${name}; export default all;`
          : `import * as all from ${name}; export * from ${name}; export default all;`;
      return { contents, loader: "js" };
    });
  },
});

async function starlingmonkey(witPath, sourcePath, code) {
  const { componentize } = await import("@bytecodealliance/componentize-js");
  // Without the word, nothing sends requests: so the component needs no grant for them. The bundle names its files.
  const [, ...files] = code.split(/^\/\/ (.+)$/m);
  const sends = files.some((text, at) => at % 2 === 1 && !files[at - 1].endsWith("/starlingmonkey.js") && /\bfetch\b/.test(text));
  const disableFeatures = sends ? ["fetch-event"] : ["http", "fetch-event"];
  const { component } = await componentize({ sourcePath, witPath, worldName: WORLD, disableFeatures });
  return component;
}

// componentize-qjs 0.4.5 stops now and then without an end. It takes a second, so it is started again.
const QUICKJS_MS = 60_000;
const QUICKJS_STARTS = 3;

/** The bytes are written by its own command. */
async function quickjs(wit, file, output) {
  const command = join(dirname(require.resolve("componentize-qjs/package.json")), "bin/componentize-qjs");
  const flags = ["--wit", wit, "--world", WORLD, "--js", file, "--sync", "-o", output];
  for (let start = 1; start <= QUICKJS_STARTS; start += 1) {
    const { status, signal, stderr } = await run([command, ...flags], QUICKJS_MS);
    if (status === 0) return;
    if (!signal) throw new Error(`componentize-qjs: ${stderr.trim()}`);
  }
  throw new Error(`componentize-qjs has not ended within ${QUICKJS_MS / 1000} s, ${QUICKJS_STARTS} times`);
}

function run(command, timeout) {
  return new Promise((done, failed) => {
    const child = spawn(process.execPath, command, { stdio: ["ignore", "ignore", "pipe"], timeout, killSignal: "SIGKILL" });
    let stderr = "";
    child.stderr.on("data", (text) => (stderr += text));
    child.on("error", failed);
    child.on("close", (status, signal) => done({ status, signal, stderr }));
  });
}
