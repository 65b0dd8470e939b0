//! Queues on a real cluster, and behind Sentinels: served by name, through slots that move, through failovers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hostler::publish::{Destination, Outgoing, Publisher, Stream};
use hostler::redis::connection::Connector;
use hostler::wire::keys;
use hostler_tests::cluster::Cluster;
use hostler_tests::command::{end, hostler, run_line};
use hostler_tests::guests::guest;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::{PATIENCE, RawRedis, RedisOptions, RedisServer, TlsOptions, eventually};
use hostler_tests::sentinel::Watched;
use redis::{Pipeline, Value};

use crate::outgoing::effects_outbox::bodies;
use crate::queue::queue_connection::Authority;
use crate::scene::connector;

/// The servers of a test.
pub(crate) enum Servers {
    Standalone(Box<RedisServer>),
    Cluster(Cluster),
    Watched(Box<Watched>),
}

impl Servers {
    fn standalone() -> Self {
        Self::Standalone(Box::new(RedisServer::start()))
    }

    async fn cluster() -> Self {
        Self::Cluster(Cluster::start(3, 0).await)
    }

    async fn watched() -> Self {
        Self::Watched(Box::new(Watched::start().await))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Standalone(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Watched(watched) => watched.url(),
        }
    }

    /// The ways to name them; of a cluster, also a node that does not have the queue.
    async fn urls(&self) -> Vec<String> {
        let mut urls = vec![self.url()];
        if let Self::Cluster(cluster) = self {
            let mut places = Vec::new();
            for key in ["orders", "invoices", "graveyard", keys::POLICIES] {
                places.push(cluster.owner(key).await);
            }
            assert!(places.iter().any(|place| *place != places[0]), "{places:?}");
            let other = (0..3).find(|place| *place != places[0]).unwrap();
            urls.push(cluster.url_of(other));
        }
        urls
    }

    /// The place of the server that has a key.
    pub(crate) async fn owner(&self, key: &str) -> usize {
        match self {
            Self::Standalone(_) => 0,
            Self::Cluster(cluster) => cluster.owner(key).await,
            Self::Watched(watched) => watched.primary().await,
        }
    }

    pub(crate) async fn at(&self, key: &str) -> RawRedis {
        match self {
            Self::Standalone(server) => server.raw().await,
            Self::Cluster(cluster) => cluster.at(key).await,
            Self::Watched(watched) => watched.raw().await,
        }
    }

    pub(crate) fn server(&mut self, place: usize) -> &mut RedisServer {
        match self {
            Self::Standalone(server) => server,
            Self::Cluster(cluster) => &mut cluster.nodes[place],
            Self::Watched(watched) => &mut watched.servers[place],
        }
    }

    pub(crate) async fn replaced(&self, key: &str, old: usize) {
        match self {
            Self::Standalone(_) => unreachable!("it has no replica"),
            Self::Cluster(cluster) => cluster.replaced(key, old).await,
            Self::Watched(watched) => watched.replaced(old).await,
        }
    }

    pub(crate) async fn healed(&self) {
        match self {
            Self::Standalone(_) => {}
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
    /// Why the others are not.
    errors: Vec<String>,
}

impl Published {
    /// Publish `count` messages. The handler of each publishes its number to `invoices`; every tenth fails
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
            self.errors
                .extend(sent.err().map(|error| error.to_string()));
        }
    }

    /// How many messages were confirmed.
    fn certain(&self) -> usize {
        self.certain.values().filter(|certain| **certain).count()
    }

    /// Each confirmed message has exactly one end, the one that its body says; one that was not confirmed has
    /// one, or none.
    ///
    /// A dead letter in another slot is written before its message is removed: a failover between the two may
    /// leave a second copy.
    pub(crate) fn check(&self, invoices: &[String], dead: &[String], is_across: bool) {
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
                Some(ends) if is_across && is_dead && ends.iter().all(|end| *end == "dead") => {}
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

/// The last lines of the logs, without those that say that a message was taken.
fn last_lines(hosts: &[Host]) -> String {
    let logs = hosts.iter().flat_map(|host| host.log());
    let lines: Vec<String> = logs.map(|line| format!("{line:?}")).collect();
    let told = |line: &&String| !line.contains("start ");
    let lines: Vec<&String> = lines.iter().filter(told).collect();
    let last = lines.len().saturating_sub(60);
    lines[last..]
        .iter()
        .fold(String::new(), |all, line| format!("{all}{line}\n"))
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
                let is_across = matches!(servers, Servers::Cluster(_));
                return published.check(&invoices, &dead, is_across);
            }
        }
        if begun.elapsed() > PATIENCE {
            let raw = servers.at("orders").await;
            let pending = raw.pending("orders", "workers").await;
            let outbox = raw.number("XLEN {orders}:outbox:stream:invoices").await;
            let groups = raw.ask("XINFO GROUPS orders").await;
            let (ended, all) = (invoices.len() + dead.len(), published.certain());
            let log = last_lines(hosts);
            assert_eq!(
                ended, all,
                "{outbox} in the outbox, {groups:?}, {pending:?}\n{log}"
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The same scene on every kind of server.
macro_rules! on_all_servers {
    ($($name:ident)*) => {
        $(
            mod $name {
                use super::Servers;

                #[tokio::test(flavor = "multi_thread")]
                async fn standalone() {
                    super::$name(Servers::standalone()).await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn sentinel() {
                    super::$name(Servers::watched().await).await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn cluster() {
                    super::$name(Servers::cluster().await).await;
                }
            }
        )*
    };
}

on_all_servers! {
    every_command_works
    what_a_killed_host_held_is_handled_by_another
    every_kind_of_queue_is_served
}

async fn every_command_works(servers: Servers) {
    let (handler, acks) = (guest("publishing"), guest("ack"));
    let (handler, acks) = (handler.display(), acks.display());
    let urls = servers.urls().await;
    for (round, url) in urls.iter().enumerate() {
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
        assert!(ended.stderr.contains("policy:o*"), "{ended:?}");
        let report =
            ask("inspect --stream orders --group workers --dead-letter graveyard --json").json();
        assert_eq!(report["dead_letters"], 1, "{report}");
        let watched =
            "watch --stream orders --group workers --dead-letter graveyard --json --count 1";
        assert_eq!(ask(watched).ok().stdout.lines().count(), 1);
        let peeked = ask("dlq peek graveyard --json");
        assert!(peeked.stdout.contains("drop:no"), "{peeked:?}");
        let exported = ask("dlq export graveyard").ok();
        assert_eq!(exported.stdout.lines().count(), 1);
        ask("dlq replay graveyard").ok();
        let graves = servers.at("graveyard").await;
        assert_eq!(graves.number("XLEN graveyard").await, 0);
        let ended = ask(&run);
        assert_eq!(ended.json()["dead_lettered"]["dropped"], 1, "{ended:?}");
        ask("dlq purge graveyard --yes").ok();
        let name = format!("round-{round}");
        ask(&format!("deploy --queue-key orders {acks} --by {name}")).ok();
        let versions = ask("versions --queue-key orders");
        assert!(versions.stdout.contains(&name), "{versions:?}");
        let orders = servers.at("orders").await;
        assert_eq!(orders.pending("orders", "workers").await, []);
    }
    let bench = format!(
        "bench --redis {} --handler {acks} --messages 500 --repeat 1 --json",
        urls[0]
    );
    run_line(&bench).ok();
    let invoices = bodies(&servers.at("invoices").await, "invoices").await;
    assert_eq!(invoices.len(), urls.len());
}

async fn what_a_killed_host_held_is_handled_by_another(servers: Servers) {
    let url = servers.url();
    let host = options(&url).flag("handler", &guest("scripted").display().to_string());
    let host = host.without("grant-publish");
    let first = host.ready().await;
    let publish = |body: &str| {
        let line = format!("publish --redis {url} --stream orders --body {body}");
        run_line(&line).ok();
    };
    publish("sleep:600000,ack");
    first.starts(1).await;
    first.kill().await;
    let second = host.ready().await;
    second.starts(1).await;
    let orders = servers.at("orders").await;
    eventually("it is acknowledged", async || {
        orders.pending("orders", "workers").await.is_empty()
    })
    .await;
    assert_eq!(second.witness().total(), 1);
    second.drained().await;
}

async fn every_kind_of_queue_is_served(servers: Servers) {
    let url = servers.url();
    let acks = guest("ack").display().to_string();
    let of = |flags: &str| {
        let options = HostOptions::at(&url).without("stream").without("group");
        options.flag("handler", &acks).flags(flags).admin()
    };
    let series = "hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"}";
    let cases = [
        ("list=jobs reliable=true", "--list jobs --reliable"),
        ("list=lines", "--list lines"),
        ("channel=news", "--channel news"),
        ("sharded-channel=shards", "--sharded-channel shards"),
    ];
    for (flags, to) in cases {
        let host = of(flags).ready().await;
        run_line(&format!("publish --redis {url} {to} --body x")).ok();
        let mut expected = 1;
        if flags.contains("reliable") {
            run_line(&format!("publish --redis {url} {to} --body x --delay 10ms")).ok();
            expected = 2;
        }
        eventually("it is acknowledged", async || {
            host.metric(series) == expected
        })
        .await;
        if let (Servers::Cluster(cluster), false) = (&servers, to.contains("--channel")) {
            // The slot moves away, and the queue goes with it.
            let key = flags.split(['=', ' ']).nth(1).unwrap();
            let to_node = (cluster.owner(key).await + 1) % 3;
            cluster.migrate(keys::slot(key), to_node).await;
            let mut sent = expected;
            eventually("it is served there", async || {
                run_line(&format!("publish --redis {url} {to} --body x")).ok();
                sent += 1;
                host.metric(series) > expected
            })
            .await;
            if flags.contains("list") {
                eventually("all are", async || host.metric(series) == sent).await;
            }
        }
        host.drained().await;
    }
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
    assert_eq!(published.certain(), 360, "{:?}", published.errors);
    all_have_ended(&servers, &published, &hosts).await;
    for host in hosts {
        host.drained().await;
    }
}

/// A failover that an operator asks for keeps the connections of clients open. The old primary then refuses a write
/// and the `WAIT` behind it; only the first refusal names the new primary.
#[tokio::test]
async fn a_durable_write_follows_a_primary_that_became_a_replica() {
    let servers = Servers::Cluster(Cluster::start(3, 3).await);
    let publisher = publisher(&servers.url(), true);
    let mut published = Published::default();
    published.publish(&publisher, 1).await;
    let old = servers.owner("orders").await;
    let Servers::Cluster(cluster) = &servers else {
        unreachable!("it is a cluster")
    };
    let replica = (3..6).find(|place| place % 3 == old).unwrap();
    let next = cluster.raw(replica).await;
    let mut asked: Option<Instant> = None;
    eventually("the replica is the primary", async || {
        // The servers give up after five seconds.
        if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(6)) {
            drop(next.try_ask("CLUSTER FAILOVER").await);
            asked = Some(Instant::now());
        }
        next.text("INFO replication").await.contains("role:master")
    })
    .await;
    servers.replaced("orders", old).await;
    servers.healed().await;
    published.publish(&publisher, 1).await;
    assert_eq!(published.certain(), 2, "{:?}", published.errors);
}

#[tokio::test]
async fn the_refusal_of_a_replica_is_that_of_the_write() {
    let (first, second) = (RedisServer::start(), RedisOptions::default().tcp().start());
    let port = second.port();
    let publisher = publisher(&first.url(), true);
    first
        .raw()
        .await
        .ask(&format!("REPLICAOF 127.0.0.1 {port}"))
        .await;
    let sent = publisher.publish(&Outgoing::new("ack".to_owned())).await;
    let error = sent.unwrap_err().to_string();
    assert!(error.contains("READONLY"), "{error}");
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
    let mut slowest = Duration::ZERO;
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
        let recovered = Instant::now();
        let before = stream(&servers, "invoices").await.len();
        while stream(&servers, "invoices").await.len() <= before {
            assert!(
                recovered.elapsed() < PATIENCE,
                "no host goes on after failover {round}: {:?}\n{}",
                published.errors,
                last_lines(&hosts)
            );
            published.publish(&publisher, 1).await;
        }
        slowest = slowest.max(recovered.elapsed());
        published.publish(&publisher, 30).await;
        if round + 1 < times {
            servers.healed().await;
        }
    }
    all_have_ended(&servers, &published, &hosts).await;
    let lines = hosts.iter().map(|host| host.log().len()).max();
    println!("slowest recovery: {slowest:?} behind the servers'; most lines of a log: {lines:?}");
    for host in hosts {
        host.drained().await;
    }
}

/// Hosts that are restarted one after the other under load; `make test-all` has twenty.
#[tokio::test]
async fn hosts_of_a_cluster_are_restarted_one_by_one_and_lose_nothing() {
    let servers = Servers::cluster().await;
    let count = if times(0) > 0 { 20 } else { 4 };
    let mut hosts = Vec::new();
    for _ in 0..count {
        hosts.push(options(&servers.url()).ready().await);
    }
    let publisher = publisher(&servers.url(), false);
    let mut published = Published::default();
    for _ in 0..count {
        published.publish(&publisher, 25).await;
        hosts.remove(0).drained().await;
        hosts.push(options(&servers.url()).ready().await);
    }
    all_have_ended(&servers, &published, &hosts).await;
}

#[tokio::test]
async fn a_cluster_that_fails_over_loses_nothing_that_was_confirmed() {
    failovers(Servers::Cluster(Cluster::start(3, 3).await), times(2)).await;
}

#[tokio::test]
async fn a_primary_that_sentinels_replace_loses_nothing_that_was_confirmed() {
    failovers(Servers::watched().await, times(2) / 2).await;
}

#[tokio::test]
async fn sentinels_come_and_go_and_have_a_login_of_their_own() {
    let options_of = RedisOptions::default().user("app on >secret ~* &* +@all");
    let lines = "requirepass watching\nsentinel sentinel-pass watching";
    let mut watched = Watched::with(&options_of, lines).await;
    let url = watched.url().replace("://", "://app:secret@");
    let publish = |url: &str| {
        let mut command = hostler([
            "publish", "--redis", url, "--stream", "orders", "--body", "ack",
        ]);
        command.env("HOSTLER_REDIS_SENTINEL_PASSWORD", "watching");
        end(&mut command)
    };
    publish(&url).ok();
    watched.sentinels[0].kill();
    publish(&url).ok();
    watched.sentinels[0].restart();
    watched.sentinels[1].kill();
    publish(&url).ok();
    assert_eq!(
        watched.servers[0].raw().await.number("XLEN orders").await,
        3
    );
    let refused = publish(&url.replace("mymaster", "other"));
    assert_eq!(refused.code, 64, "{refused:?}");
    let said = "watches no primary `other`";
    assert!(refused.stderr.contains(said), "{refused:?}");
    let line = format!("publish --redis {url} --stream orders --body x");
    let refused = run_line(&line);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.stderr.contains("NOAUTH"), "{refused:?}");
    assert!(!refused.stderr.contains("secret"), "{refused:?}");
}

#[tokio::test]
async fn a_cluster_is_served_by_tls_with_a_login_and_resp3() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let (cert, key) = authority.issue("127.0.0.1");
    let tls = TlsOptions {
        ca: authority.ca(),
        cert,
        key,
        clients: false,
    };
    let options_of = RedisOptions::default()
        .tls(tls)
        .user("app on >secret ~* &* +@all");
    let cluster = Cluster::with(&options_of, 3, 0).await;
    let url = cluster.url().replace("redis+", "rediss+");
    let url = format!("{}?protocol=resp3", url.replace("://", "://app:secret@"));
    let ca = authority.ca().display().to_string();
    let host = options(&url).flag("redis-ca", &ca).ready().await;
    let line =
        format!("publish --redis {url} --redis-ca {ca} --stream orders --body publish:invoices:1");
    run_line(&line).ok();
    let invoices = cluster.at("invoices").await;
    eventually("the follow-up is there", async || {
        bodies(&invoices, "invoices").await == ["1"]
    })
    .await;
    let ended = host.drained().await;
    assert!(!ended.stderr().contains("secret"), "{}", ended.stderr());
}

#[tokio::test]
async fn what_no_replica_confirms_is_unknown_and_is_not_lost() {
    let server = RedisOptions::default()
        .tcp()
        .set("repl-diskless-sync-delay", "0")
        .start();
    let url = server.url();
    let line = format!("publish --redis {url} --stream orders --body publish:invoices:1");
    let ended = run_line(&format!("{line} --durability replica"));
    assert_eq!(ended.code, 69, "{ended:?}");
    assert!(ended.stderr.contains("did not answer WAIT"), "{ended:?}");
    let raw = server.raw().await;
    assert_eq!(raw.number("XLEN orders").await, 1);
    let host = options(&url).flag("durability", "replica").start();
    host.starts(1).await;
    host.logs("redis is away").await;
    let of = ["127.0.0.1", &server.port().to_string()];
    let replica = RedisOptions::default().words("replicaof", &of).start();
    eventually("the replica has caught up", async || {
        raw.text("INFO replication").await.contains("state=online")
    })
    .await;
    run_line(&format!("{line} --durability replica")).ok();
    eventually("both are acknowledged, each once", async || {
        raw.pending("orders", "workers").await.is_empty()
            && bodies(&raw, "invoices").await == ["1", "1"]
    })
    .await;
    assert_eq!(bodies(&replica.raw().await, "invoices").await, ["1", "1"]);
    host.drained().await;
}

#[tokio::test]
async fn parts_are_chosen_alike_in_every_language_and_shown_by_node() {
    let doc = include_str!("../../../docs/scale.md");
    let rule = |language: &str| {
        let row = doc
            .lines()
            .find(|line| line.trim().starts_with(&format!("| {language}")));
        let cell = row
            .unwrap()
            .trim()
            .trim_end_matches('|')
            .split(" | ")
            .last()
            .unwrap();
        cell.trim().trim_matches('`').trim().to_owned()
    };
    let python = format!(
        "import sys, zlib; key = sys.argv[1]; print({})",
        rule("Python")
    );
    let node = rule("JavaScript");
    let node = format!("const zlib = require('zlib'), key = process.argv[1]; console.log({node})");
    let cluster = Cluster::start(3, 0).await;
    let url = cluster.url();
    for customer in 0..5 {
        let key = format!("customer-{customer}");
        let part = hostler::publish::part_of(key.as_bytes(), 16.try_into().unwrap());
        let expected = hostler::publish::part("orders", part);
        let said = |program: &str, flag: &str, code: &str| {
            let mut command = std::process::Command::new(program);
            end(command.args([flag, code, &key]))
                .ok()
                .stdout
                .trim()
                .to_owned()
        };
        assert_eq!(said("python3", "-c", &python), expected);
        assert_eq!(said("node", "-e", &node), expected);
        let line = format!("publish --redis {url} --stream orders --key {key} --parts 16 --body x");
        run_line(&line).ok();
        assert!(
            cluster
                .at(&expected)
                .await
                .number(&format!("XLEN {expected}"))
                .await
                >= 1
        );
    }
    let shown = run_line(&format!(
        "parts --redis {url} --queue orders --parts 16 --json"
    ))
    .json();
    assert_eq!(shown["parts"].as_array().unwrap().len(), 16);
    for part in shown["parts"].as_array().unwrap() {
        let owner = cluster.owner(part["key"].as_str().unwrap()).await;
        let node = format!("127.0.0.1:{}", cluster.nodes[owner].port());
        assert_eq!(part["node"], node);
    }
    let spread = shown["nodes"].as_object().unwrap().values();
    assert_eq!(spread.map(|n| n.as_u64().unwrap()).sum::<u64>(), 16);
    let refused = run_line(&format!(
        "parts --redis {url} --queue {{orders}} --parts 16"
    ));
    assert_eq!(refused.code, 64, "{refused:?}");
    let alone = run_line(&format!(
        "publish --redis {url} --stream orders --key a --body x"
    ));
    assert!(alone.stderr.contains("--parts"), "{alone:?}");
}
