//! Queues on a real cluster, and behind Sentinels: served by name, through slots that move, through failovers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hostler::publish::{Destination, Outgoing, Publisher, Stream};
use hostler::redis::connection::Connector;
use hostler::wire::keys;
use hostler_tests::cluster::Cluster;
use hostler_tests::command::run_line;
use hostler_tests::guests::guest;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::{RawRedis, eventually};
use hostler_tests::sentinel::Watched;
use redis::{Pipeline, Value};

use crate::effects_outbox::bodies;
use crate::scene::connector;

/// The servers of a test.
pub(crate) enum Servers {
    Cluster(Cluster),
    Watched(Watched),
}

impl Servers {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Watched(watched) => watched.url(),
        }
    }

    /// The place of the server that has a key.
    pub(crate) async fn owner(&self, key: &str) -> usize {
        match self {
            Self::Cluster(cluster) => cluster.owner(key).await,
            Self::Watched(watched) => watched.primary().await,
        }
    }

    pub(crate) async fn at(&self, key: &str) -> RawRedis {
        match self {
            Self::Cluster(cluster) => cluster.at(key).await,
            Self::Watched(watched) => watched.raw().await,
        }
    }

    pub(crate) fn server(&mut self, place: usize) -> &mut hostler_tests::redis::RedisServer {
        match self {
            Self::Cluster(cluster) => &mut cluster.nodes[place],
            Self::Watched(watched) => &mut watched.servers[place],
        }
    }

    pub(crate) async fn replaced(&self, key: &str, old: usize) {
        match self {
            Self::Cluster(cluster) => cluster.replaced(key, old).await,
            Self::Watched(watched) => watched.replaced(old).await,
        }
    }

    pub(crate) async fn healed(&self) {
        match self {
            Self::Cluster(cluster) => cluster.healed().await,
            Self::Watched(watched) => watched.healed().await,
        }
    }
}

/// What publishers know of each message: whether it is there for certain.
#[derive(Debug, Default)]
pub(crate) struct Published {
    next: usize,
    /// By body.
    certain: BTreeMap<String, bool>,
}

impl Published {
    /// Publish so many messages. Each tells its handler to publish its number to `invoices`; every tenth fails
    /// once before, and every seventh ends as a dead letter.
    pub(crate) async fn publish(&mut self, publisher: &Publisher, count: usize) {
        for _ in 0..count {
            let number = self.next;
            self.next += 1;
            let body = match number {
                n if n % 7 == 3 => format!("publish:invoices:lost {n}+drop:{n}"),
                n if n % 10 == 5 => {
                    format!("publish:invoices:early {n}+nack:5,publish:invoices:{n}")
                }
                n => format!("publish:invoices:{n}"),
            };
            let sent = publisher.publish(&Outgoing::new(body)).await;
            self.certain.insert(number.to_string(), sent.is_ok());
        }
    }

    /// How many messages were confirmed.
    fn certain(&self) -> usize {
        self.certain.values().filter(|certain| **certain).count()
    }

    /// Each confirmed message has exactly one end, the one that its body says; one that was not confirmed has
    /// one, or none.
    pub(crate) fn check(&self, invoices: &[String], dead: &[String]) {
        let mut ends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for invoice in invoices {
            ends.entry(invoice).or_default().push("invoice");
        }
        for body in dead {
            let number = body.rsplit(':').next().unwrap();
            ends.entry(number).or_default().push("dead");
        }
        let mut wrong = Vec::new();
        for (number, certain) in &self.certain {
            let is_dead = number.parse::<usize>().unwrap() % 7 == 3;
            let expected = if is_dead { "dead" } else { "invoice" };
            match ends.remove(&**number).as_deref() {
                Some([end]) if *end == expected => {}
                None if !certain => {}
                found => wrong.push(format!("{number} (certain: {certain}): {found:?}")),
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(ends.is_empty(), "unexpected: {ends:?}");
    }
}

const GRANTS: &str = r#"{"invoices":"stream:invoices"}"#;

pub(crate) fn options(url: &str) -> HostOptions {
    HostOptions::at(url)
        .flag("handler", &guest("publishing").display().to_string())
        .flag("grant-publish", GRANTS)
        .flags("dead-letter=graveyard max-deliveries=8 backoff-first=5ms min-idle=1s concurrency=8")
        .flags("wait-redis=20s publish-outbox=auto")
        .admin()
}

pub(crate) fn publisher(url: &str, durable: bool) -> Publisher {
    let connector: Connector = connector(url).durable(durable);
    let to = Destination::Stream(Stream::new("orders"));
    Publisher::new(&connector, to)
}

/// The bodies of a stream, wherever it is.
pub(crate) async fn stream(servers: &Servers, key: &str) -> Vec<String> {
    bodies(&servers.at(key).await, key).await
}

/// Wait until every message that was confirmed has come to an end, and check them all.
pub(crate) async fn all_have_ended(servers: &Servers, published: &Published, hosts: &[Host]) {
    let begun = Instant::now();
    loop {
        let (invoices, dead) = (
            stream(servers, "invoices").await,
            stream(servers, "graveyard").await,
        );
        if invoices.len() + dead.len() >= published.certain() {
            let orders = servers.at("orders").await;
            let (pending, outbox) = (
                orders.pending("orders", "workers").await.len(),
                orders.number("XLEN {orders}:outbox:stream:invoices").await,
            );
            if pending == 0 && outbox == 0 {
                let (invoices, dead) = (
                    stream(servers, "invoices").await,
                    stream(servers, "graveyard").await,
                );
                return published.check(&invoices, &dead);
            }
        }
        let log = || {
            let logs = hosts.iter().flat_map(|host| host.log());
            let lines: Vec<String> = logs.map(|line| format!("{line:?}")).collect();
            let told = |line: &&String| !line.contains("start ");
            let lines: Vec<&String> = lines.iter().filter(told).collect();
            let last = lines.len().saturating_sub(60);
            lines[last..]
                .iter()
                .fold(String::new(), |all, line| format!("{all}{line}\n"))
        };
        if begun.elapsed() > Duration::from_secs(40) {
            let raw = servers.at("orders").await;
            let pending = raw.pending("orders", "workers").await;
            let outbox = raw.number("XLEN {orders}:outbox:stream:invoices").await;
            let groups = raw.ask("XINFO GROUPS orders").await;
            let (ended, all) = (invoices.len() + dead.len(), published.certain());
            let log = log();
            assert_eq!(
                ended, all,
                "{outbox} in the outbox, {groups:?}, {pending:?}\n{log}"
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn every_command_works_across_the_nodes_of_a_cluster() {
    let cluster = Cluster::start(3, 0).await;
    let owners = ["orders", "invoices", "graveyard", keys::POLICIES];
    let mut places = Vec::new();
    for key in owners {
        places.push(cluster.owner(key).await);
    }
    assert!(places.iter().any(|place| *place != places[0]), "{places:?}");
    let wrong = (0..3).find(|place| *place != places[0]).unwrap();
    let (handler, acks) = (guest("publishing"), guest("ack"));
    let (handler, acks) = (handler.display(), acks.display());
    // By all nodes, and by one that does not have the queue.
    for (round, url) in [cluster.url(), cluster.url_of(wrong)].iter().enumerate() {
        let at = format!("--redis {url}");
        let ask = |line: &str| run_line(&format!("{line} {at}"));
        ask("publish --stream orders --body publish:invoices:1").ok();
        ask("publish --stream orders --body drop:no").ok();
        ask("policy set --match o* max_deliveries=5").ok();
        let shown = ask("policy get --queue orders");
        assert!(shown.stdout.contains("max_deliveries"), "{shown:?}");
        let run = format!(
            "run --stream orders --group workers --handler {handler} --dead-letter graveyard \
             --grant-publish {GRANTS} --until-empty --summary json"
        );
        let ended = ask(&run);
        assert_eq!(ended.json()["acked"], 1, "{ended:?}");
        assert!(
            !ended.stderr.contains("cannot see all policies"),
            "{ended:?}"
        );
        let report =
            ask("inspect --stream orders --group workers --dead-letter graveyard --json").json();
        assert_eq!(report["dead_letters"], 1, "{report}");
        let peeked = ask("dlq peek graveyard --json");
        assert!(peeked.stdout.contains("drop:no"), "{peeked:?}");
        ask("dlq replay graveyard").ok();
        let orders = cluster.at("orders").await;
        assert_eq!(
            cluster.at("graveyard").await.number("XLEN graveyard").await,
            0
        );
        let ended = ask(&run);
        assert_eq!(ended.json()["dead_lettered"]["dropped"], 1, "{ended:?}");
        ask("dlq purge graveyard --yes").ok();
        let name = format!("copy-{round}");
        ask(&format!("deploy --queue-key orders {acks} --by {name}")).ok();
        let versions = ask("versions --queue-key orders");
        assert!(versions.stdout.contains(&name), "{versions:?}");
        assert_eq!(orders.pending("orders", "workers").await, []);
    }
    let invoices = bodies(&cluster.at("invoices").await, "invoices").await;
    assert_eq!(invoices, ["1", "1"]);
}

/// The case for links of our own: the cluster connection of the client library sends a whole pipeline again
/// when one of its commands is refused.
#[tokio::test]
async fn what_a_node_refused_is_sent_again_and_none_of_its_neighbours() {
    let cluster = Cluster::start(2, 0).await;
    let slot = keys::slot("{s}");
    let from = cluster.owner_of_slot(slot).await;
    let to = 1 - from;
    let connector = connector(&cluster.url());
    let link = connector.link("test");
    let mut pipeline = Pipeline::new();
    let increments = 9;
    for _ in 0..increments {
        pipeline.cmd("INCR").arg("{s}here");
        pipeline.cmd("INCR").arg("{s}new");
    }
    // `{s}here` is still at the source, `{s}new` is nowhere: the source answers with ASK.
    cluster.raw(from).await.ask("SET {s}here 0").await;
    let (source, target) = (cluster.raw(from).await, cluster.raw(to).await);
    let (source_id, target_id) = (cluster.id(from).await, cluster.id(to).await);
    target
        .ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {source_id}"))
        .await;
    source
        .ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {target_id}"))
        .await;
    let replies = link.pipeline("INCR", &pipeline).await.unwrap();
    let expected: Vec<Value> = (1..=increments)
        .flat_map(|n| [Value::Int(n), Value::Int(n)])
        .collect();
    assert_eq!(replies, expected);
    assert_eq!(source.number("GET {s}here").await, increments);
    // The slot moves, and the connection still believes that the source has it.
    cluster.migrate(slot, to).await;
    let replies = link.pipeline("INCR", &pipeline).await.unwrap();
    assert_eq!(replies.last(), Some(&Value::Int(2 * increments)));
    assert_eq!(target.number("GET {s}here").await, 2 * increments);
    assert_eq!(target.number("GET {s}new").await, 2 * increments);
    // A transaction is sent again whole, or not at all.
    let mut transaction = Pipeline::new();
    transaction.cmd("MULTI");
    transaction.cmd("INCR").arg("{s}here");
    transaction.cmd("EXEC");
    let before = connector.link("stale");
    before.reach().await.unwrap();
    cluster.migrate(slot, from).await;
    let replies = before.pipeline("EXEC", &transaction).await.unwrap();
    assert_eq!(
        replies[2],
        Value::Array(vec![Value::Int(2 * increments + 1)])
    );
    let mut crossing = Pipeline::new();
    crossing.cmd("MULTI");
    crossing.cmd("INCR").arg("{s}here");
    crossing.cmd("INCR").arg("elsewhere");
    crossing.cmd("EXEC");
    let error = link.pipeline("EXEC", &crossing).await.unwrap_err();
    assert_eq!(error.code(), "CROSSSLOT");
}

#[tokio::test]
async fn slots_that_migrate_under_load_lose_nothing() {
    let servers = Servers::Cluster(Cluster::start(3, 0).await);
    let hosts = [
        options(&servers.url()).ready().await,
        options(&servers.url()).ready().await,
    ];
    let publisher = publisher(&servers.url(), false);
    let mut published = Published::default();
    let Servers::Cluster(cluster) = &servers else {
        unreachable!()
    };
    for round in 0..6 {
        for key in ["orders", "invoices", "graveyard"] {
            let to = (cluster.owner(key).await + 1 + round % 2) % 3;
            let moving = cluster.migrate(keys::slot(key), to);
            let publishing = published.publish(&publisher, 20);
            tokio::join!(moving, publishing);
        }
    }
    assert_eq!(published.certain(), 360);
    all_have_ended(&servers, &published, &hosts).await;
    for host in hosts {
        host.drained().await;
    }
}

/// How often servers fail over: `make test-all` names a larger number.
fn times(few: usize) -> usize {
    let named = std::env::var("HOSTLER_FAILOVERS").ok();
    named.map_or(few, |number| number.parse().unwrap())
}

/// Fail over `times` times under load, by a kill or by a pause, and check every message.
pub(crate) async fn failovers(mut servers: Servers, times: usize) {
    let durable = |options: HostOptions| options.flag("durability", "replica");
    let mut hosts = vec![
        durable(options(&servers.url())).ready().await,
        durable(options(&servers.url())).ready().await,
    ];
    let publisher = publisher(&servers.url(), true);
    let mut published = Published::default();
    for round in 0..times {
        let key = ["orders", "invoices", "graveyard"][round % 3];
        let old = servers.owner(key).await;
        published.publish(&publisher, 50).await;
        let pauses = round % 2 == 1;
        match pauses {
            true => servers.server(old).pause(true),
            false => servers.server(old).kill(),
        }
        if round % 3 == 2 {
            let killed = hosts.remove(0).kill().await;
            drop(killed);
            hosts.push(durable(options(&servers.url())).start());
        }
        let publishing = published.publish(&publisher, 30);
        let replaced = servers.replaced(key, old);
        tokio::join!(publishing, replaced);
        // The old primary comes back, and believes for a moment that it is one.
        match pauses {
            true => servers.server(old).pause(false),
            false => servers.server(old).restart(),
        }
        published.publish(&publisher, 30).await;
        if round + 1 < times {
            servers.healed().await;
        }
    }
    all_have_ended(&servers, &published, &hosts).await;
    for host in hosts {
        host.drained().await;
    }
}

#[tokio::test]
async fn a_cluster_that_fails_over_loses_nothing_that_was_confirmed() {
    failovers(Servers::Cluster(Cluster::start(3, 3).await), times(2)).await;
}

#[tokio::test]
async fn a_primary_that_sentinels_replace_loses_nothing_that_was_confirmed() {
    failovers(Servers::Watched(Watched::start().await), times(1)).await;
}

#[tokio::test]
async fn every_command_works_behind_sentinels_that_come_and_go() {
    let mut watched = Watched::start().await;
    let url = watched.url();
    let ask = |line: &str| run_line(&format!("{line} --redis {url}"));
    ask("publish --stream orders --body ack").ok();
    watched.sentinels[0].kill();
    ask("publish --stream orders --body ack").ok();
    watched.sentinels[0].restart();
    let host = options(&url).ready().await;
    eventually("both are acknowledged", async || {
        host.metric("hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"}") == 2
    })
    .await;
    host.drained().await;
    let unknown = url.replace("mymaster", "other");
    let refused = run_line(&format!(
        "publish --redis {unknown} --stream orders --body x"
    ));
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(
        refused.stderr.contains("watches no primary `other`"),
        "{refused:?}"
    );
}
