//! The binary: files of hosts, `hostler schedule`, and where schedules are shown.

use std::path::{Path, PathBuf};

use hostler_tests::command::{Ended, run};
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RedisOptions, RedisServer, documented_user, eventually};
use serde_json::Value;

use crate::redis::security_user::{confined_url, docs};

/// `hostler schedule`, on the queue `orders` of this server.
fn schedule(server: &RedisServer, words: &[&str]) -> Ended {
    let url = server.url();
    let (verb, rest) = words.split_first().unwrap();
    let all = [
        "schedule", verb, "--redis", &url, "--stream", "orders", "--group", "workers",
    ];
    run(all.iter().chain(rest))
}

fn config(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("orders.toml");
    std::fs::write(&file, text).unwrap();
    file
}

fn with(server: &RedisServer, file: &Path) -> HostOptions {
    HostOptions::new(server).flag("config", &file.display().to_string())
}

const NIGHTLY: &str = r#"
[schedule.nightly]
cron = "30 2 * * *"
zone = "Europe/Berlin"
body_file = "report.json"
headers = { tenant = "acme" }
catch_up = 3
overlap = "skip"

[schedule.each]
cron = "* * * * * *"
body = "ack"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_publishes_and_handles_the_ticks_of_its_file() {
    let server = RedisServer::start();
    std::fs::write(server.dir().join("report.json"), "ack").unwrap();
    let file = config(server.dir(), NIGHTLY);
    let host = with(&server, &file).admin().ready().await;
    host.starts(2).await;
    eventually("ticks are counted", async || {
        host.metric("hostler_schedule_ticks_total") >= 2
    })
    .await;

    let all = schedule(&server, &["list", "--json"]).ok().json();
    assert_eq!(all[1]["name"], "nightly");
    assert_eq!(all[1]["zone"], "Europe/Berlin");
    assert_eq!(all[1]["catch_up"], "3");
    assert_eq!(all[1]["overlap"], "skip");
    assert_eq!(all[1]["source"], "orders.toml (workers)");
    assert_eq!(all[1]["next_ms"].as_array().unwrap().len(), 3);
    let text = schedule(&server, &["list"]).ok().stdout;
    assert!(
        text.contains("30 2 * * *") && text.contains("orders.toml (workers)"),
        "{text}"
    );

    // A run by hand is published by the host. Its id says where it comes from.
    let ran = schedule(&server, &["run", "nightly"]).ok().stdout;
    let id = ran.trim();
    assert!(id.starts_with("cron:nightly:20"), "{ran}");
    let url = server.url();
    let traced = run(["trace", "--redis", &url, id]).ok().stdout;
    assert!(
        traced.contains("comes from the schedule nightly, tick 20"),
        "{traced}"
    );

    // The queue is shown with its schedules.
    let queues = run(["queues", "--redis", &url, "--json"]).ok().json();
    assert_eq!(queues[0]["schedules"].as_array().unwrap().len(), 2);
    let inspected = run(["inspect", "--redis", &url, "orders"]).ok().stdout;
    assert!(inspected.contains("Europe/Berlin"), "{inspected}");
    let watched = run(["watch", "--redis", &url, "orders", "--count", "1"]);
    assert!(watched.stdout.contains("each at "), "{watched:?}");

    schedule(&server, &["pause", "each"]).ok();
    let paused = schedule(&server, &["list", "--json"]).ok().json();
    assert_eq!(paused[0]["paused"], Value::Bool(true));
    schedule(&server, &["resume", "each"]).ok();
    // A file without them removes them.
    host.drained().await;
    let file = config(server.dir(), "");
    let host = with(&server, &file).ready().await;
    eventually("they are removed", async || {
        schedule(&server, &["list", "--json"]).ok().json() == Value::Array(Vec::new())
    })
    .await;
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_of_the_command_line_are_added_shown_and_removed() {
    let server = RedisServer::start();
    let all = |words: &[&str]| schedule(&server, words);
    let nightly = [
        "add",
        "nightly",
        "--cron",
        "30 2 * * *",
        "--zone",
        "Europe/Berlin",
        "--body",
        "x",
    ];
    let added = all(&nightly).ok().stdout;
    assert!(
        added.contains("T02:30:00+0") || added.contains("T03:00:00+02"),
        "{added}"
    );
    all(&nightly).ok();
    let next = all(&["next", "nightly", "--count", "400", "--json"])
        .ok()
        .json();
    let next = next.as_array().unwrap();
    assert_eq!(next.len(), 400);
    // Across both changes of the clocks.
    let local = |tick: &Value| tick["local"].as_str().unwrap().to_owned();
    assert!(next.iter().map(local).any(|local| local.contains("+01:00")));
    assert!(next.iter().map(local).any(|local| local.contains("+02:00")));
    assert_eq!(all(&["next", "nightly"]).ok().stdout.lines().count(), 5);

    for (words, said) in [
        (
            &["add", "x", "--cron", "61 * * * *"][..],
            "is no cron expression",
        ),
        (&["add", "x", "--cron", "0 0 30 2 *"], "never comes"),
        (
            &["add", "x", "--cron", DAILY, "--zone", "Europe/Atlantis"],
            "no time zone `Europe/Atlantis`",
        ),
        (&["add", "a b", "--cron", DAILY], "a name has 1 to 64"),
        (
            &["add", "x", "--cron", DAILY, "--header", "X-Message-Id=1"],
            "is the id of the tick",
        ),
        (
            &["add", "x", "--cron", DAILY, "--catch-up", "0"],
            "is not `none`, `last` or a number",
        ),
        (&["next", "unknown"], "no schedule `unknown`"),
        (&["pause", "unknown"], "no schedule `unknown`"),
        (&["run", "unknown"], "no schedule `unknown`"),
    ] {
        let refused = all(words);
        assert_eq!(refused.code, 64, "{words:?}: {refused:?}");
        assert!(refused.stderr.contains(said), "{words:?}: {refused:?}");
    }
    all(&["remove", "nightly"]).ok();
    assert_eq!(all(&["list"]).ok().stdout, "the queue has no schedules\n");
}

const DAILY: &str = "30 2 * * *";

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_schedule_is_named_before_the_start() {
    let server = RedisServer::start();
    for (text, said) in [
        (
            "[schedule.a]\ncron = \"61 * * * *\"",
            "`a`: `61 * * * *` is no cron expression",
        ),
        ("[schedule.a]\nzone = \"UTC\"", "`a`: `cron` is missing"),
        (
            "[schedule.a]\ncron = \"@daily\"\nzone = \"Nowhere\"",
            "no time zone `Nowhere`",
        ),
        (
            "[schedule.a]\ncron = \"@daily\"\nbody = \"x\"\nbody_file = \"y\"",
            "`body` and `body_file`",
        ),
        (
            "[schedule.a]\ncron = \"@daily\"\ncatchup = 1",
            "unknown key `catchup`",
        ),
        (
            "[schedule.\"a b\"]\ncron = \"@daily\"",
            "a name has 1 to 64",
        ),
        (
            "[schedule.a]\ncron = \"@daily\"\nbody_file = \"missing\"",
            "missing: No such file",
        ),
    ] {
        let file = config(server.dir(), text);
        let ended = with(&server, &file).end().await;
        ended.expect_code(64);
        let log = format!("{ended:?}");
        assert!(log.contains(&said.replace('"', "\\\"")), "{text}: {log}");
    }
    // A list has no group to look in, and a simple list forgets its messages.
    let text = "[schedule.a]\ncron = \"@daily\"\noverlap = \"skip\"";
    let file = config(server.dir(), text);
    let list = with(&server, &file)
        .without("stream")
        .without("group")
        .flag("list", "jobs");
    let ended = list.clone().flag("reliable", "true").end().await;
    assert!(
        format!("{ended:?}").contains("a list has no group to look in"),
        "{ended:?}"
    );
    let ended = list.end().await;
    ended.expect_code(64);
}

/// Only a queue with schedules needs the rights for them.
#[tokio::test(flavor = "multi_thread")]
async fn the_user_needs_the_rights_for_schedules_only_with_schedules() {
    let page = docs();
    let (_, line) = page.split_once("- [schedules](").unwrap();
    let selector = line.split('`').nth(1).unwrap();
    let user = documented_user("hostler-orders");
    let server = RedisOptions::default().user(&user).start();
    let url = confined_url(&server, "hostler-orders");
    let host = |text: &str| with(&server, &config(server.dir(), text)).flag("redis", &url);
    host("").finish().await;
    let each = "[schedule.each]\ncron = \"* * * * * *\"\nbody = \"ack\"";
    let ended = host(each).end().await;
    ended.expect_code(64);
    assert!(format!("{ended:?}").contains("+hkeys"), "{ended:?}");
    let raw = server.raw().await;
    raw.ask_words(&[b"ACL", b"SETUSER", b"hostler-orders", selector.as_bytes()])
        .await;
    let host = host(each).ready().await;
    host.starts(1).await;
    host.drained().await;
}
