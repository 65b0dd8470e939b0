//! A dead attempt runs again offline, with every answer of the host that its dead letter has. On streams and on reliable
//! lists.

use std::path::{Path, PathBuf};

use hostler::wire::dead_letter::RECORDING;
use hostler_tests::command::{Ended, end, fed, hostler, run, without_network};
use hostler_tests::guests::{guest, guest_module, guest_with_lines, handler, marked};
use hostler_tests::terminal::Terminal;
use hostler_tests::versions::{Failing, failing};
use hostler_tests::web::Web;
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::grants::outbound_scene::{rule, url};
use crate::sandbox::js_promises::Project;
use crate::sandbox::language_table::for_every_language;

on_both! {
    a_dead_attempt_runs_again_offline_and_ends_in_the_same_way
    a_corrected_handler_runs_against_the_recorded_answers
    a_call_that_is_not_recorded_leaves_the_verdict_open
    no_secret_is_in_a_recording
    a_recording_is_cut_where_it_is_full_and_says_so
}

mod faults {
    use super::{for_every_language, nine_faults_come_again_without_any_network};

    for_every_language!(nine_faults_come_again_without_any_network: rust js;);
}

/// What all handlers of these tests need.
const NEEDED: &str = "[grant.secret]\nneeded = { variable = \"NEEDED\", expose = true }\n";

/// The file of the queue, with these settings.
fn config(scene: &Scene, more: &str) -> PathBuf {
    let config = scene.server.dir().join("orders.toml");
    let text = format!("[dead_letter]\nrecording = \"full\"\n{more}");
    std::fs::write(&config, text).unwrap();
    config
}

/// Handle these messages, once each, with this handler.
async fn die(scene: &Scene, handler: &Path, config: &Path, bodies: &[&str]) {
    for body in bodies {
        scene.send(body).await;
    }
    let host = scene
        .binary()
        .flag("handler", &handler.display().to_string())
        .flag("config", &config.display().to_string())
        .flag("max-deliveries", "1")
        .variable("NEEDED", "planted-needed");
    host.finish().await;
}

fn debug(scene: &Scene, config: &Path, id: &str, handler: &Path) -> Ended {
    let (config, handler) = (config.to_str().unwrap(), handler.to_str().unwrap());
    let flags = [id, "--config", config, "--handler", handler, "--json"];
    scene.dlq("debug", &flags)
}

fn entries(scene: &Scene) -> Vec<Value> {
    let peek = scene.dlq("peek", &["--json", "--limit", "1000"]);
    let json = peek.ok().json();
    json["entries"].as_array().unwrap().clone()
}

/// The ids of the dead letters.
fn ids(scene: &Scene) -> Vec<String> {
    let entries = entries(scene);
    let id = |entry: &Value| entry["id"].as_str().unwrap().to_owned();
    entries.iter().map(id).collect()
}

/// A dead letter without its recording has no answer of this.
fn verdict(ended: &Ended) -> Value {
    ended.json()["verdict"].clone()
}

async fn a_dead_attempt_runs_again_offline_and_ends_in_the_same_way(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    let config = config(&scene, &format!("{}{NEEDED}", rule(&web, "")));
    let outbound = guest("outbound");
    let call = format!("send:POST|{}|b=x", url(&web, "/size/2000"));
    let bodies = [
        format!("{call}+random:100000+clock"),
        format!("{call}+fetch:GET|{}|h=a=b", url(&web, "/status/422")),
        format!("deadline+{call}"),
        "echo".to_owned(),
        format!("wasi:GET|http|api.test:{}|/echo", web.port()),
        format!("text:said+{call}+trap"),
        "panic".to_owned(),
        "recurse:10000000".to_owned(),
        "grow:1000+trap".to_owned(),
        "exit:3".to_owned(),
        "fetch:GET|http://elsewhere.test/".to_owned(),
        format!("fetch:GET|{}", url(&web, "/cut")),
        "nack".to_owned(),
    ];
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    die(&scene, &outbound, &config, &bodies).await;
    let asked = web.seen().len();
    drop(web);
    let ids = ids(&scene);
    assert_eq!(ids.len(), bodies.len());
    for id in &ids {
        let again = debug(&scene, &config, id, &outbound).ok();
        assert_eq!(verdict(&again), "same", "{again:?}");
        let json = again.json();
        assert_eq!(json["recorded"], json["now"]);
    }
    assert!(asked > 5, "{asked}");

    // Without Redis, by a colleague.
    let entries = entries(&scene);
    let says = |entry: &&Value| entry["body"].as_str().unwrap().starts_with("text:said");
    let said = entries.iter().find(says).unwrap()["id"].as_str().unwrap();
    let file = scene.server.dir().join("dead.jsonl");
    let exported = scene.dlq("export", &[]).ok().stdout;
    std::fs::write(&file, exported).unwrap();
    let text = run([
        "dlq",
        "debug",
        "any",
        said,
        "--from",
        file.to_str().unwrap(),
        "--handler",
        outbound.to_str().unwrap(),
        "--config",
        config.to_str().unwrap(),
    ]);
    let text = text.ok().stdout;
    for part in [
        "the same again",
        "POST http://api.test",
        "stdout | said",
        "fault (trap)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A replayed message has none.
    scene.dlq("replay", &[]).ok();
    let back = scene.all(scene.key()).await.pop().unwrap();
    assert!(back.headers.find(RECORDING).is_none(), "{back:?}");
}

async fn a_corrected_handler_runs_against_the_recorded_answers(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    let config = config(&scene, &format!("{}{NEEDED}", rule(&web, "")));
    let body = format!("send:GET|{}+trap", url(&web, "/ok"));
    die(&scene, &guest("outbound"), &config, &[&body]).await;
    let [id] = &*ids(&scene) else {
        panic!("one dead letter")
    };
    let fixed = debug(&scene, &config, id, &guest("ack")).ok();
    assert_eq!(verdict(&fixed), "passes");
    // The same behaviour in another component.
    let other = scene.server.dir().join("other.wasm");
    let bytes = std::fs::read(guest("outbound")).unwrap();
    std::fs::write(&other, marked(&bytes, 7)).unwrap();
    let failing = debug(&scene, &config, id, &other);
    assert_eq!((failing.code, verdict(&failing)), (1, json!("fails")));
    assert!(failing.json()["why"][0].as_str().unwrap().contains("trap"));
    assert_eq!(web.seen().len(), 1, "nothing is sent again");
}

async fn a_call_that_is_not_recorded_leaves_the_verdict_open(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    let config = config(&scene, &format!("{}{NEEDED}", rule(&web, "")));
    let body = format!(
        "send:GET|{}+fetch:GET|{}",
        url(&web, "/ok"),
        url(&web, "/ok/2")
    );
    die(&scene, &guest("outbound"), &config, &[&body]).await;
    let [id] = &*ids(&scene) else {
        panic!("one dead letter")
    };
    let exported = scene.dlq("export", &[]).ok().stdout;
    let file = scene.server.dir().join("dead.jsonl");
    let path = format!("{}/ok/2", url(&web, ""));
    let (before, planted) = (format!("GET {path}\\\""), format!("GET {path}x\\\""));
    assert!(exported.contains(&before), "{exported}");
    std::fs::write(&file, exported.replace(&before, &planted)).unwrap();
    let flags = |more: &[&str]| {
        let file = file.to_str().unwrap();
        let outbound = guest("outbound");
        let mut words = vec!["dlq", "debug", "any", id, "--from", file];
        words.extend(["--handler", outbound.to_str().unwrap()]);
        words.extend(["--config", config.to_str().unwrap()]);
        words.extend(more);
        run(words)
    };
    let again = flags(&["--json"]);
    let why = again.json()["why"].to_string();
    assert_ne!(verdict(&again), "same");
    assert!(
        why.contains(&format!("call 2 is `GET {path}`, and was `GET {path}x`")),
        "{why}"
    );
    assert_eq!(again.code, 1, "{again:?}");
}

async fn no_secret_is_in_a_recording(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    let rule = rule(&web, "headers.authorization = \"Bearer ${secret:hidden}\"");
    let secrets = format!("{NEEDED}hidden = {{ variable = \"NEEDED\" }}\n");
    let config = config(&scene, &format!("{rule}{secrets}"));
    // The server says what it was told.
    let echo = format!("send:GET|{}+trap", url(&web, "/echo"));
    die(
        &scene,
        &guest("outbound"),
        &config,
        &[&echo, "secret:needed"],
    )
    .await;
    let told = &web.seen()[0];
    assert_eq!(told.header("authorization"), Some("Bearer planted-needed"));
    let dead = scene.dead().await;
    for dead in &dead {
        let recording = dead.header(RECORDING);
        assert!(recording.contains("hidden-secret-"), "{recording}");
        assert!(!recording.contains("planted"), "{recording}");
    }
    for id in ids(&scene) {
        let again = debug(&scene, &config, &id, &guest("outbound"));
        assert!(!again.stdout.contains("planted"), "{again:?}");
        assert_eq!(verdict(&again.ok()), "same");
    }
}

async fn a_recording_is_cut_where_it_is_full_and_says_so(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    let limits = "response_max = \"8MiB\"";
    let grants = format!(
        "timeout = \"60s\"\n[limit]\nrequests = 5000\n{}{NEEDED}",
        rule(&web, limits)
    );
    let config = scene.server.dir().join("orders.toml");
    std::fs::write(&config, grants + "[dead_letter]\nrecording = \"full\"\n").unwrap();
    let many = format!("flood:1000|GET|{}", url(&web, "/ok"));
    let large = format!(
        "send:GET|{}+fetch:GET|{}",
        url(&web, "/size/4000000"),
        url(&web, "/ok")
    );
    die(&scene, &guest("outbound"), &config, &[&many, &large]).await;
    for dead in scene.dead().await {
        let recording = dead.header(RECORDING);
        assert!(recording.len() <= 256 << 10, "{}", recording.len());
        let recording: Value = serde_json::from_str(recording).unwrap();
        assert!(recording["left_out"].as_u64().unwrap() > 0, "{recording}");
    }
    for id in ids(&scene) {
        let again = debug(&scene, &config, &id, &guest("outbound"));
        assert_eq!((again.code, verdict(&again)), (2, json!("cannot tell")));
        let why = again.json()["why"].to_string();
        assert!(why.contains("the recording is cut"), "{why}");
    }
}

/// The guests, each with a message that fails in it, and the settings that it needs.
fn kinds() -> Vec<(PathBuf, String, &'static str)> {
    let config = "[grant.config]\nname = \"value\"\n";
    let keys = "[grant.key-value]\nprefix = \"{orders}:kv:\"\n[grant.publish]\nx = \"stream:x\"\n";
    vec![
        (guest("scripted"), "random:9+trap".to_owned(), ""),
        (guest("batch"), "text:a+panic".to_owned(), ""),
        (guest("configured"), "config:name".to_owned(), config),
        (guest("keyed"), "increment:a:5".to_owned(), keys),
        (guest("keyed"), "quiet:get:a+trap".to_owned(), keys),
        (
            guest("program"),
            "random:9+variable:HOSTLER_MESSAGE_ID+trap".to_owned(),
            "",
        ),
        (guest_module("program"), "random:9+exit:65".to_owned(), ""),
        (
            guest("foreign-spin"),
            "trap".to_owned(),
            "[grant.config]\na = \"b\"\n[grant.key-value]\nprefix = \"{orders}:kv:\"\n",
        ),
        (
            guest("foreign-wasmcloud"),
            "config:name+trap".to_owned(),
            "[grant.config]\nname = \"value\"\n[grant.publish]\nx = \"stream:x\"\n",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_of_every_kind_run_again() {
    for (handler, body, grants) in kinds() {
        let scene = Scene::new(Kind::Stream).await;
        let config = config(&scene, grants);
        die(&scene, &handler, &config, &[&body]).await;
        let ids = ids(&scene);
        let [id] = &*ids else {
            panic!("{}: {ids:?}", handler.display())
        };
        let again = debug(&scene, &config, id, &handler);
        assert_eq!(verdict(&again), "same", "{}: {again:?}", handler.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_without_a_recording_says_how_to_get_one() {
    let scene = Scene::new(Kind::Stream).await;
    let config = scene.server.dir().join("orders.toml");
    std::fs::write(&config, "").unwrap();
    let trap = scene.server.dir().join("trap.wasm");
    std::fs::write(&trap, handler("", "unreachable")).unwrap();
    die(&scene, &trap, &config, &["x"]).await;
    let refused = debug(&scene, &config, &ids(&scene)[0], &trap);
    assert_eq!(refused.code, 64);
    assert!(
        refused.stderr.contains("recording = \"full\""),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bisect_names_the_first_version_that_fails_on_each_dead_letter() {
    let scene = Scene::new(Kind::Stream).await;
    let config = config(&scene, "");
    let folder = scene.server.dir().to_owned();
    // From the fourth on, they fail at one message of 50: the one whose first byte is `0`.
    let versions: Vec<PathBuf> = (1..=6)
        .map(|number| {
            let path = folder.join(format!("v{number}.wasm"));
            let limit = if number < 4 { 0 } else { b'1' };
            let component = failing(limit, Failing::Trap, &format!("v{number}"));
            std::fs::write(&path, component).unwrap();
            path
        })
        .collect();
    let url = scene.server.url();
    for path in &versions {
        let path = path.to_str().unwrap();
        run(["deploy", path, "--redis", &url, "--queue", "orders"]).ok();
    }
    let body = |number: u8| char::from(b'0' + number % 50).to_string();
    let bodies: Vec<String> = (0..150).map(body).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    die(&scene, &versions[4], &config, &bodies).await;
    let ids = ids(&scene);
    assert_eq!(ids.len(), 3);
    for id in &ids {
        let found = scene.dlq("bisect", &[id, "--json"]).ok().json();
        assert_eq!(found["first"], 4, "{found}");
        let verdicts = found["versions"].as_array().unwrap().iter();
        let verdicts: Vec<_> = verdicts.map(|tried| &tried["verdict"]).collect();
        let expected = ["passes", "passes", "passes", "fails", "fails", "fails"];
        assert_eq!(verdicts, expected);
    }
    let text = scene.dlq("bisect", &[&ids[0]]).ok().stdout;
    assert!(text.contains("version 4 is the first that fails"), "{text}");
    // The stored version of the attempt needs no file.
    let again = scene.dlq("debug", &[&ids[0], "--json"]).ok();
    assert_eq!(verdict(&again), "same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backtrace_names_lines_of_source_where_the_component_has_them() {
    let source = include_str!("../../guests/priced/src/lib.rs");
    let line = source.lines().position(|line| line.contains("expect"));
    let place = format!("priced/src/lib.rs:{}:", line.unwrap() + 1);
    for (handler, has_lines) in [(guest_with_lines(), true), (guest("priced"), false)] {
        let scene = Scene::new(Kind::Stream).await;
        let config = config(&scene, "");
        die(&scene, &handler, &config, &["seven"]).await;
        let id = &ids(&scene)[0];
        let again = debug(&scene, &config, id, &handler).ok();
        assert_eq!(verdict(&again), "same");
        let json = again.json();
        let flags = ["--config", config.to_str().unwrap()];
        let handler = ["--handler", handler.to_str().unwrap()];
        let text = scene.dlq("debug", &[&[&**id], &flags[..], &handler].concat());
        let text = text.ok().stdout;
        let (_, below) = text.split_once("wasm backtrace:").unwrap();
        for trace in [&json["backtrace"].to_string(), below] {
            assert!(trace.contains("priced::main"), "{trace}");
            assert_eq!(trace.contains(&place), has_lines, "{trace}");
            assert_eq!(trace.contains("priced/src/main.rs:8:"), has_lines);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_steps_through_the_calls_of_an_attempt() {
    let scene = Scene::new(Kind::Stream).await;
    let web = Web::start().await;
    let config = config(&scene, &format!("{}{NEEDED}", rule(&web, "")));
    let call = |path| format!("send:GET|{}", url(&web, path));
    let body = format!("{}+{}+trap", call("/ok"), call("/status/422"));
    let outbound = guest("outbound");
    die(&scene, &outbound, &config, &[&body]).await;
    let (id, config) = (&*ids(&scene)[0], config.to_str().unwrap());
    let flags = ["--config", config, "--handler", outbound.to_str().unwrap()];
    let words = scene.words("debug", &[&[id, "--step"], &flags[..]].concat());

    let mut terminal = Terminal::spawn(hostler(&words));
    terminal.shows("call 1: GET http://api.test");
    assert!(!terminal.text().contains("call 2"), "{}", terminal.text());
    terminal.types("\n");
    terminal.shows("/status/422 -> 422");
    assert!(!terminal.text().contains("verdict"), "{}", terminal.text());
    terminal.types("\n");
    terminal.shows("verdict the same again");
    assert_eq!(terminal.end(), 0);

    // The end of the input goes on.
    for input in ["", "\n"] {
        let ended = fed(&words, input.as_bytes()).ok();
        assert!(ended.stderr.contains("call 2: GET "), "{ended:?}");
        assert!(ended.stdout.contains("the same again"), "{ended:?}");
    }
}

/// A handler in JavaScript that fails as the body says.
const FAULTS: &str = r#"
import http from "hostler:handler/http@1.2.0";
import { log } from "./logEXT";
import { decode } from "./utf8EXT";

const get = (url TYPE) => http.fetch({ method: "GET", url, headers: [], body: null, timeoutMs: null });
const deeper = (n TYPE)TYPE => n + deeper(n + 1);

const cases TYPE = {
  "type"() { return null.amount; },
  async "behind an await"() { await null; throw new Error("thrown behind await"); },
  "no outcome"() {},
  "another outcome"() { return { tag: "nack" }; },
  "stack"() { return deeper(0); },
  "memory"() { for (const all = [];;) all.push(new Uint8Array(1 << 20).fill(1)); },
  "random"() { log(`drew ${Math.random()}`); throw new Error(`drew ${crypto.randomUUID()}`); },
  "answer"(url TYPE) {
    get(`${url}/echo`);
    return { tag: "drop", val: `the server said ${get(`${url}/status/422`).status}` };
  },
  "refused"() { get("http://elsewhere.test/"); },
};

export const messageHandler = {
  handle(message TYPE)TYPE {
    const [name, url] = decode(message.body).split("|");
    return cases[name](url);
  },
};
"#;

/// A handler in this language, and nine messages that fail in it. One of them asks a server that is told a secret and says
/// so, and then one that answers 422.
fn faults(language: &str, web: &Web) -> (PathBuf, Vec<String>, Option<Project>) {
    if language == "rust" {
        let (echo, answer) = (url(web, "/echo"), url(web, "/status/422"));
        let bodies = [
            "panic".to_owned(),
            "text:said+trap".to_owned(),
            "recurse:10000000".to_owned(),
            "grow:1000".to_owned(),
            "exit:3".to_owned(),
            "nack".to_owned(),
            "random:9+clock+trap".to_owned(),
            format!("send:GET|{echo}+fetch:GET|{answer}"),
            "fetch:GET|http://elsewhere.test/".to_owned(),
        ];
        return (guest("outbound"), bodies.into(), None);
    }
    let project = Project::new(language, &["--with", "http"]);
    project.write("handler", FAULTS);
    let names = FAULTS.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("async ");
        line.strip_prefix('"')?.split_once("\"(")
    });
    let body = |(name, _)| format!("{name}|{}", url(web, ""));
    (project.built(), names.map(body).collect(), Some(project))
}

async fn nine_faults_come_again_without_any_network(language: &str) {
    come_again(language, 1).await;
}

async fn come_again(language: &str, times: usize) {
    const SECRET: &str = "planted-needed";
    let scene = Scene::new(Kind::Stream).await;
    let web = Web::start().await;
    let (handler, bodies, _project) = faults(language, &web);
    assert_eq!(bodies.len(), 9);
    let told = "headers.authorization = \"Bearer ${secret:hidden}\"";
    let config = scene.server.dir().join("orders.toml");
    let text = format!(
        "timeout = \"50s\"\ncpu = \"50s\"\n[limit]\ncompile_time = \"10m\"\n[dead_letter]\nrecording = \"full\"\n\
         {}{NEEDED}hidden = {{ variable = \"NEEDED\" }}\n",
        rule(&web, told)
    );
    std::fs::write(&config, text).unwrap();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    die(&scene, &handler, &config, &bodies.repeat(times)).await;
    let told = web.seen().into_iter().filter_map(|seen| {
        let header = seen.header("authorization");
        header.map(|value| value.contains(SECRET))
    });
    assert_eq!(told.collect::<Vec<_>>(), vec![true; 2 * times]);
    drop(web);

    let exported = scene.dlq("export", &[]).ok().stdout;
    let file = scene.server.dir().join("dead.jsonl");
    let debug = |id: &str| {
        let file = file.to_str().unwrap();
        let words = ["dlq", "debug", "any", id, "--json", "--from", file];
        let config = ["--config", config.to_str().unwrap()];
        let handler = ["--handler", handler.to_str().unwrap()];
        let command = hostler([&words[..], &config, &handler].concat());
        let inside = without_network(&command).unwrap_or_else(|why| {
            println!("skipped: no network around `dlq debug`: {why}");
            command
        });
        end(&mut { inside })
    };
    std::fs::write(&file, &exported).unwrap();
    let entries = entries(&scene);
    assert_eq!(entries.len(), bodies.len() * times);
    let mut printed = exported.clone();
    for entry in &entries {
        let again = debug(entry["id"].as_str().unwrap()).ok();
        let json = again.json();
        assert_eq!(json["verdict"], "same", "{}: {again:?}", entry["body"]);
        assert_eq!(json["recorded"]["outcome"], json["now"]["outcome"]);
        assert_eq!(json["recorded"]["fault"], json["now"]["fault"]);
        assert_eq!(json["recorded"]["detail"], json["now"]["detail"]);
        printed.push_str(&(again.stdout + &again.stderr));
    }

    // Another answer than the recorded one.
    let (before, planted) = (r#"\"status\":422"#, r#"\"status\":418"#);
    assert!(exported.contains(before), "{exported}");
    std::fs::write(&file, exported.replace(before, planted)).unwrap();
    for entry in &entries {
        let again = debug(entry["id"].as_str().unwrap());
        let body = entry["body"].as_str().unwrap();
        let has_answer = body.contains("/status/422") || body.starts_with("answer");
        assert_eq!(verdict(&again) != "same", has_answer, "{again:?}");
        if has_answer {
            let why = again.json()["why"].to_string();
            assert!(
                why.contains("it ended otherwise") && why.contains("418"),
                "{why}"
            );
        }
        printed.push_str(&(again.stdout + &again.stderr));
    }

    assert!(!printed.contains(SECRET));
    // All that Redis holds, as it is.
    scene.raw.ask("CONFIG SET rdbcompression no").await;
    let held: Vec<u8> = scene.dump().await.into_values().flatten().collect();
    let has = |text: &str| held.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has(RECORDING) && !has(SECRET));
}

mod long {
    #[tokio::test(flavor = "multi_thread")]
    async fn two_hundred_dead_letters_run_again_without_any_network() {
        for language in ["rust", "js"] {
            super::come_again(language, 12).await;
        }
    }
}
