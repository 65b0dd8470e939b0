// Runs the handler of each library, and compares what it does with its verdict in libraries.json. Then functions that fail
// have causes of their own, and those that leave work behind lose none.
//
//   node run.mjs [--cut] [--docs] [NAME...]
//
// HOSTLER is the command. --cut takes those of the quick test, in QuickJS. --docs writes the
// table of the documentation.

import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual, parseArgs, promisify } from "node:util";

import { build, bundled } from "hostler/build";

import { serve } from "./server.mjs";

const HERE = import.meta.dirname;
const HOSTLER = process.env.HOSTLER ?? join(HERE, "../../../target/debug/hostler");
const SDK = join(HERE, "../../../guest-examples/sdk/js");
const PAGE = join(HERE, "../../../docs/libraries/javascript.md");
const [BEGIN, END] = ["<!-- libraries -->\n", "<!-- end -->"];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { cut: { type: "boolean" }, docs: { type: "boolean" } },
});

// The quick ones need no requests.
const ENGINE = values.cut ? "quickjs" : "starlingmonkey";

// A host that is not optimized takes minutes to compile the engine.
const SETTINGS = {
  HOSTLER_LIMIT_COMPILE_TIME: "50m",
  HOSTLER_LIMIT_COMPILE_MEMORY: "8GiB",
  HOSTLER_LIMIT_COMPONENT: "256MiB",
  HOSTLER_TIMEOUT: "60s",
  HOSTLER_CPU: "60s",
  HOSTLER_MEMORY: "512MiB",
};

const all = JSON.parse(await readFile(join(HERE, "libraries.json"), "utf8"));
const chosen = all.filter(({ name, cut }) => (positionals.length ? positionals.includes(name) : cut || !values.cut));

/** Whether it is refused by the build, and with which words; `undefined` = it runs. */
const refusal = ({ verdict }) => /^refused(?<byBuild> by the build)? with "(?<words>.*)"$/.exec(verdict)?.groups;

function table() {
  const rows = all.map(({ name, package: from, verdict, what }) => `| ${what} | \`${from ?? name}\` | ${verdict.replaceAll("|", "\\|")} |`);
  return ["| for | package | verdict |", "|---|---|---|", ...rows, ""].join("\n");
}

async function compareDocs() {
  const page = await readFile(PAGE, "utf8");
  const [before, rest] = page.split(BEGIN);
  const after = rest?.slice(rest.indexOf(END));
  const right = `${before}${BEGIN}${table()}${after}`;
  if (values.docs) await writeFile(PAGE, right);
  else if (right !== page) throw new Error("the table of docs/libraries/javascript.md is old: node run.mjs --docs");
}

/** One component of all of them: it takes minutes to compile the engine, and each library is loaded when it is called. */
async function component() {
  await mkdir(join(HERE, "build"), { recursive: true });
  const built = chosen.filter((library) => !refusal(library)?.byBuild);
  const lines = built.map(({ name }) => `  ${JSON.stringify(name)}: () => import(${JSON.stringify(`../handlers/${name}.js`)}),`);
  const entry = join(HERE, "build/entry.js");
  const text = [
    'import { handler } from "hostler";',
    'import failures from "../behaviour/failures.ts";',
    'import unfinished, { outside } from "../behaviour/unfinished.ts";',
    "const libraries = {",
    ...lines,
    "};",
    "const leave = { ...unfinished, ...outside };",
    "export default handler(async ({ name, url, fails, n, leaves }) => {",
    "  if (fails) return failures[fails]({ n });",
    "  if (leaves) return leave[leaves](url);",
    "  const { default: run } = await libraries[name]();",
    '  console.log(`result ${await run(url)}`);',
    "});",
    "",
  ];
  await writeFile(entry, text.join("\n"));
  const output = join(HERE, "build/libraries.wasm");
  await build({ entry, output, folder: join(HERE, "build"), engine: ENGINE });
  return output;
}

/** What is wrong with the verdict of a library that the build refuses; `undefined` = nothing. */
async function objectionOfBuild({ name }, words) {
  const said = await bundled(join(HERE, "handlers", `${name}.js`), ENGINE, HERE).then(
    () => ["it is built"],
    (error) => (error.errors ?? [error]).map(({ text, message }) => text ?? message),
  );
  return said.some((text) => text.includes(words)) ? undefined : `it is not refused with these words:\n${said.join("\n")}`;
}

/** The report on a message with these fields. */
async function invoke(file, port, fields) {
  const grant = { host: "127.0.0.1", port, scheme: "http", idempotency_key: false };
  const body = JSON.stringify({ ...fields, url: `http://127.0.0.1:${port}` });
  const flags = ["--json", "--grant-http", JSON.stringify([grant]), "--body", body];
  const options = { cwd: HERE, env: { ...process.env, ...SETTINGS }, maxBuffer: 2 ** 24 };
  const run = promisify(execFile)(HOSTLER, ["invoke", file, ...flags], options);
  // The exit code says the outcome.
  const { stdout, stderr } = await run.catch((ended) => ended);
  if (!stdout?.trim()) throw new Error(`hostler invoke: ${stderr}`);
  return JSON.parse(stdout.trim().split("\n").pop());
}

/** What is wrong with the verdict of a library; `undefined` = nothing. */
function objection(library, { outcome, reason, logs }) {
  const said = [outcome, reason, ...logs].filter(Boolean).join("\n");
  const words = refusal(library)?.words;
  if (words) return outcome === "fault" && said.includes(words) ? undefined : `it is not refused with these words:\n${said}`;
  const result = logs.find((line) => line.startsWith("result "))?.slice("result ".length);
  return outcome === "ack" && result === library.prints ? undefined : `it printed ${result}, and not ${library.prints}:\n${said}`;
}

/** What is left behind, and how the attempt ends: with the end of work in its log, or with these words as a fault. */
const LEFT = {
  floating: { logs: ["charged"] },
  floatingBehindAnAwait: { logs: ["charged"] },
  microtask: { logs: ["charged"] },
  failed: { fault: "Error: declined" },
  stuck: { fault: "handle waits for a promise that nothing settles" },
  leftStuck: { fault: "handle returned while promises are unfinished" },
};
const LEFT_OUTSIDE = {
  timer: { logs: ["charged"] },
  timerThatThrows: { fault: "SyntaxError: " },
  cleared: { logs: [] },
  request: { logs: ["charged"] },
  requestThatFails: { fault: "TypeError: " },
  body: { logs: ["charged"] },
};

// Of a component without the SDK.
const LEFT_PLAIN = {
  promises: { logs: ["charged"] },
  awaited: { logs: ["charged"] },
  request: { fault: "a request that it sent is unfinished" },
  stuck: { fault: "event loop error" },
};

/** What componentize-js makes of a handler alone. */
async function plain() {
  const { componentize } = await import(join(SDK, "node_modules/@bytecodealliance/componentize-js/src/componentize.js"));
  const files = { sourcePath: join(HERE, "behaviour/plain.js"), witPath: join(HERE, "../../../wit") };
  const { component } = await componentize({ ...files, worldName: "handler", disableFeatures: ["fetch-event"] });
  const output = join(HERE, "build/plain.wasm");
  await writeFile(output, component);
  return output;
}

const FAILURES = ["price", "weight", "size", "ship", "charge", "parse"];

function objectionToEnd(expected, { outcome, reason, logs }) {
  const isRight = expected.fault
    ? outcome === "fault" && reason.includes(expected.fault)
    : outcome === "ack" && isDeepStrictEqual(logs, expected.logs);
  return isRight ? undefined : `not ${JSON.stringify(expected)}, but ${outcome} ${reason}\n${logs.join("\n")}`;
}

await compareDocs();
const file = await component();
const server = await serve();
const { port } = server.address();
let failures = 0;

function report(problem, text) {
  console.log(`${problem ? "NOT AS WRITTEN" : "as written"}  ${text}${problem ? `\n  ${problem}` : ""}`);
  if (problem) failures += 1;
}

for (const library of chosen) {
  const { byBuild, words } = refusal(library) ?? {};
  const problem = byBuild ? await objectionOfBuild(library, words) : objection(library, await invoke(file, port, { name: library.name }));
  report(problem, `${library.name}: ${library.verdict}`);
}
if (positionals.length === 0) {
  for (const [leaves, expected] of Object.entries({ ...LEFT, ...(values.cut ? {} : LEFT_OUTSIDE) })) {
    report(objectionToEnd(expected, await invoke(file, port, { leaves })), `no work is lost: ${leaves}`);
  }
  const alone = values.cut ? undefined : await plain();
  for (const [leaves, expected] of Object.entries(alone ? LEFT_PLAIN : {})) {
    report(objectionToEnd(expected, await invoke(alone, port, { leaves })), `without the SDK: ${leaves}`);
  }
  const causes = ["../causes.py", HOSTLER, file, ...FAILURES];
  const said = await promisify(execFile)("python3", causes, { cwd: HERE, env: { ...process.env, ...SETTINGS } }).catch((ended) => ended);
  report(said.code ? `${said.stdout}${said.stderr}` : undefined, `${FAILURES.length} failures have causes of their own`);
}
server.close();
process.exitCode = failures > 0 ? 1 : 0;
