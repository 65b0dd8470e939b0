//! `hostler dlq show|replay|purge|export`, by the built binary.

use harness::command::{Ended, end, fed, hostler, run};
use harness::redis::{RawRedis, RedisServer};
use hostler_tests as harness;
use serde_json::json;

const DEAD: &str = "orders:dead";

struct Scene {
    server: RedisServer,
    raw: RawRedis,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let server = RedisServer::start();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let raw = runtime.block_on(server.raw());
        Self {
            server,
            raw,
            runtime,
        }
    }

    /// A dead letter of `orders`; returns its id.
    fn letter(&self, body: &[u8], reason: &str, more: &[(&[u8], &[u8])]) -> String {
        let mut words: Vec<&[u8]> = vec![b"XADD", DEAD.as_bytes(), b"*", b"_payload", body];
        words.extend([b"h:x-dead-letter-reason".as_slice(), reason.as_bytes()]);
        words.extend([b"h:x-dead-letter-source".as_slice(), b"orders"]);
        words.extend(more.iter().flat_map(|(name, value)| [*name, *value]));
        let id = self.runtime.block_on(self.raw.ask_words(&words));
        redis::from_redis_value(id).unwrap()
    }

    fn entries(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        let entries = self.runtime.block_on(self.raw.entries(key));
        entries.into_iter().map(|(_, fields)| fields).collect()
    }

    fn dlq(&self, command: &str, more: &[&str]) -> Vec<String> {
        let url = self.server.url();
        let first = ["dlq", command, "--redis", &url, DEAD];
        let all = first.iter().chain(more);
        all.map(|word| (*word).to_owned()).collect()
    }

    fn run(&self, command: &str, more: &[&str]) -> Ended {
        run(self.dlq(command, more))
    }
}

#[test]
fn show_prints_one_whole() {
    let scene = Scene::new();
    let history = br#"[{"queue":"orders","reason":"trap","count":2,"first-time":1700000000000,"last-time":1700000001000,"original-expiration":1700000002000}]"#;
    let id = scene.letter(
        b"line one\nline \x1b[31mtwo",
        "trap",
        &[
            (b"h:x-death", history),
            (b"h:x-dead-letter-detail", b"boom"),
            (b"h:X-Tenant", b"7"),
        ],
    );
    let shown = scene.run("show", &[&id]).ok().stdout;
    for part in [
        "reason  trap",
        "detail  boom",
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:22.000Z",
        "X-Tenant",
        "line one\nline \\u{1b}[31mtwo\n",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let json = scene.run("show", &[&id, "--json"]).ok().json();
    assert_eq!(json["id"], id);
    assert_eq!(json["body"], "line one\nline \u{1b}[31mtwo");
    assert_eq!(json["history"][0]["count"], 2);
    assert_eq!(
        json["history"][0]["original_expiration_ms"],
        1_700_000_002_000_u64
    );

    let missing = scene.run("show", &["1-1"]);
    assert_eq!(missing.code, 64);
    assert!(
        missing
            .stderr
            .starts_with("error: `orders:dead` has no entry 1-1\nhint: ")
    );
    let nonsense = scene.run("show", &["x"]);
    assert_eq!(nonsense.code, 64);
    assert!(
        nonsense
            .stderr
            .starts_with("error: `x` is no id of an entry"),
        "{nonsense:?}"
    );
}

#[test]
fn replay_says_what_it_did_and_what_it_left() {
    let scene = Scene::new();
    scene.letter(b"1", "timeout", &[]);
    scene.letter(b"2", "trap", &[]);
    scene.letter(b"3", "trap", &[(b"h:x-replayed", b"3")]);
    let planned = scene.run("replay", &["--dry-run", "--json"]).ok().json();
    assert_eq!(
        planned,
        json!({"replayed": 2, "targets": {"orders": 2}, "skipped": {"max-replays": 1},
               "refusal": null, "dry_run": true})
    );
    let text = scene
        .run("replay", &["--reason", "timeout", "--rate", "5/s"])
        .ok();
    assert_eq!(text.stdout, "replayed 1\n\nto orders  1\n");
    let text = scene.run("replay", &[]).ok().stdout;
    assert!(
        text.starts_with("replayed 1\n\nto orders  1\n\nleft  1  replayed 3 times already: "),
        "{text}"
    );
    let ended = scene
        .run("replay", &["--max-replays", "4", "--to", "attic"])
        .ok();
    assert_eq!(ended.stdout, "replayed 1\n\nto attic  1\n");
    assert_eq!(scene.entries("orders").len(), 2);
    assert_eq!(scene.entries("attic").len(), 1);
    assert_eq!(scene.entries(DEAD).len(), 0);
    let none = scene.run("replay", &["--reason", "timeuot"]).ok();
    assert_eq!(none.stdout, "replayed 0\n");
    assert!(
        none.stderr.contains("warning: no entry died for `timeuot`"),
        "{none:?}"
    );

    scene.runtime.block_on(scene.raw.ask("DEL orders"));
    scene.runtime.block_on(scene.raw.ask("SET orders x"));
    scene.letter(b"4", "trap", &[]);
    let refused = scene.run("replay", &[]);
    assert_eq!(refused.code, 64);
    assert!(refused.stdout.contains("left  1  refused by redis"));
    assert!(
        refused
            .stderr
            .starts_with("error: redis would not take 1 of them back: "),
        "{refused:?}"
    );
    for wrong in [["--rate", "0"], ["--rate", "x"], ["--older-than", "5"]] {
        assert_eq!(scene.run("replay", &wrong).code, 64, "{wrong:?}");
    }
}

#[test]
fn what_is_exported_has_a_shape_and_what_is_published_a_place() {
    let scene = Scene::new();
    scene.letter(b"plain", "trap", &[]);
    let odd = [
        b"XADD".as_slice(),
        DEAD.as_bytes(),
        b"*",
        b"a",
        b"1",
        b"a",
        b"\xff",
    ];
    scene.runtime.block_on(scene.raw.ask_words(&odd));
    let lines = scene.run("export", &[]).ok().stdout;
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["body"], &first["reason"]),
        (&json!("plain"), &json!("trap"))
    );
    let unknown = scene.run("export", &["--reason", "unknown"]).ok().stdout;
    assert_eq!(unknown.lines().count(), 1);

    let url = scene.server.url();
    let publish = [
        "publish", "--redis", &url, "--lines", "--json", "--stream", "again",
    ];
    let published = fed(publish, lines.as_bytes()).ok();
    assert_eq!(published.stdout.lines().count(), 2);
    assert!(published.stdout.starts_with("{\"id\":\""));

    // A header of the command line is added; a list takes messages, but no bare fields.
    let with = publish.iter().chain(&["--header", "batch=1"]);
    let ended = fed(with, b"{\"body\":\"b\",\"headers\":{\"a\":\"1\"}}\n").ok();
    assert_eq!(ended.stdout.lines().count(), 1);
    let last = scene.entries("again").pop().unwrap();
    let expected: Vec<Vec<u8>> = ["_payload", "b", "h:a", "1", "h:batch", "1"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
    assert_eq!(last, expected);
    let list = [
        "publish", "--redis", &url, "--lines", "--json", "--list", "jobs",
    ];
    let bare = lines.lines().last().unwrap();
    let refused = fed(list, bare.as_bytes());
    assert_eq!(refused.code, 64);
    assert!(
        refused.stderr.contains("only a stream can hold it"),
        "{refused:?}"
    );

    let wrong = fed(publish, b"{\"body\":\"one\"}\nhello\n");
    assert_eq!((wrong.code, wrong.stdout.lines().count()), (64, 1));
    assert!(
        wrong
            .stderr
            .starts_with("error: line 2 of stdin is not a message in JSON"),
        "{wrong:?}"
    );
}

#[test]
fn a_key_that_is_no_queue_is_told() {
    let scene = Scene::new();
    scene.runtime.block_on(scene.raw.ask("SET orders:dead x"));
    for command in ["peek", "replay", "purge", "export"] {
        let ended = end(&mut hostler(scene.dlq(command, &[])));
        assert_eq!(ended.code, 64, "{command}: {ended:?}");
        assert!(
            ended.stderr.contains("`orders:dead` is no stream"),
            "{command}: {ended:?}"
        );
    }
}
