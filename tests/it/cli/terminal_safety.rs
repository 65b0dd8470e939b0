//! Texts of other programs act on no terminal: control characters, marks of the writing direction and line
//! separators are escaped wherever people look. On streams and on reliable lists.

use hostler::delivery::policy::Reason;
use hostler_tests::command::{Ended, hostler, run};
use hostler_tests::terminal::Terminal;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};

on_both! {
    no_command_prints_what_acts_on_a_terminal
    watch_draws_nothing_that_acts_on_a_terminal
}

/// A character of each sort: escape, C1, delete, bell, bidi, separators of lines and paragraphs.
const HOSTILE: &str =
    "<owned\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\u{85}\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{61c}>";

fn acts(c: char) -> bool {
    let acts_in_unicode = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
    ) || matches!(c, '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n' && c != '\t') || acts_in_unicode
}

fn is_safe(ended: &Ended) {
    for text in [&ended.stdout, &ended.stderr] {
        let found = text.chars().find(|c| acts(*c));
        assert_eq!(
            found,
            None,
            "{:?} in {text:?}",
            found.map(|c| c.escape_unicode().to_string())
        );
    }
}

/// A queue, its dead letters, hosts, versions and policies, as hostile programs write them.
async fn hostile(kind: Kind) -> Scene {
    let scene = Scene::new(kind).await;
    let (key, dead) = (scene.key(), scene.dead_key());
    scene.put(key, HOSTILE, &[("h", HOSTILE)]).await;
    // Those who hold its messages.
    let held = b"12345678 16 bytes of a token".as_slice();
    let words: &[&[&[u8]]] = match kind {
        Kind::Stream => &[
            &[b"XGROUP", b"CREATE", b"orders", b"workers", b"0"],
            &[b"XGROUP", b"CREATE", b"orders", HOSTILE.as_bytes(), b"0"],
            &[
                b"XREADGROUP",
                b"GROUP",
                b"workers",
                HOSTILE.as_bytes(),
                b"STREAMS",
                b"orders",
                b">",
            ],
        ],
        Kind::List => &[
            &[b"ZADD", b"{jobs}:instances", b"1", HOSTILE.as_bytes()],
            &[b"LPUSH", b"{jobs}:processing:x", held],
        ],
    };
    for words in words {
        scene.raw.ask_words(words).await;
    }
    // Dead letters: written by a host, and by a program that writes what it likes.
    let headers = [("x", HOSTILE), (HOSTILE, "x")];
    scene.letter_of(HOSTILE, Reason::Trap, &headers, 0).await;
    let death = format!(r#"[{{"queue":"{HOSTILE}","reason":"{HOSTILE}"}}]"#);
    let death: String = death.chars().filter(|c| u32::from(*c) >= 0x20).collect();
    let foreign = [
        ("x-dead-letter-reason", HOSTILE),
        ("x-dead-letter-detail", HOSTILE),
        ("x-dead-letter-source", HOSTILE),
        ("x-dead-letter-source-id", HOSTILE),
        ("x-dead-letter-handler", HOSTILE),
        ("x-dead-letter-group", HOSTILE),
        ("x-dead-letter-attempts", "3"),
        ("x-death", &*death),
    ];
    scene
        .put(dead, format!("{HOSTILE}\n{HOSTILE}"), &foreign)
        .await;
    // A version, and a host that runs it.
    let versions = format!("{{{key}}}:versions");
    let version = format!("sha256:{HOSTILE} 12 1700000000000 {HOSTILE}");
    let host = serde_json::json!({
        "consumer": HOSTILE, "group": (kind == Kind::Stream).then_some("workers"),
        "hostler": HOSTILE, "at_ms": 1, "accepts_deploys": true,
        "not_ready": [format!("handler: {HOSTILE}")],
        "rules": [{"setting": HOSTILE, "value": HOSTILE, "from": HOSTILE}],
        "rules_refused": HOSTILE,
        "handler": {
            "current": {"digest": HOSTILE, "origin": HOSTILE}, "previous": null,
            "canary": {"digest": HOSTILE, "origin": HOSTILE, "share": HOSTILE},
            "refused": {"digest": HOSTILE, "origin": HOSTILE, "step": HOSTILE, "reason": HOSTILE, "at_ms": 1},
        },
    });
    let (host, name) = (host.to_string(), format!("{{{key}}}:host:{HOSTILE}"));
    let (hosts, policy) = (format!("{{{key}}}:hosts"), format!("{{{key}}}:policy"));
    let texts: [&[&str]; 5] = [
        &[
            "HSET", &versions, "token", "t", "wanted", "1", "v:1", &version,
        ],
        &["ZADD", &hosts, "1", HOSTILE],
        &["SET", &name, &host],
        &["HSET", &policy, HOSTILE, HOSTILE, "max_deliveries", HOSTILE],
        &["HSET", "hostler:policies", &format!("{HOSTILE} *"), HOSTILE],
    ];
    for words in texts {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        scene.raw.ask_words(&words).await;
    }
    scene
}

async fn no_command_prints_what_acts_on_a_terminal(kind: Kind) {
    let scene = hostile(kind).await;
    let (url, key) = (scene.url(), scene.key());
    let dead = scene.dead_key();
    let shown = |ended: Ended, what: &str| {
        is_safe(&ended);
        // It is shown, not left out.
        assert!(ended.stdout.contains("owned"), "{what}: {ended:?}");
    };
    for json in [&[][..], &["--json"]] {
        for more in [&[][..], &["--dead-letter", dead]] {
            shown(
                run(scene.inspecting(&[more, json].concat())).ok(),
                "inspect",
            );
        }
        let versions = ["versions", "--redis", &url, "--queue-key", key];
        shown(run(versions.iter().chain(json)).ok(), "versions");
        let policy = ["policy", "get", "--redis", &url, "--queue", key];
        shown(run(policy.iter().chain(json)).ok(), "policy get");
        let peek = scene.dlq("peek", &[&["--limit", "9"], json].concat()).ok();
        for entry in scene.letters().peek(9).await.unwrap().entries {
            shown(
                scene.dlq("show", &[&[&*entry.id], json].concat()).ok(),
                "show",
            );
        }
        shown(peek, "peek");
        for (command, more) in [("replay", "--to=attic"), ("purge", "--limit=9")] {
            let dry = [&["--dry-run", "--any-entry", more][..], json].concat();
            is_safe(&scene.dlq(command, &dry).ok());
        }
        let mut watch =
            scene.inspecting(&[&["--dead-letter", dead, "--count", "1"], json].concat());
        "watch".clone_into(&mut watch[0]);
        shown(run(watch).ok(), "watch");
    }
    shown(scene.dlq("export", &["--any-entry"]).ok(), "export");
    // The lines of an export are the same messages as before.
    let lines = scene
        .dlq("export", &["--any-entry", "--reason", "trap"])
        .ok()
        .stdout;
    let line: serde_json::Value = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(line["body"], HOSTILE);
    // Of replays without `--to`, the report names the queues.
    shown(scene.dlq("replay", &["--dry-run"]).ok(), "replay");

    // Errors repeat what the user has typed.
    let argument = HOSTILE.replace('\0', "");
    for words in [
        vec!["dlq", "show", "--redis", &url, dead, &argument],
        vec!["dlq", "peek", "--redis", &url, dead, &argument],
        vec!["dlq", "replay", "--redis", &url, dead, "--rate", &argument],
        vec![
            "inspect", "--redis", &url, "--stream", &argument, "--group", "g",
        ],
        vec!["policy", "set", "--redis", &url, "--queue", "q", &argument],
        vec!["check", &argument],
        vec!["run", "--config", &argument],
        vec![&argument],
    ] {
        let ended = run(&words);
        is_safe(&ended);
        assert_ne!(ended.code, 0, "{ended:?}");
        assert!(
            ended.stderr.contains("owned"),
            "it says what was wrong: {ended:?}"
        );
    }
    let peek = run(["dlq", "peek", "--redis", &url, &argument]);
    is_safe(&peek);
}

async fn watch_draws_nothing_that_acts_on_a_terminal(kind: Kind) {
    let scene = hostile(kind).await;
    scene.send("x").await;
    let mut words = scene.inspecting(&["--dead-letter", scene.dead_key()]);
    "watch".clone_into(&mut words[0]);
    let mut terminal = Terminal::spawn(hostler(&words));
    terminal.shows("is stopped: handler:");
    terminal.shows("q: quit");
    terminal.types("q");
    terminal.end();
    let drawn = terminal.raw();
    // The sequences of the screen itself have none of these.
    for c in [
        '\u{7}', '\u{9b}', '\u{85}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{61c}',
    ] {
        assert!(!drawn.contains(c), "{c:?} in {drawn:?}");
    }
    assert!(!drawn.contains("\u{1b}]0;"), "{drawn:?}");

    // An error on a terminal has the colours of hostler only.
    let mut terminal = Terminal::spawn(hostler([HOSTILE]));
    assert_eq!(terminal.end(), 64);
    terminal.shows("owned");
    assert!(
        !terminal.raw().contains("\u{1b}]0;"),
        "{:?}",
        terminal.raw()
    );
    assert!(!terminal.raw().contains('\u{202e}'), "{:?}", terminal.raw());
}

#[tokio::test]
async fn a_message_id_that_a_producer_chose_forges_nothing_in_the_log() {
    for format in ["json", "pretty"] {
        let scene = Scene::new(Kind::List).await;
        let id = format!("a{HOSTILE}\nforged level=ERROR");
        let letter = [("x-message-id", &*id)];
        scene.put(scene.key(), "trap", &letter).await;
        let host = scene.binary().flag("max-deliveries", "1");
        let ended = host.flag("log-format", format).until_empty().finish().await;
        let log = ended.stderr();
        let about = |line: &&str| line.contains("owned");
        // Two lines of the guest, which prints it, the fault, and the dead letter.
        assert_eq!(log.lines().filter(about).count(), 4, "{log}");
        assert_eq!(log.chars().find(|c| acts(*c)), None, "{log:?}");
        // It stays inside of its field.
        if format == "pretty" {
            let quoted = |line: &str| line.contains("forged level=ERROR\"");
            assert!(log.lines().filter(about).all(quoted), "{log}");
        }
    }
}
