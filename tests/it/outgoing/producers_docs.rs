//! The programs of `docs/producers.md` and `docs/replies.md`, taken from the pages and run against a real server: the
//! messages that they write, the hosts that handle these messages, and the answers for which they wait.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use futures_util::StreamExt as _;
use hostler::delivery::message::Headers;
use hostler::wire::list::{self, Framing};
use hostler::wire::stream;
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer};
use serde_json::{Value as Json, json};

const BODY: &[u8] = br#"{"id":"A-1","amount":9.5}"#;

/// The directory of the real clients (`make producers`). Programs without their client do not run.
const CLIENTS: &str = "HOSTLER_TEST_PRODUCERS";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All blocks of one language on a page, with the address of this server.
fn program_of(page: &str, language: &str, server: &RedisServer) -> String {
    let page = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
    let mut program = String::new();
    for block in page.split(&format!("```{language}\n")).skip(1) {
        let (code, _) = block.split_once("```").unwrap();
        writeln!(program, "{code}").unwrap();
    }
    assert!(!program.is_empty(), "no program in {language}");
    program.replace("localhost:6379", &format!("127.0.0.1:{}", server.port()))
}

fn program(language: &str, server: &RedisServer) -> String {
    program_of("producers.md", language, server)
}

/// Run a program to its end. Returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program can be started");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn json(body: &[u8]) -> Json {
    serde_json::from_slice(body).unwrap()
}

fn is_whole((headers, body): &(Headers, Bytes)) -> bool {
    headers.len() == 1 && headers.find_str("tenant") == Some("acme") && json(body) == json(BODY)
}

async fn values(raw: &RawRedis, key: &str, framing: Framing) -> Vec<(Headers, Bytes)> {
    let values = raw.ask(&format!("LRANGE {key} 0 -1")).await;
    let values: Vec<Vec<u8>> = redis::from_redis_value(values).unwrap();
    let parts = values.into_iter().rev().map(|value| {
        let parts = list::parts(&value.into(), framing);
        parts.expect("no value is malformed")
    });
    parts.collect()
}

/// Run a program. It leaves this number of delayed messages for the stream, and the same for the
/// list.
async fn check(server: &RedisServer, delayed: u64, command: &mut Command) {
    let raw = server.raw().await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut listener = client.get_async_pubsub().await.unwrap();
    listener.subscribe("news").await.unwrap();
    run(command);

    let heard = listener.on_message().next().await.unwrap();
    let heard: Vec<u8> = heard.get_payload().unwrap();
    assert!(is_whole(
        &list::parts(&heard.into(), Framing::Frame).unwrap()
    ));

    let entries = raw.entries("orders").await;
    let read: Vec<_> = entries
        .into_iter()
        .map(|(id, fields)| {
            let pairs: Vec<(Bytes, Bytes)> = fields
                .chunks(2)
                .map(|pair| (pair[0].clone().into(), pair[1].clone().into()))
                .collect();
            let options = stream::Options::default();
            let read = stream::decode(&"orders".into(), &id, 0, &pairs, &options);
            assert_eq!(read.defect, None);
            (read.message.headers, read.message.body)
        })
        .collect();
    assert!(is_whole(&read[0]), "{read:?}");
    assert_eq!(json(&read[1].1), json!({"id": "A-1", "amount": "9.5"}));
    assert_eq!(read.len(), 2);

    let jobs = values(&raw, "jobs", Framing::Auto).await;
    assert_eq!((jobs[0].0.len(), json(&jobs[0].1)), (0, json(BODY)));
    assert!(is_whole(&jobs[1]), "{jobs:?}");
    let letters = values(&raw, "letters", Framing::Json).await;
    assert!(letters.len() == 1 && is_whole(&letters[0]), "{letters:?}");

    // Hosts handle the same messages, and wait for the delayed ones.
    let handler = guest("ack").display().to_string();
    let host = HostOptions::new(server).flag("handler", &handler);
    let list = host.clone().without("stream").without("group");
    let list = list.flag("reliable", "true");
    for (host, expected) in [
        (host, 2 + delayed),
        (list.clone().flag("list", "jobs"), 2 + delayed),
        (
            list.flags("list=letters codec=json dead-letter=letters:dead"),
            1,
        ),
    ] {
        let ended = host.finish().await;
        assert_eq!(ended.json()["acked"], expected);
    }
    for (_, fields) in raw.entries("orders").await.into_iter().skip(2) {
        assert_eq!(
            (&fields[0][..], json(&fields[1])),
            (&b"_payload"[..], json(BODY))
        );
        assert_eq!(fields[2..], [&b"h:tenant"[..], b"acme"]);
    }
}

fn server() -> RedisServer {
    RedisOptions::default().tcp().start()
}

#[tokio::test]
async fn the_documented_shell_commands_work() {
    let server = server();
    // The page uses the usual port of this machine; this test must use another.
    let bin = server.dir().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let cli = bin.join("redis-cli");
    let real = "$(PATH=${PATH#*:} command -v redis-cli || PATH=${PATH#*:} command -v valkey-cli)";
    let script = format!("#!/bin/sh\nexec {real} -p {} \"$@\"\n", server.port());
    std::fs::write(&cli, script).unwrap();
    std::fs::set_permissions(&cli, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let program = format!("set -e\n{}", program("sh", &server));
    let mut command = Command::new("sh");
    check(&server, 0, command.args(["-c", &program]).env("PATH", path)).await;
}

/// Python with this program, and the real client or that of the tests.
fn python(program: &str) -> Command {
    let clients = std::env::var_os(CLIENTS).map(PathBuf::from);
    let mut python = match &clients {
        Some(clients) => Command::new(clients.join("venv/bin/python")),
        None => Command::new("python3"),
    };
    let has_package = Command::new("python3")
        .args(["-c", "import redis"])
        .output()
        .is_ok_and(|output| output.status.success());
    if clients.is_none() && !has_package {
        python.env("PYTHONPATH", root().join("tests/producers"));
    }
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python.args(["-c", program]);
    python
}

#[tokio::test]
async fn the_documented_python_program_works() {
    let server = server();
    let program = program("python", &server);
    check(&server, 1, &mut python(&program)).await;
}

/// A program that waits, while a host replies to each message with its body.
async fn waits(server: &RedisServer, mut program: Command) {
    let handler = guest("replying").display().to_string();
    let host = HostOptions::new(server).flag("handler", &handler);
    let host = host.ready().await;
    let printed = tokio::task::spawn_blocking(move || run(&mut program)).await;
    let printed = printed.unwrap();
    let (status, value) = printed.trim_end().split_once(' ').unwrap();
    assert_eq!((status, json(value.as_bytes())), ("acked", json(BODY)));
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_python_program_gets_its_answer() {
    let server = server();
    let program = program_of("replies.md", "python", &server);
    waits(&server, python(&program)).await;
}

/// As below.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_node_and_go_programs_get_their_answers() {
    let clients = std::env::var_os(CLIENTS).map(PathBuf::from);
    for (language, file, words) in [
        ("js", "node/replies.mjs", &["node", "replies.mjs"][..]),
        ("go", "go/replies/main.go", &["go", "run", "./replies"]),
    ] {
        let server = server();
        let program = program_of("replies.md", language, &server);
        for part in ["orders", "x-reply-to", "{orders}:replies:"] {
            assert!(program.contains(part), "{language}: no {part}");
        }
        let Some(clients) = &clients else {
            continue;
        };
        let file = clients.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, program).unwrap();
        let mut command = Command::new(words[0]);
        let folder = clients.join(if language == "go" { "go" } else { "node" });
        command.args(&words[1..]).current_dir(folder);
        waits(&server, command).await;
    }
}

/// These programs need their clients, from `make producers`. Without them, the test only checks
/// that the page has the whole programs.
#[tokio::test]
async fn the_documented_node_go_and_java_programs_work() {
    let clients = std::env::var_os(CLIENTS).map(PathBuf::from);
    for (language, file, words) in [
        ("js", "node/producer.mjs", &["node", "producer.mjs"][..]),
        ("go", "go/main.go", &["go", "run", "."]),
        (
            "java",
            "java/Producer.java",
            &["java", "-cp", "jars/*", "Producer.java"],
        ),
    ] {
        let server = server();
        let program = program(language, &server);
        for part in ["orders", "tenant", "jobs", "letters", "news", "frame("] {
            assert!(program.contains(part), "{language}: no {part}");
        }
        let Some(clients) = &clients else {
            continue;
        };
        let file = clients.join(file);
        std::fs::write(&file, program).unwrap();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(file.parent().unwrap());
        check(&server, 0, &mut command).await;
    }
}
