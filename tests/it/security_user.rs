//! The Redis user of `docs/security.md` suffices for a host, and for nothing worse.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hostler::runtime::Exit;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RawRedis, RedisOptions};

use crate::loop_stream::{options, settings};

pub(crate) fn docs() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    std::fs::read_to_string(docs).unwrap()
}

pub(crate) fn documented_user() -> String {
    let text = docs();
    let (_, rest) = text.split_once("```acl\nuser ").unwrap();
    let (rules, _) = rest.split_once("\n```").unwrap();
    rules.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_user_can_serve_and_do_nothing_worse() {
    let server = RedisOptions::default().user(&documented_user()).start();
    let raw = server.raw().await;
    for body in ["ack", "nack,ack", "nack:5,ack", "drop", "nack"] {
        raw.add("orders", body).await;
    }
    // What a dead host left.
    raw.ask("XGROUP CREATE orders workers 0").await;
    raw.ask("XREADGROUP GROUP workers dead COUNT 2 STREAMS orders >")
        .await;

    let url = format!(
        "{}&user=hostler-orders&pass=change-me",
        with_query(&server.url())
    );
    let mut options = options();
    options.min_idle = Duration::from_millis(200);
    options.retention = hostler::queue::stream::Retention::Acked;
    let mut settings = settings(Some(3));
    settings.ledger.min_idle = options.min_idle;
    let script = Arc::new(Script::default());
    let host = Host::start(&url, options, settings, &script).await;
    let metrics = Arc::clone(&host.metrics);
    assert_eq!(host.ended().await, Exit::Drained);
    let summary = metrics.summary();
    assert_eq!(summary.acked, 3);
    assert_eq!(summary.dead_lettered["dropped"], 1);
    assert_eq!(summary.dead_lettered["max-deliveries"], 1);
    assert_eq!(summary.orphans_recovered, 2);
    let text = metrics.render(&hostler::telemetry::health::Health::default());
    assert!(!text.contains("code=\"NOPERM\"} 1"), "{text}");

    let confined = RawRedis::open(&url).await.unwrap();
    for worse in [
        "KEYS *",
        "FLUSHALL",
        "DEL orders",
        "CONFIG GET *",
        "XGROUP DESTROY orders workers",
        "GET other",
        "XADD other * a b",
        "PUBLISH news x",
        "SCRIPT FLUSH",
        "CLIENT LIST",
        "ACL LIST",
    ] {
        let refused = confined.try_ask(worse).await.unwrap_err();
        assert!(refused.to_string().contains("NoPerm"), "{worse}: {refused}");
    }
}

fn with_query(url: &str) -> String {
    if url.contains('?') {
        url.to_owned()
    } else {
        format!("{url}?db=0")
    }
}
