//! Output that is drawn only on a terminal: the progress of a replay, and `hostler watch`.

use hostler::delivery::policy::Reason;
use hostler_tests::command::{hostler, run};
use hostler_tests::redis::eventually;
use hostler_tests::terminal::Terminal;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};

on_both! {
    watch_redraws_the_queue_until_a_key_ends_it
    watch_shows_the_reports_of_hosts
    watch_restores_the_terminal_when_it_is_stopped
}

/// The sequences that enter and leave the alternate screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

mod measured {
    use super::*;

    on_both! {
        the_progress_of_a_replay_is_drawn_only_on_a_terminal
    }

    async fn the_progress_of_a_replay_is_drawn_only_on_a_terminal(kind: Kind) {
        let scene = Scene::new(kind).await;
        for n in 0..60 {
            scene.letter(&n.to_string(), Reason::Trap).await;
        }
        let words = scene.words("replay", &["--rate", "20/s", "--limit", "30"]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout");
        let file = std::fs::File::create(&path).unwrap();
        let mut terminal = Terminal::spawn_into(hostler(&words), file);
        // The progress is drawn before the end of the replay.
        terminal.until("a part of the progress", |text| {
            let drawn = text.match_indices(" of 30 replayed");
            let counts = drawn.filter_map(|(at, _)| text[..at].rsplit(' ').next()?.parse().ok());
            counts
                .into_iter()
                .any(|count: u32| (1..30).contains(&count))
        });
        assert_eq!(terminal.end(), 0, "{}", terminal.text());
        // Standard output holds only data, and the bar is erased.
        let stdout = std::fs::read_to_string(&path).unwrap();
        let key = scene.key();
        assert_eq!(stdout, format!("replayed 30\n\nto {key}  30\n"));
        assert!(terminal.raw().ends_with("\u{1b}[2K") || terminal.raw().ends_with('\r'));

        let plain = run(&words).ok();
        assert_eq!(plain.stderr, "", "without a terminal there is no bar");
        assert_eq!(plain.stdout, format!("replayed 30\n\nto {key}  30\n"));
    }
}

fn watch(scene: &Scene, more: &[&str]) -> Vec<String> {
    let url = scene.server.url();
    let queue: &[&str] = match scene.kind {
        Kind::Stream => &["--stream", "orders", "--group", "workers"],
        Kind::List => &["--list", "jobs", "--reliable"],
    };
    let first = ["watch", "--redis", &url, "--dead-letter", scene.dead_key()];
    let words = first
        .iter()
        .chain(queue)
        .chain(&["--every", "100ms"])
        .chain(more);
    words.map(|word| (*word).to_owned()).collect()
}

/// A queue with seven unread messages and three dead letters.
async fn watched(kind: Kind) -> Scene {
    let scene = Scene::new(kind).await;
    for _ in 0..7 {
        scene.send("ack").await;
    }
    if kind == Kind::Stream {
        scene.raw.ask("XGROUP CREATE orders workers 0").await;
    }
    for reason in [Reason::Timeout, Reason::Timeout, Reason::Dropped] {
        scene.letter("x", reason).await;
    }
    scene
}

async fn watch_redraws_the_queue_until_a_key_ends_it(kind: Kind) {
    let scene = watched(kind).await;
    let mut terminal = Terminal::spawn(hostler(watch(&scene, &[])));
    let dead = scene.dead_key();
    for part in [
        scene.key(),
        "unread 7",
        &format!("dead letters: 3 of 100000 in {dead}"),
        "timeout 2",
        "dropped 1",
        "q: quit",
    ] {
        terminal.shows(part);
    }
    assert!(terminal.raw().contains(ENTER));
    // The view updates itself.
    scene.letter("y", Reason::Oversize).await;
    terminal.shows("oversize");
    terminal.types("q");
    assert_eq!(terminal.end(), 0, "{}", terminal.text());
    assert_restored(&terminal).await;

    // Without a terminal: one line per update, without colours and cursor movements.
    let plain = run(watch(&scene, &["--count", "2"])).ok();
    assert_eq!(plain.stdout.lines().count(), 2);
    assert!(!plain.stdout.contains('\u{1b}'), "{}", plain.stdout);
    let expected = "  dead 4 (dropped 1, oversize 1, timeout 2)";
    for line in plain.stdout.lines() {
        assert!(
            line.contains("  unread 7  ") && line.contains(expected),
            "{line}"
        );
    }
    let json = run(watch(&scene, &["--json", "--count", "1"])).ok().stdout;
    let look: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&look["lag"], &look["dead_letters"]),
        (&7.into(), &4.into())
    );
    assert_eq!(look["dead_by_reason"]["timeout"], 2);
}

/// The reports contain the running handler and the recent faults.
async fn watch_shows_the_reports_of_hosts(kind: Kind) {
    let scene = watched(kind).await;
    let options = scene.binary().flags("max-deliveries=1 timeout=1h").admin();
    let host = options.ready().await;
    scene.send("trap").await;
    scene.send("sleep:600000").await;
    host.starts(9).await;
    let log = host.log();
    let logged = |name: &str| log.iter().find_map(|line| line.text(name)).unwrap();
    let digest = logged("handler").trim_start_matches("sha256:");
    let address = logged("address");
    let mut terminal = Terminal::spawn(hostler(watch(&scene, &["--admin", address])));
    terminal.shows("unread 0");
    terminal.shows(&format!("{address} {} ", &digest[..12]));
    terminal.shows("recent faults");
    terminal.shows("unreachable");
    terminal.shows("max-deliveries 1");
    terminal.types("q");
    assert_eq!(terminal.end(), 0, "{}", terminal.text());
    host.kill().await;
}

async fn watch_restores_the_terminal_when_it_is_stopped(kind: Kind) {
    let scene = watched(kind).await;
    for (key, signal, code) in [
        (Some("\u{3}"), None, 0),
        (None, Some(Signal::SIGINT), 130),
        (None, Some(Signal::SIGTERM), 143),
    ] {
        let mut terminal = Terminal::spawn(hostler(watch(&scene, &[])));
        terminal.shows("q: quit");
        if let Some(key) = key {
            terminal.types(key);
        }
        if let Some(signal) = signal {
            terminal.signal(signal);
        }
        assert_eq!(terminal.end(), code, "{}", terminal.text());
        assert_restored(&terminal).await;
    }
    // An error is printed before the view enters the alternate screen.
    let wrong = watch(&scene, &[]).into_iter().map(|word| match &*word {
        "orders" | "jobs" => "nobody".to_owned(),
        _ => word,
    });
    if kind == Kind::Stream {
        let mut terminal = Terminal::spawn(hostler(wrong));
        assert_eq!(terminal.end(), 64, "{}", terminal.text());
        terminal.shows("error:");
        assert!(!terminal.raw().contains(ENTER));
    }
}

async fn assert_restored(terminal: &Terminal) {
    eventually("the screen is restored", async || {
        terminal.raw().contains(LEAVE)
    })
    .await;
}
