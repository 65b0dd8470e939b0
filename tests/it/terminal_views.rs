//! What is drawn on a terminal, and only there: the progress of a replay, and `hostler watch`.

use hostler::delivery::policy::Reason;
use hostler_tests::command::{hostler, run};
use hostler_tests::redis::eventually;
use hostler_tests::terminal::Terminal;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::dlq_scene::{Kind, Scene, on_both};

on_both! {
    the_progress_of_a_replay_is_drawn_on_a_terminal_and_only_there
    watch_draws_the_queue_again_and_again_until_a_key_ends_it
    watch_shows_what_hosts_tell
    watch_leaves_the_terminal_as_it_was_when_it_is_told_to_stop
}

/// The screen beside the one that scrolls: taken, and given back.
const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

async fn the_progress_of_a_replay_is_drawn_on_a_terminal_and_only_there(kind: Kind) {
    let scene = Scene::new(kind).await;
    for n in 0..60 {
        scene.letter(&n.to_string(), Reason::Trap).await;
    }
    let words = scene.words("replay", &["--rate", "20/s", "--limit", "30"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stdout");
    let file = std::fs::File::create(&path).unwrap();
    let mut terminal = Terminal::spawn_into(hostler(&words), file);
    // From the first ones on, while there is more to do.
    terminal.until("some of all", |text| {
        let drawn = text.match_indices(" of 30 replayed");
        let counts = drawn.filter_map(|(at, _)| text[..at].rsplit(' ').next()?.parse().ok());
        counts
            .into_iter()
            .any(|count: u32| (1..30).contains(&count))
    });
    assert_eq!(terminal.end(), 0, "{}", terminal.text());
    // Data is data, and the bar leaves no trace.
    let stdout = std::fs::read_to_string(&path).unwrap();
    let key = scene.key();
    assert_eq!(stdout, format!("replayed 30\n\nto {key}  30\n"));
    assert!(terminal.raw().ends_with("\u{1b}[2K") || terminal.raw().ends_with('\r'));

    let plain = run(&words).ok();
    assert_eq!(plain.stderr, "", "nobody looks");
    assert_eq!(plain.stdout, format!("replayed 30\n\nto {key}  30\n"));
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

/// A queue with some unread messages, and some dead letters.
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

async fn watch_draws_the_queue_again_and_again_until_a_key_ends_it(kind: Kind) {
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
    assert!(terminal.raw().contains(TAKEN));
    // It looks again by itself.
    scene.letter("y", Reason::Oversize).await;
    terminal.shows("oversize");
    terminal.types("q");
    assert_eq!(terminal.end(), 0, "{}", terminal.text());
    assert_given_back(&terminal).await;

    // The same where no terminal is: a line for each look, without any colour or movement.
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

/// What runs, since when, which handler, and the faults of late.
async fn watch_shows_what_hosts_tell(kind: Kind) {
    let scene = watched(kind).await;
    let options = scene.binary().flag("max-deliveries", "1").admin();
    let host = options.ready().await;
    scene.send("trap").await;
    scene.send("sleep:60000").await;
    host.starts(9).await;
    let log = host.log();
    let told = |name: &str| log.iter().find_map(|line| line.text(name)).unwrap();
    let digest = told("handler").trim_start_matches("sha256:").to_owned();
    let address = told("address").to_owned();
    let mut terminal = Terminal::spawn(hostler(watch(&scene, &["--admin", &address])));
    terminal.shows("unread 0");
    terminal.shows(&format!("{address} {} ", &digest[..12]));
    terminal.shows("faults of late");
    terminal.shows("unreachable");
    terminal.shows("max-deliveries 1");
    terminal.types("q");
    assert_eq!(terminal.end(), 0, "{}", terminal.text());
    host.kill().await;
}

async fn watch_leaves_the_terminal_as_it_was_when_it_is_told_to_stop(kind: Kind) {
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
        assert_given_back(&terminal).await;
    }
    // What is wrong is told before the screen is taken.
    let wrong = watch(&scene, &[]).into_iter().map(|word| match &*word {
        "orders" | "jobs" => "nobody".to_owned(),
        _ => word,
    });
    if kind == Kind::Stream {
        let mut terminal = Terminal::spawn(hostler(wrong));
        assert_eq!(terminal.end(), 64, "{}", terminal.text());
        terminal.shows("error:");
        assert!(!terminal.raw().contains(TAKEN));
    }
}

async fn assert_given_back(terminal: &Terminal) {
    eventually("the screen is given back", async || {
        terminal.raw().contains(GIVEN_BACK)
    })
    .await;
}
