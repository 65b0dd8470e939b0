//! `hostler publish`, and the documented example of the library.

use hostler::wire::list::{self, Framing};
use hostler_tests::command::{Ended, fed, run};
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RawRedis, RedisServer, eventually};

/// The example in the documentation of `hostler_publish`: the same file.
mod example {
    include!("../../../host/publish/src/example.rs");

    pub(super) async fn run(url: &str) {
        example(url).await.unwrap();
    }
}

#[tokio::test]
async fn the_documented_example_works() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    example::run(&server.url()).await;
    assert_eq!(raw.number("XLEN orders").await, 1001);
    let first = &raw.entries("orders").await[0].1;
    assert_eq!(first[2..4], [&b"h:tenant"[..], b"acme"]);
    let ends = String::from_utf8(first[5].clone()).unwrap();
    let ends: u64 = ends.parse().unwrap();
    let time: Vec<u64> = redis::from_redis_value(raw.ask("TIME").await).unwrap();
    let lives = ends - time[0] * 1000;
    assert!((1..=3_601_000).contains(&lives), "{lives} ms");

    let handler = guest("ack").display().to_string();
    let host = list_host(&server).flags("codec=json dead-letter=jobs:dead");
    let ended = host.flag("handler", &handler).finish().await;
    assert_eq!(ended.json()["acked"], 1);
}

/// A host of the reliable list `jobs`.
fn list_host(server: &RedisServer) -> HostOptions {
    let options = HostOptions::new(server).flags("list=jobs reliable=true");
    options.without("stream").without("group")
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
async fn publish_to_a_list_accepts_headers_lines_and_codecs() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let tenant = || vec![("tenant".to_owned(), "acme".to_owned())];
    for (codec, framing) in [("frame", Framing::Frame), ("json", Framing::Json)] {
        let to = ["--list=jobs", "--header=tenant=acme", "--codec", codec];
        let one = publish(&url, &[&to[..], &["--body", "one"]].concat()).ok();
        assert_eq!(one.stdout, "1\n");
        let lines = [&["publish", "--redis", &url, "--lines", "--json"][..], &to].concat();
        let two = fed(lines, b"{\"body\":\"two\",\"headers\":{\"a\":\"b\"}}\n").ok();
        assert_eq!(two.json(), serde_json::json!({"length": 2}));
        assert_eq!(popped(&raw, framing).await, (tenant(), "one".to_owned()));
        let own = [vec![("a".to_owned(), "b".to_owned())], tenant()].concat();
        assert_eq!(popped(&raw, framing).await, (own, "two".to_owned()));
    }
    let raw_list = ["--list=jobs", "--codec=raw", "--body=as it is"];
    publish(&url, &raw_list).ok();
    assert_eq!(raw.text("RPOP jobs").await, "as it is");
    let with_header = [&raw_list[..], &["--header=a=b"]].concat();
    let refused = publish(&url, &with_header);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert_eq!(raw.number("DBSIZE").await, 0);
}

#[tokio::test]
async fn publish_to_a_sharded_channel_uses_spublish() {
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
async fn a_list_with_a_ttl_expires_whole_and_each_publish_renews_the_ttl() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let to = |ttl: &'static str| ["--list", "jobs", "--body", "sleep:100", "--ttl", ttl];
    publish(&url, &to("300s")).ok();
    let left = raw.number("PTTL jobs").await;
    assert!((1..=300_000).contains(&left), "{left}");
    raw.ask("PEXPIRE jobs 100000").await;
    publish(&url, &to("300s")).ok();
    let left = raw.number("PTTL jobs").await;
    assert!((100_001..=300_000).contains(&left), "renewed: {left}");
    // A publish without a ttl does not change it.
    publish(&url, &["--list", "jobs", "--body", "x"]).ok();
    assert!(raw.number("PTTL jobs").await > 0);

    let dead = publish(&url, &to("20ms")).ok();
    assert_eq!(dead.stdout, "4\n");
    eventually("it expires", async || raw.number("EXISTS jobs").await == 0).await;
    let host = list_host(&server).flag("dead-letter", "jobs:dead");
    assert_eq!(host.finish().await.json()["attempts"], 0);
    assert_eq!(raw.number("EXISTS jobs:dead").await, 0);
}

#[tokio::test]
async fn a_host_does_not_change_the_ttl_of_its_list() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let options = list_host(&server).flags("concurrency=1 prefetch=1");
    let host = options.ready().await;
    let lines = "sleep:3000\n".repeat(12);
    let to = ["--list", "jobs", "--lines", "--ttl", "300s"];
    let words = [&["publish", "--redis", &url], &to[..]].concat();
    fed(words, lines.as_bytes()).ok();
    host.starts(1).await;
    // Taken messages are safe; waiting messages expire with the list.
    assert!(raw.number("LLEN jobs").await > 0);
    assert!(raw.number("PTTL jobs").await > 0);
    host.kill().await;
}

#[tokio::test]
async fn publish_with_a_delay_prints_the_due_time_and_the_id() {
    let server = RedisServer::start();
    let (raw, url) = (server.raw().await, server.url());
    let to = ["--stream", "orders", "--body", "x", "--delay", "1h"];
    let said = publish(&url, &[&to[..], &["--json"]].concat()).ok().json();
    assert_eq!(said["id"].as_str().unwrap().len(), 32);
    let first = raw.ask("ZRANGE {orders}:delayed 0 0 WITHSCORES").await;
    let due: Vec<(Vec<u8>, u64)> = redis::from_redis_value(first).unwrap();
    assert_eq!(said["due_ms"], due[0].1);
    let member = String::from_utf8_lossy(&due[0].0);
    assert!(member.contains(said["id"].as_str().unwrap()));
    let list = ["--list=jobs", "--reliable", "--body=x", "--delay=1h"];
    assert_eq!(publish(&url, &list).ok().stdout.trim().len(), 32);
    assert_eq!(raw.number("EXISTS jobs").await, 0);
    // A delay of zero is no delay.
    let now = ["--stream", "orders", "--body", "x", "--delay", "0s"];
    publish(&url, &now).ok();
    assert_eq!(raw.number("XLEN orders").await, 1);
}

#[test]
fn options_that_a_kind_does_not_support_are_refused_with_a_reason() {
    let server = RedisServer::start();
    let url = server.url();
    for (words, why) in [
        (&["--list", "jobs", "--delay", "1s"][..], "--reliable"),
        (&["--channel", "news", "--delay", "1s"], "keeps nothing"),
        (&["--stream", "orders", "--ttl", "1s"], "--expires-in"),
        (&["--channel", "news", "--ttl", "1s"], "keeps nothing"),
        (&["--list", "jobs", "--ttl", "0s"], "longer than 0s"),
        // Redis refuses such a time only after it has taken the value.
        (&["--list", "jobs", "--ttl", "584542046y"], "100 years"),
        (&["--stream=orders", "--expires-in=101y"], "100 years"),
        (
            &["--stream=orders", "--maxlen=18446744073709551615"],
            "range",
        ),
        (&["--list", "jobs", "--maxlen", "5"], "streams only"),
        (
            &["--stream=orders", "--maxlen=5", "--delay=1s"],
            "does not trim",
        ),
        (
            &["--stream=orders", "--delay=2s", "--expires-in=1s"],
            "before it is due",
        ),
        (&["--stream", "orders", "--delay", "10years"], "longer than"),
        (&["--stream", "orders", "--reliable"], "list"),
    ] {
        let refused = publish(&url, &[words, &["--body", "x"]].concat());
        assert_eq!(refused.code, 64, "{words:?}: {refused:?}");
        assert!(refused.stderr.contains(why), "{words:?}: {refused:?}");
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keys = runtime.block_on(async { server.raw().await.number("DBSIZE").await });
    assert_eq!(keys, 0);
}

#[tokio::test]
async fn a_list_gets_no_message_whose_ttl_redis_would_refuse() {
    use hostler::publish::{Error, List, Outgoing};
    let server = RedisServer::start();
    let endless = List::new("jobs").ttl(std::time::Duration::MAX);
    let publisher = hostler::publish::connect(&server.url(), endless).await;
    let refused = publisher.unwrap().publish(&Outgoing::new("x")).await;
    assert!(matches!(refused, Err(Error::TtlTooLong)), "{refused:?}");
    assert_eq!(server.raw().await.number("DBSIZE").await, 0);
}

#[test]
fn a_password_in_a_wrong_url_is_not_shown() {
    let wrong = "redis://:hunter2@127.0.0.1:1";
    let connecting = hostler::publish::connect(wrong, hostler::publish::List::new("jobs"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(connecting).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
