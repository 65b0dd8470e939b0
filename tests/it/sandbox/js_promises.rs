//! Handlers in JavaScript and TypeScript: code behind an `await` runs before the outcome counts, or the attempt
//! is a fault. Their random numbers differ.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Limits, Settings};
use hostler_tests::command::{end, hostler, run_line};
use hostler_tests::rig::Rig;
use hostler_tests::web::Web;

use crate::cli::cli_new::{repository, shell};
use crate::runtime::e2e_scene::Scene;
use crate::sandbox::language_table::for_every_language;
use crate::sandbox::sandbox_compile::by_child;

mod effects {
    use super::{for_every_language, work_behind_an_await_is_done_for_each_acked_message};

    for_every_language!(work_behind_an_await_is_done_for_each_acked_message: js; ts);
}

mod ends {
    use super::{for_every_language, promises_end_with_the_message_or_are_a_fault};

    for_every_language!(promises_end_with_the_message_or_are_a_fault: js; ts);
}

mod causes {
    use super::{errors_of_other_types_or_places_are_other_causes, for_every_language};

    for_every_language!(errors_of_other_types_or_places_are_other_causes: js; ts);
}

mod refused {
    use super::{code_that_would_lose_work_is_not_built, for_every_language};

    for_every_language!(code_that_would_lose_work_is_not_built: js; ts);
}

/// A handler that charges an order and publishes an invoice, and waits for neither.
const FLOATING: &str = r#"
import http from "hostler:handler/http@1.2.0";
import publisher from "hostler:handler/publisher@1.2.0";

import { encode } from "./utf8EXT";

async function charge(id TYPE) {
  await null;
  http.fetch({ method: "POST", url: "http://payments.example.com:PORT/charges", headers: [], body: encode(id), timeoutMs: null });
  for await (const body of invoices(id)) publisher.publish("invoices", { body, headers: [], delayMs: null });
}

async function* invoices(id TYPE) {
  await new Promise((resolve) => queueMicrotask(() => resolve(null)));
  yield encode(id);
}

export const messageHandler = {
  handle(message TYPE)TYPE {
    void charge(message.id);
    return { tag: "ack" };
  },
};
"#;

async fn work_behind_an_await_is_done_for_each_acked_message(language: &str) {
    let web = Web::start().await;
    let project = Project::new(language, &["--with", "http,publish"]);
    project.write(
        "handler",
        &FLOATING.replace("PORT", &web.port().to_string()),
    );
    let handler = project.built();
    let mut scene = Scene::new().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(scene.publish("x").await);
    }
    let rule = format!(
        r#"[{{"scheme":"http","host":"payments.example.com","port":{},"address":"127.0.0.1","methods":["POST"]}}]"#,
        web.port()
    );
    let options = scene
        .host()
        .flag("handler", &handler.display().to_string())
        .flag("grant-http", &rule)
        .flag(
            "grant-publish",
            r#"{"invoices":"stream:{orders}:invoices"}"#,
        )
        .flags("timeout=50s cpu=50s");
    let ended = options.finish().await;
    assert_eq!(ended.json()["acked"], 3, "{}", ended.json());
    let charged: BTreeSet<_> = web.seen().into_iter().map(|seen| seen.body).collect();
    let invoices = format!("{:?}", scene.raw.ask("XRANGE {orders}:invoices - +").await);
    assert_eq!(web.seen().len(), 3);
    for id in &ids {
        assert!(charged.contains(id.as_bytes()), "{id}: {charged:?}");
        assert!(invoices.contains(id), "{id}: {invoices}");
    }
}

/// A handler that does what the body says.
const ENDS: &str = r#"
import { log } from "./logEXT";
import { decode } from "./utf8EXT";

const text = async (value TYPE) => log(`got ${await value}`);
const never = new Promise(() => {});
const thing TYPE = { then: (done TYPE) => done("a thenable") };

const cases TYPE = {
  async "an outcome"() {
    await text("a value");
    return { tag: "drop", val: "later" };
  },
  async "a throw that is caught"() {
    try {
      await Promise.reject(new Error("first"));
    } catch (error) {
      return { tag: "drop", val: `${error}` };
    }
  },
  "callbacks, in order"() {
    Promise.resolve(1).then(() => log("third")).finally(() => log("fifth"));
    queueMicrotask(() => log("fourth"));
    log("second");
    return { tag: "ack" };
  },
  async "all of them"() {
    const settled = await Promise.allSettled([1, Promise.reject(2), thing]);
    log(settled.map((each TYPE) => each.value ?? each.reason).join(" "));
    log(`${await Promise.any([Promise.reject(1), 3])} ${(await Promise.all([4, text(5)])).length}`);
    return { tag: "ack" };
  },
  async "a race with a promise that nothing settles"() {
    log(`${await Promise.race([never, new Promise(() => {}), 1])}`);
    return { tag: "ack" };
  },
  async "many at once"() {
    const all = await Promise.all(Array.from({ length: 1000 }, async (_, at) => (await at) + 1));
    return { tag: "drop", val: `${all.reduce((sum TYPE, each) => sum + each, 0)}` };
  },
  async "a class of its own"() {
    class Own extends Promise<TYPES> {}
    const own = Own.resolve(1).then((value TYPE) => value + 1);
    return { tag: "drop", val: `${own instanceof Own} ${await own} ${Promise.name} ${own}` };
  },

  async "a throw"() {
    await null;
    throw new RangeError("thrown behind await");
  },
  "a rejection"() {
    void (async () => { await null; throw new Error("nobody waits"); })();
    return { tag: "ack" };
  },
  "a rejection with text"() {
    void Promise.reject("only text");
    return { tag: "ack" };
  },
  "a callback that throws"() {
    queueMicrotask(() => { throw new Error("in a callback"); });
    return { tag: "ack" };
  },
  async "a wait of handle"() {
    await never;
    return { tag: "ack" };
  },
  "a wait of something else"() {
    void text(never);
    return { tag: "ack" };
  },
  "a wait behind others"() {
    void Promise.all([1, text(new Promise(() => {}))]).then(() => log("never"));
    return { tag: "ack" };
  },
  async "a timer"() {
    await new Promise((resolve) => (globalThis as any).setTimeout(resolve, 1));
    return { tag: "ack" };
  },
  async "an import"() {
    const name = "wasi:cli/stdout@0.2.6";
    await import(name);
    return { tag: "ack" };
  },
  "async code as text"() {
    new Function("log", "(async () => { await null; log('lost'); })()")(log);
    return { tag: "ack" };
  },
  "code as text"() {
    return { tag: "drop", val: `${new Function("a", "return a + 1")(1)} ${(0, eval)("1 + 2")}` };
  },
  "no outcome"() {},
  "another outcome"() {
    return { tag: "nack" };
  },
  "no end"() {
    const again = ()TYPE => Promise.resolve().then(again);
    again();
    return { tag: "ack" };
  },

  "random numbers"() {
    const words = crypto.getRandomValues(new Uint32Array(4));
    const bytes = crypto.getRandomValues(new Uint8Array(65_536).subarray(1, 65_536));
    const used = new Set(bytes).size;
    let refused = "";
    for (const wrong of [new Uint8Array(65_537), new Float64Array(1)]) {
      try {
        crypto.getRandomValues(wrong);
      } catch {
        refused += " refused";
      }
    }
    log(`${Math.random()}`);
    log(`${Math.random()}`);
    log(crypto.randomUUID());
    log(words.join(" "));
    log(`${loaded}`);
    return { tag: "drop", val: `${used}${refused}` };
  },
};

const loaded = Math.random();

export const messageHandler = {
  handle: (message TYPE) => cases[decode(message.body)](),
};
"#;

/// A handler that fails as the body says.
const FAILS: &str = r#"
import { decode } from "./utf8EXT";

class OutOfStock extends Error {}

function price(order TYPE) {
  return order.amount.value;
}

function weight(order TYPE) {
  return order.amount.value;
}

const cases TYPE = {
  "type"() { price({}); },
  "type elsewhere"() { weight({}); },
  "range"() { return new Array(-1); },
  "own"() { throw new OutOfStock("no stock"); },
  "error"() { throw new Error("no stock"); },
  async "behind an await"() { await null; price({}); },
};

export const messageHandler = {
  handle(message TYPE)TYPE {
    cases[decode(message.body)]();
    return { tag: "ack" };
  },
};
"#;

async fn errors_of_other_types_or_places_are_other_causes(language: &str) {
    let project = Project::new(language, &[]);
    project.write("handler", FAILS);
    let handler = project.built().display().to_string();
    let mut scene = Scene::new().await;
    let bodies = [
        "type",
        "type elsewhere",
        "range",
        "own",
        "error",
        "behind an await",
    ];
    for body in bodies {
        for _ in 0..2 {
            scene.publish(body).await;
        }
    }
    let options = scene
        .host()
        .flag("handler", &handler)
        .flag("limit-compile-time", "10m")
        .cap(1)
        .dead_letter();
    let ended = options.flags("timeout=50s cpu=50s").finish().await;
    assert_eq!(ended.json()["dead_lettered"]["max-deliveries"], 12);
    let groups = || {
        let queue = format!("--redis {} orders:dead --json", scene.server.url());
        run_line(&format!("dlq groups {queue}")).ok().json()
    };
    let found = groups();
    let all = found["groups"].as_array().unwrap();
    assert_eq!(all.len(), bodies.len(), "{found}");
    assert!(all.iter().all(|group| group["count"] == 2), "{found}");
    let text = found.to_string();
    for part in [
        "TypeError: cannot",
        ", at price (handler.js)",
        "RangeError: ",
        "OutOfStock: no stock",
        ": Error: no",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let id = all[0]["id"].as_str().unwrap();
    let purge = format!(
        "dlq purge --redis {} orders:dead --yes --json",
        scene.server.url()
    );
    let purged = run_line(&format!("{purge} --signature {id}")).ok().json();
    assert_eq!(purged["purged"], 2);
    assert_eq!(groups()["total"], 10);
}

async fn promises_end_with_the_message_or_are_a_fault(language: &str) {
    let project = Project::new(language, &[]);
    project.write("handler", ENDS);
    let handler = project.built();
    let limits = Limits {
        wall: Duration::from_secs(50),
        cpu: Duration::from_secs(50),
        compile_time: Duration::from_secs(600),
        ..Limits::default()
    };
    for reuse in [1, 1_000] {
        let settings = Settings {
            reuse,
            ..by_child(limits.clone())
        };
        let mut rig = Rig::file(&handler, &settings);
        does_all_that_was_started(&mut rig).await;
        tells_what_it_lost(&mut rig).await;
        draws_random_numbers(&mut rig).await;
    }
    // It is ended by a limit, as any other loop is.
    let settings = by_child(Limits {
        cpu: Duration::from_millis(200),
        ..limits
    });
    let mut rig = Rig::file(&handler, &settings);
    let fault = rig.fault("no end").await;
    assert_eq!(fault.kind, FaultKind::CpuTimeout, "{fault:?}");
}

async fn does_all_that_was_started(rig: &mut Rig) {
    let drop = |reason: &str| Outcome::Drop(Some(reason.to_owned()));
    let cases: [(&str, Outcome, &[&str]); 8] = [
        ("an outcome", drop("later"), &["got a value"]),
        ("a throw that is caught", drop("Error: first"), &[]),
        (
            "callbacks, in order",
            Outcome::Ack,
            &["second", "third", "fourth", "fifth"],
        ),
        (
            "all of them",
            Outcome::Ack,
            &["1 2 a thenable", "got 5", "3 2"],
        ),
        (
            "a race with a promise that nothing settles",
            Outcome::Ack,
            &["1"],
        ),
        ("many at once", drop("500500"), &[]),
        (
            "a class of its own",
            drop("true 2 Promise [object Promise]"),
            &[],
        ),
        ("code as text", drop("2 3"), &[]),
    ];
    for (case, outcome, lines) in cases {
        assert_eq!(rig.run(case).await.outcome, outcome, "{case}");
        assert_eq!(rig.lines(), lines, "{case}");
    }
}

async fn tells_what_it_lost(rig: &mut Rig) {
    let unfinished = "handle returned while promises are unfinished, and nothing settles them";
    for (case, said) in [
        ("a throw", "thrown behind await"),
        ("a rejection", "nobody waits"),
        ("a rejection with text", "rejected with only text"),
        ("a callback that throws", "in a callback"),
        (
            "a wait of handle",
            "handle waits for a promise that nothing settles",
        ),
        ("a wait of something else", unfinished),
        ("a wait behind others", unfinished),
        ("a timer", "not a function"),
        ("an import", "is not supported"),
        ("async code as text", "code made of text cannot be async"),
        ("no outcome", "handle returned undefined"),
        ("another outcome", "handle returned {"),
    ] {
        let fault = rig.fault(case).await;
        assert_eq!(fault.kind, FaultKind::Trap, "{case}: {fault:?}");
        assert!(fault.detail.contains(said), "{case}: {fault:?}");
        rig.lines();
    }
}

async fn draws_random_numbers(rig: &mut Rig) {
    let (mut drawn, mut loaded) = (Vec::new(), BTreeSet::new());
    for _ in 0..3 {
        let outcome = rig.run("random numbers").await.outcome;
        // Each of the 256 values of a byte is there.
        let all = Outcome::Drop(Some("256 refused refused".to_owned()));
        assert_eq!(outcome, all);
        let mut lines = rig.lines();
        loaded.extend(lines.pop());
        let version = lines[2].split('-').map(|part| (part.len(), &part[..1]));
        let version: Vec<_> = version.collect();
        assert_eq!(
            version.iter().map(|(len, _)| *len).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert_eq!(version[2].1, "4", "{lines:?}");
        assert!("89ab".contains(version[3].1), "{lines:?}");
        drawn.extend(lines);
    }
    let different: BTreeSet<_> = drawn.iter().collect();
    assert_eq!(different.len(), drawn.len(), "{drawn:?}");
    // That is a number of the build: no message gets it again.
    assert_eq!(loaded.len(), 1, "{loaded:?}");
    assert!(loaded.is_disjoint(&drawn.into_iter().collect()));
}

async fn code_that_would_lose_work_is_not_built(language: &str) {
    let project = Project::new(language, &[]);
    let good = project.text("handler");
    let mut broken = vec![
        (
            format!("{good}\nawait null;\n"),
            "Top-level await is not available",
        ),
        (
            format!(
                "{good}\nvoid (async () => {{ await null; throw new Error(\"at load\"); }})();\n"
            ),
            "at load",
        ),
    ];
    if language == "ts" {
        let none = good
            .replace("Outcome {", "any[] {")
            .replace("{ tag: \"ack\" }", "[]");
        let none = none.replace(", Outcome", "");
        broken.push((none, "is not assignable to type 'MessageHandler'"));
    }
    for (text, said) in broken {
        project.write("handler", &text);
        let built = project.command("npm run build").output().unwrap();
        let output = [built.stdout, built.stderr].concat();
        let output = String::from_utf8_lossy(&output).into_owned();
        assert!(!built.status.success(), "{text}: {output}");
        assert!(output.contains(said), "{text}: {output}");
    }
    // A build that does not rewrite `async` functions.
    project.write("handler", &good);
    let package = std::fs::read_to_string(project.folder.join("package.json")).unwrap();
    let flag = " --supported:async-await=false";
    assert!(package.contains(flag), "{package}");
    std::fs::write(
        project.folder.join("package.json"),
        package.replace(flag, ""),
    )
    .unwrap();
    let built = project.command("npm run build").output().unwrap();
    assert!(!built.status.success(), "{built:?}");
    assert!(
        String::from_utf8_lossy(&built.stderr).contains(flag.trim()),
        "{built:?}"
    );
}

/// A new project, with the packages of the example.
pub(crate) struct Project {
    language: String,
    folder: PathBuf,
    _home: tempfile::TempDir,
}

impl Project {
    pub(crate) fn new(language: &str, arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = hostler(["new", "--lang", language, "--engine", "quickjs", "promises"]);
        end(command.args(arguments).current_dir(home.path())).ok();
        let folder = home.path().join("promises");
        let packages = repository().join(format!("guest-examples/{language}/node_modules"));
        assert!(packages.is_dir(), "run `make guest LANG={language}`");
        std::os::unix::fs::symlink(packages, folder.join("node_modules")).unwrap();
        Self {
            language: language.to_owned(),
            folder,
            _home: home,
        }
    }

    fn source(&self, name: &str) -> PathBuf {
        self.folder.join(format!("src/{name}.{}", self.language))
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.source(name)).unwrap()
    }

    /// Write a source. Types are only in TypeScript.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let text = match self.language.as_str() {
            "ts" => text
                .replace("<TYPES>", "<any>")
                .replace(" TYPE", ": any")
                .replace("TYPE", ": any")
                .replace("EXT", ""),
            _ => text
                .replace("<TYPES>", "")
                .replace(" TYPE", "")
                .replace("TYPE", "")
                .replace(" as any", "")
                .replace("EXT", ".js"),
        };
        std::fs::write(self.source(name), text).unwrap();
    }

    fn command(&self, line: &str) -> std::process::Command {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", line]).current_dir(&self.folder);
        command
    }

    /// Build it. The path of the component.
    pub(crate) fn built(&self) -> PathBuf {
        shell(&self.folder, "npm run build");
        self.folder.join("handler.wasm")
    }
}
