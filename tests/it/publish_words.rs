//! `hostler publish` by the built binary, and the public API's own example.

use hostler::wire::list::{self, Framing};
use hostler_tests::command::{Ended, fed, run};
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RawRedis, RedisServer, eventually};

/// What the documentation of `hostler::publish` shows: the very same text.
mod example {
    include!("../../host/src/publish/example.rs");

    pub(super) async fn run(url: &str) {
        example(url).await.unwrap();
    }
}

#[tokio::test]
async fn the_example_of_the_documentation_works() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    example::run(&server.url()).await;
    assert_eq!(raw.number("XLEN orders").await, 1001);
    let first = &raw.entries("orders").await[0].1;
    assert_eq!(first[2..4], [&b"h:tenant"[..], b"acme"]);
    let ends: u64 = String::from_utf8(first[5].clone())
        .unwrap()
        .parse()
        .unwrap();
    let time: Vec<u64> = redis::from_redis_value(raw.ask("TIME").await).unwrap();
    let lives = ends - time[0] * 1000;
    assert!((1..=3_601_000).contains(&lives), "{lives} ms");

    let ended = HostOptions::new(&server)
        .without("stream")
        .without("group")
        .flag("list", "jobs")
        .flag("reliable", "true")
        .flag("codec", "json")
        .flag("dead-letter", "jobs:dead")
        .flag("handler", &guest("ack").display().to_string())
        .until_empty()
        .end()
        .await;
    ended.expect_code(0);
    assert_eq!(ended.json()["acked"], 1);
}

fn publish(url: &str, words: &[&str]) -> Ended {
    run(["publish", "--redis", url].iter().chain(words))
}

async fn popped(raw: &RawRedis, framing: Framing) -> (Vec<(String, String)>, String) {
    let value: Vec<u8> = redis::from_redis_value(raw.ask("RPOP jobs").await).unwrap();
    let (headers, body) = list::parts(&value.into(), framing).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = headers.iter().map(|(n, v)| (text(n), text(v))).collect();
    (headers, text(&body))
}

#[tokio::test]
async fn a_list_takes_headers_lines_and_codecs() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let tenant = || vec![("tenant".to_owned(), "acme".to_owned())];
    for (codec, framing) in [("frame", Framing::Frame), ("json", Framing::Json)] {
        let to = [
            "--list",
            "jobs",
            "--header",
            "tenant=acme",
            "--codec",
            codec,
        ];
        let one = publish(&url, &[&to[..], &["--body", "one"]].concat()).ok();
        assert_eq!(one.stdout, "1\n");
        let lines = [&["publish", "--redis", &url, "--lines", "--json"][..], &to].concat();
        let two = fed(lines, b"{\"body\":\"two\",\"headers\":{\"a\":\"b\"}}\n").ok();
        assert_eq!(two.json(), serde_json::json!({"length": 2}));
        assert_eq!(popped(&raw, framing).await, (tenant(), "one".to_owned()));
        let own = [vec![("a".to_owned(), "b".to_owned())], tenant()].concat();
        assert_eq!(popped(&raw, framing).await, (own, "two".to_owned()));
    }
    publish(
        &url,
        &["--list", "jobs", "--codec", "raw", "--body", "as it is"],
    )
    .ok();
    assert_eq!(raw.text("RPOP jobs").await, "as it is");
    let refused = publish(
        &url,
        &[
            "--list", "jobs", "--codec", "raw", "--header", "a=b", "--body", "x",
        ],
    );
    assert_eq!(refused.code, 64, "{refused:?}");
    assert_eq!(raw.number("DBSIZE").await, 0);
}

#[tokio::test]
async fn a_sharded_channel_is_another_one() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    for flag in ["--channel", "--sharded-channel"] {
        let said = publish(&url, &[flag, "news", "--body", "x"]).ok();
        assert_eq!(said.stdout, "0\n");
    }
    let stats = raw.text("INFO commandstats").await;
    assert!(stats.contains("cmdstat_publish:calls=1,"), "{stats}");
    assert!(stats.contains("cmdstat_spublish:calls=1,"), "{stats}");
}

#[tokio::test]
async fn a_list_lapses_whole_and_every_publish_arms_it_again() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let to = |ttl: &'static str| ["--list", "jobs", "--body", "sleep:100", "--ttl", ttl];
    publish(&url, &to("300s")).ok();
    let left = raw.number("PTTL jobs").await;
    assert!((1..=300_000).contains(&left), "{left}");
    raw.ask("PEXPIRE jobs 100000").await;
    publish(&url, &to("300s")).ok();
    let left = raw.number("PTTL jobs").await;
    assert!((100_001..=300_000).contains(&left), "armed again: {left}");
    // One without a time to live leaves it as it is.
    publish(&url, &["--list", "jobs", "--body", "x"]).ok();
    assert!(raw.number("PTTL jobs").await > 0);

    let dead = publish(&url, &to("20ms")).ok();
    assert_eq!(dead.stdout, "4\n");
    eventually("it lapses", async || raw.number("EXISTS jobs").await == 0).await;
    let ended = HostOptions::new(&server)
        .without("stream")
        .without("group")
        .flag("list", "jobs")
        .flag("reliable", "true")
        .flag("dead-letter", "jobs:dead")
        .until_empty()
        .end()
        .await;
    ended.expect_code(0);
    assert_eq!(ended.json()["attempts"], 0);
    assert_eq!(raw.number("EXISTS jobs:dead").await, 0);
}

#[tokio::test]
async fn a_host_that_waits_for_a_list_leaves_its_time_to_live() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let host = HostOptions::new(&server)
        .without("stream")
        .without("group")
        .flag("list", "jobs")
        .flag("reliable", "true")
        .flag("concurrency", "1")
        .flag("prefetch", "1")
        .ready()
        .await;
    let lines = "sleep:3000\n".repeat(12);
    let words = [
        "publish", "--redis", &url, "--list", "jobs", "--lines", "--ttl", "300s",
    ];
    fed(words, lines.as_bytes()).ok();
    host.starts(1).await;
    // What it has taken is safe; what still waits lapses with the list.
    assert!(raw.number("LLEN jobs").await > 0);
    assert!(raw.number("PTTL jobs").await > 0);
    host.kill().await;
}

#[tokio::test]
async fn a_delay_says_when_it_is_due_and_which_message_it_will_be() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let to = ["--stream", "orders", "--body", "x", "--delay", "1h"];
    let said = publish(&url, &[&to[..], &["--json"]].concat()).ok().json();
    assert_eq!(said["id"].as_str().unwrap().len(), 32);
    let due: Vec<(String, u64)> = {
        let first = raw.ask("ZRANGE {orders}:delayed 0 0 WITHSCORES").await;
        let pair: Vec<(Vec<u8>, u64)> = redis::from_redis_value(first).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        pair.into_iter().map(|(m, s)| (text(m), s)).collect()
    };
    assert_eq!(said["due_ms"], due[0].1);
    assert!(due[0].0.contains(said["id"].as_str().unwrap()));
    let list = [
        "--list",
        "jobs",
        "--reliable",
        "--body",
        "x",
        "--delay",
        "1h",
    ];
    assert_eq!(publish(&url, &list).ok().stdout.trim().len(), 32);
    assert_eq!(raw.number("EXISTS jobs").await, 0);
    // No delay at all is none.
    let now = ["--stream", "orders", "--body", "x", "--delay", "0s"];
    publish(&url, &now).ok();
    assert_eq!(raw.number("XLEN orders").await, 1);
}

#[test]
fn what_a_kind_cannot_do_is_refused_with_a_reason() {
    let server = RedisServer::start();
    let url = server.url();
    for (words, why) in [
        (&["--list", "jobs", "--delay", "1s"][..], "--reliable"),
        (&["--channel", "news", "--delay", "1s"], "keeps nothing"),
        (&["--stream", "orders", "--ttl", "1s"], "--expires-in"),
        (&["--channel", "news", "--ttl", "1s"], "keeps nothing"),
        (&["--list", "jobs", "--ttl", "0s"], "no time"),
        (&["--list", "jobs", "--maxlen", "5"], "streams only"),
        (
            &["--stream", "orders", "--maxlen", "5", "--delay", "1s"],
            "trimmed",
        ),
        (
            &["--stream", "orders", "--delay", "2s", "--expires-in", "1s"],
            "before it is due",
        ),
        (&["--stream", "orders", "--delay", "10years"], "longer than"),
        (&["--stream", "orders", "--reliable"], "list"),
    ] {
        let refused = publish(&url, &[words, &["--body", "x"]].concat());
        assert_eq!(refused.code, 64, "{words:?}: {refused:?}");
        assert!(refused.stderr.contains(why), "{words:?}: {refused:?}");
    }
    let keys = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(async { server.raw().await.number("DBSIZE").await });
    assert_eq!(keys, 0);
}

#[test]
fn a_password_in_a_url_that_is_wrong_is_not_shown() {
    let wrong = "redis://:hunter2@127.0.0.1:1";
    let error = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(hostler::publish::connect(
            wrong,
            hostler::publish::List::new("jobs"),
        ))
        .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
