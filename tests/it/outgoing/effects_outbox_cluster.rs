//! Outboxes on a cluster: the destination is in another slot, on this node or on another one.

use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually, free_port};

use crate::outgoing::effects_outbox::{Scene, bodies, host, publish, waiting};
use crate::scene::{self, Kind, on_both};

on_both! {
    one_node_relays_between_its_slots
    another_node_takes_what_is_relayed
}

async fn one_node_relays_between_its_slots(kind: Kind) {
    let scene = Scene::with(scene::cluster(RedisOptions::default())).await;
    scene.take_all_slots().await;
    // Without a setting: a cluster has no other way.
    let options = host(&scene, kind).without("publish-outbox");
    for number in 0..20 {
        let body = format!("publish:invoices:{number}+publish:raw:{number}+publish:near:{number}");
        publish(&scene, kind, &number.to_string(), &body).await;
    }
    publish(
        &scene,
        kind,
        "later",
        "later:invoices:1:later+publish:news:n+publish:all:a",
    )
    .await;
    let broken = r#"{"invoices":"stream:a}b"}"#;
    let ended = options.clone().flag("grant-publish", broken).end().await;
    ended.expect_code(64);
    let said = "the key `a}b` has an empty or broken hash tag";
    assert!(ended.stderr().contains(said), "{}", ended.stderr());
    let ended = options.flag("concurrency", "1").finish().await;
    assert_eq!(ended.json()["acked"], 21);
    let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(bodies(&scene.raw, "invoices").await, expected);
    assert_eq!(bodies(&scene.raw, "{orders}:near").await, expected);
    assert_eq!(scene.list("raw").await.len(), 20);
    assert_eq!(scene.raw.number("ZCARD {invoices}:delayed").await, 1);
}

/// `orders` is in a slot of the first node, `invoices` in one of the other.
const FIRST_SLOTS: &str = "0 10999";
const LAST_SLOTS: &str = "11000 16383";

async fn node() -> (RedisServer, RawRedis, u16) {
    let bus = free_port();
    let options = RedisOptions::default()
        .tcp()
        .set("cluster-enabled", "yes")
        // The first node serves alone for this long.
        .set("cluster-node-timeout", "60000")
        .set("cluster-require-full-coverage", "no")
        .set("cluster-port", &bus.to_string());
    let server = options.start();
    let raw = server.raw().await;
    (server, raw, bus)
}

/// Wait until a node knows the other one, and serves.
async fn is_up(node: &RawRedis) {
    eventually("the cluster is up", async || {
        let info = node.text("CLUSTER INFO").await;
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
    })
    .await;
}

async fn another_node_takes_what_is_relayed(kind: Kind) {
    let (server, raw, _) = node().await;
    let (mut other, mut other_raw, bus) = node().await;
    raw.ask(&format!("CLUSTER ADDSLOTSRANGE {FIRST_SLOTS}"))
        .await;
    other_raw
        .ask(&format!("CLUSTER ADDSLOTSRANGE {LAST_SLOTS}"))
        .await;
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port());
    raw.ask(&meet).await;
    for node in [&raw, &other_raw] {
        is_up(node).await;
    }
    let is_on_first = |key: &str| hostler::wire::keys::slot(key) < 11000;
    assert!(is_on_first("orders") && !is_on_first("invoices"));
    let scene = Scene {
        server,
        raw,
        own: (),
    };
    let options = host(&scene, kind)
        .without("publish-outbox")
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .admin();
    let host = options.ready().await;
    for number in 0..20 {
        let body = format!("publish:invoices:{number}");
        publish(&scene, kind, &number.to_string(), &body).await;
    }
    eventually("all is relayed", async || {
        bodies(&other_raw, "invoices").await.len() == 20
            && waiting(&scene, "stream:invoices").await == 0
    })
    .await;

    // The other node goes away, and comes back.
    other.kill();
    publish(&scene, kind, "away", "publish:invoices:away").await;
    eventually("it waits", async || {
        host.metric("hostler_outbox_refusals_total") >= 1
            && waiting(&scene, "stream:invoices").await == 1
    })
    .await;
    other.restart();
    other_raw = other.raw().await;
    is_up(&other_raw).await;
    // It kept nothing: this server has no data on disk. The messages that waited arrive there.
    eventually("what waited arrives", async || {
        bodies(&other_raw, "invoices").await == ["away"]
    })
    .await;
    host.drained().await;
}
