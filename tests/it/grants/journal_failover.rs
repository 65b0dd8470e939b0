//! Recorded calls behind Sentinels, with `durability = "replica"`: the primary that has the records dies or stands still.

use std::collections::BTreeMap;

use hostler_tests::checker::Look;
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use hostler_tests::sentinel::Watched;
use hostler_tests::web::Web;

use crate::grants::outbound_scene::{rule, url};
use crate::redis::cluster::Servers;

#[tokio::test(flavor = "multi_thread")]
async fn no_recorded_call_is_repeated_when_the_primary_is_replaced() {
    const MESSAGES: usize = 60;
    const FAILOVERS: usize = 2;
    let (mut servers, web) = (
        Servers::Watched(Box::new(Watched::start().await)),
        Web::start().await,
    );
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    // An intent that a failover loses would let a request leave twice.
    let rule = rule(&web, "journal = true\nunknown = \"fail\"\n");
    let secret = "[grant.secret]\nplanted = { variable = \"PLANTED\", expose = true }\n";
    std::fs::write(&config, format!("{rule}\n{secret}")).unwrap();
    let host = HostOptions::at(&servers.url())
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .flags("durability=replica backoff-first=5ms backoff-max=50ms min-idle=1s concurrency=4")
        .flags("wait-redis=20s timeout=20s breaker=off")
        .variable("PLANTED", "pl4nted")
        .dead_letter()
        .cap(1_000)
        .admin()
        .ready()
        .await;
    let send = |n: usize, call: &str| {
        let url = url(&web, "/after/20");
        format!("send:POST|{url}|b={n}-{call}")
    };
    let raw = servers.at("orders").await;
    for n in 0..MESSAGES {
        let [a, b, c] = ["a", "b", "c"].map(|call| send(n, call));
        let body = format!("{a}+{b}+nack:5,{a}+{b}+{c}+nack:5,{a}+{b}+{c}+ack");
        raw.add("orders", &body).await;
    }
    for round in 0..FAILOVERS {
        let before = web.requests();
        eventually("it makes calls", async || {
            web.requests() >= before + MESSAGES / 2
        })
        .await;
        let old = servers.owner("orders").await;
        let stands = round % 2 == 1;
        match stands {
            true => servers.server(old).pause(true),
            false => servers.server(old).kill(),
        }
        servers.replaced("orders", old).await;
        match stands {
            true => servers.server(old).pause(false),
            false => servers.server(old).restart(),
        }
        servers.healed().await;
    }
    let raw = servers.at("orders").await;
    eventually("all messages are settled", async || {
        Look::at(&raw).await.is_empty()
    })
    .await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for seen in web.seen() {
        let body = String::from_utf8(seen.body).unwrap();
        *counts.entry(body).or_default() += 1;
    }
    assert!(counts.values().all(|times| *times == 1), "{counts:?}");
    // A call whose answer is not known leaves its message without the later calls: at most those that ran at a failover.
    assert!(counts.len() >= 3 * (MESSAGES - 4 * FAILOVERS), "{counts:?}");
    let left = raw.ask("KEYS *:journal*").await;
    let left: Vec<String> = redis::from_redis_value(left).unwrap();
    assert!(left.is_empty(), "{left:?}");
    host.drained().await;
}
