// Runs the handler of each library, and compares what it does with its verdict in libraries.json.
//
//   node run.mjs [--cut] [--docs] [NAME...]
//
// HOSTLER is the command. --cut takes those of the quick test, in QuickJS. --docs writes the
// table of the documentation.

import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";

import { build } from "hostler/build";

import { serve } from "./server.mjs";

const HERE = import.meta.dirname;
const HOSTLER = process.env.HOSTLER ?? join(HERE, "../../../target/debug/hostler");
const PAGE = join(HERE, "../../../docs/languages/javascript.md");
const [BEGIN, END] = ["<!-- libraries -->\n", "<!-- end -->"];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { cut: { type: "boolean" }, docs: { type: "boolean" } },
});

const all = JSON.parse(await readFile(join(HERE, "libraries.json"), "utf8"));
const chosen = all.filter(({ name, cut }) => (positionals.length ? positionals.includes(name) : cut || !values.cut));

/** The words of a verdict `refused with "..."`; `undefined` = it runs. */
const refusal = ({ verdict }) => /^refused with "(.*)"$/.exec(verdict)?.[1];

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
  else if (right !== page) throw new Error("the table of docs/languages/javascript.md is old: node run.mjs --docs");
}

/** One component of all of them: it takes minutes to compile the engine, and each library is loaded when it is called. */
async function component() {
  await mkdir(join(HERE, "build"), { recursive: true });
  const lines = chosen.map(({ name }) => `  ${JSON.stringify(name)}: () => import(${JSON.stringify(`../handlers/${name}.js`)}),`);
  const entry = join(HERE, "build/entry.js");
  const text = [
    'import { handler } from "hostler";',
    "const libraries = {",
    ...lines,
    "};",
    "export default handler(async ({ name, url }) => {",
    "  const { default: run } = await libraries[name]();",
    '  console.log(`result ${await run(url)}`);',
    "});",
    "",
  ];
  await writeFile(entry, text.join("\n"));
  const output = join(HERE, "build/libraries.wasm");
  // The quick ones need no requests.
  await build({ entry, output, folder: join(HERE, "build"), engine: values.cut ? "quickjs" : "starlingmonkey" });
  return output;
}

async function invoke(file, port, name) {
  const grant = { host: "127.0.0.1", port, scheme: "http", idempotency_key: false };
  const body = JSON.stringify({ name, url: `http://127.0.0.1:${port}` });
  const limits = "--limit-compile-time 3000s --timeout 60s --cpu 60s --memory 512MiB --limit-component 256MiB --limit-compile-memory 8GiB --compile-cache build/cache";
  const flags = [...limits.split(" "), "--json", "--grant-http", JSON.stringify([grant]), "--body", body];
  const run = promisify(execFile)(HOSTLER, ["invoke", file, ...flags], { cwd: HERE, maxBuffer: 2 ** 24 });
  // The exit code says the outcome.
  const { stdout, stderr } = await run.catch((ended) => ended);
  if (!stdout?.trim()) throw new Error(`hostler invoke: ${stderr}`);
  return JSON.parse(stdout.trim().split("\n").pop());
}

/** What is wrong with the verdict of a library; `undefined` = nothing. */
function objection(library, { outcome, reason, logs }) {
  const said = [outcome, reason, ...logs].filter(Boolean).join("\n");
  const words = refusal(library);
  if (words) return outcome === "fault" && said.includes(words) ? undefined : `it is not refused with these words:\n${said}`;
  const result = logs.find((line) => line.startsWith("result "))?.slice("result ".length);
  return outcome === "ack" && result === library.prints ? undefined : `it printed ${result}, and not ${library.prints}:\n${said}`;
}

await compareDocs();
const file = await component();
const server = await serve();
let failures = 0;
for (const library of chosen) {
  const problem = objection(library, await invoke(file, server.address().port, library.name));
  console.log(`${problem ? "NOT AS WRITTEN" : "as written"}  ${library.name}: ${library.verdict}${problem ? `\n  ${problem}` : ""}`);
  if (problem) failures += 1;
}
server.close();
process.exitCode = failures > 0 ? 1 : 0;
