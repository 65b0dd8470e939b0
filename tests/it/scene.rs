//! The scene of a test: a private Redis server, a connection that inspects it, and the data of a family
//! of tests.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::attempt::DeliveryLimit;
use hostler::delivery::backoff::Backoff;
use hostler::delivery::message::DeliveryId;
use hostler::delivery::policy::{Policy, Reason, Rejection};
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::stream::StreamOptions;
use hostler::queue::{Backlog, Claim, Queue, Record, Reply, SettleAction, Settlement, Taken};
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler::runtime::{Settings, UntilEmpty};
use hostler_tests::redis::{PATIENCE, RawRedis, RedisOptions, RedisServer, eventually, free_port};

/// The queue of most tests.
pub(crate) const KEY: &str = "orders";
/// Its consumer group.
pub(crate) const GROUP: &str = "workers";
/// Its dead letters.
pub(crate) const DEAD: &str = "orders:dead";

/// The user of tests that take rights away: see [`Scene::with_user`].
const USER: &str = "app";
const PASSWORD: &str = "secret";

/// A kind of queue that promises at least once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Stream,
    List,
}

/// Tests of both kinds: `name::stream` and `name::list` for each function `name(kind)`.
macro_rules! on_both {
    ($($name:ident)*) => {
        $(
            mod $name {
                use crate::scene::Kind;

                #[tokio::test(flavor = "multi_thread")]
                async fn stream() {
                    super::$name(Kind::Stream).await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn list() {
                    super::$name(Kind::List).await;
                }
            }
        )*
    };
}
pub(crate) use on_both;

/// A private server, and the data `K` of a family of tests. The scene dereferences to `K`.
pub(crate) struct Scene<K> {
    pub(crate) server: RedisServer,
    pub(crate) raw: RawRedis,
    pub(crate) own: K,
}

impl<K> Deref for Scene<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.own
    }
}

impl<K> DerefMut for Scene<K> {
    fn deref_mut(&mut self) -> &mut K {
        &mut self.own
    }
}

impl<K: Default> Scene<K> {
    pub(crate) async fn new() -> Self {
        Self::with(RedisOptions::default()).await
    }

    pub(crate) async fn with(options: RedisOptions) -> Self {
        Self::of(K::default(), options).await
    }

    /// A server with the user `app`, who may do everything but this: `"-xdel"`. See
    /// [`Scene::user_url`] and [`Scene::rights`].
    pub(crate) async fn with_user(but: &str) -> Self {
        Self::with(user(but)).await
    }
}

/// A server with the user `app`, who may do everything but this.
pub(crate) fn user(but: &str) -> RedisOptions {
    RedisOptions::default().user(&format!("{USER} on >{PASSWORD} ~* &* +@all {but}"))
}

impl<K> Scene<K> {
    pub(crate) async fn of(own: K, options: RedisOptions) -> Self {
        let server = options.start();
        let raw = server.raw().await;
        Self { server, raw, own }
    }

    /// Make the server a cluster of one node that has all slots: its scripts refuse keys of two
    /// slots. The server must have been started with [`cluster`].
    pub(crate) async fn take_all_slots(&self) {
        self.raw.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
        eventually("the cluster is up", async || {
            let info = self.raw.text("CLUSTER INFO").await;
            info.contains("cluster_state:ok")
        })
        .await;
    }

    /// Connect again, after a restart of the server.
    pub(crate) async fn reconnect(&mut self) {
        self.raw = self.server.raw().await;
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn connector(&self) -> Connector {
        connector(&self.url())
    }

    /// The URL of the server for the user `app`.
    pub(crate) fn user_url(&self) -> String {
        format!("{}?user={USER}&pass={PASSWORD}", self.url())
    }

    /// Change the rights of the user `app`: `"-xack"`, `"resetkeys ~orders"`.
    pub(crate) async fn rights(&self, rules: &str) {
        self.raw.ask(&format!("ACL SETUSER {USER} {rules}")).await;
    }

    /// Let the server refuse every write that needs memory, or take them again.
    pub(crate) async fn out_of_memory(&self, is_full: bool) {
        let most = u8::from(is_full);
        self.raw.ask(&format!("CONFIG SET maxmemory {most}")).await;
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.raw.ask(&format!("DEL {key}")).await;
    }

    /// Add `count` small entries to a stream, or values to a list.
    pub(crate) async fn fill(&self, command: &str, key: &str, count: usize) {
        let each = match command {
            "XADD" => "redis.call('XADD', KEYS[1], '*', '_payload', 'x')",
            _ => "redis.call('LPUSH', KEYS[1], 'x')",
        };
        let script = format!("for _ = 1, ARGV[1] do {each} end");
        let count = count.to_string();
        let words = ["EVAL", &script, "1", key, &count].map(str::as_bytes);
        self.raw.ask_words(&words).await;
    }

    pub(crate) async fn exists(&self, key: &str) -> bool {
        self.raw.number(&format!("EXISTS {key}")).await > 0
    }

    /// How many keys there are.
    pub(crate) async fn keys(&self) -> i64 {
        self.raw.number("DBSIZE").await
    }

    /// Put text where a queue or a set is expected.
    pub(crate) async fn obstruct(&self, key: &str) {
        self.raw.ask(&format!("SET {key} x")).await;
    }

    /// The values of a list, left to right: the newest first.
    pub(crate) async fn list(&self, key: &str) -> Vec<Vec<u8>> {
        let value = self.raw.ask(&format!("LRANGE {key} 0 -1")).await;
        redis::from_redis_value(value).unwrap()
    }

    pub(crate) async fn push(&self, key: &str, value: &[u8]) {
        self.raw.ask_words(&[b"LPUSH", key.as_bytes(), value]).await;
    }

    /// The server's time of day.
    pub(crate) async fn now_ms(&self) -> i64 {
        let time = self.raw.ask("TIME").await;
        let (seconds, micros): (i64, i64) = redis::from_redis_value(time).unwrap();
        seconds * 1000 + micros / 1000
    }

    /// How often the server ran this command.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let name = format!("cmdstat_{command}:calls=");
        self.raw.info("commandstats", &name).await
    }

    /// Wait until `clients` clients wait for messages.
    pub(crate) async fn blocked(&self, clients: u64) {
        eventually(&format!("{clients} clients wait"), async || {
            self.raw.info("clients", "blocked_clients:").await == clients
        })
        .await;
    }
}

/// A server for [`Scene::take_all_slots`].
pub(crate) fn cluster(options: RedisOptions) -> RedisOptions {
    // Without this setting the port of the cluster's bus is 10000 higher, where a port may not exist.
    let bus = free_port().to_string();
    let options = options.tcp().set("cluster-enabled", "yes");
    options.set("cluster-port", &bus)
}

pub(crate) fn connector(url: &str) -> Connector {
    let target = Target::parse(url, PasswordSource::Url, TlsFiles::default()).unwrap();
    // A busy machine may leave a server that has what was asked for without time to say so. Tests of deadlines have their own.
    Connector::new(target, "test").with_deadline(PATIENCE)
}

/// A policy with dead letters, this delivery limit, and short waits between attempts.
pub(crate) fn policy(cap: Option<u32>) -> Policy {
    Policy {
        limit: DeliveryLimit {
            cap,
            ..DeliveryLimit::default()
        },
        has_dead_letter: true,
        backoff: Backoff {
            first: Duration::from_millis(5),
            ..Backoff::default()
        },
        ..Policy::default()
    }
}

/// The queue of most tests as a stream, with bounded dead letters.
pub(crate) fn stream_options() -> StreamOptions {
    StreamOptions {
        dead_letter: Some(DeadLetterQueue {
            max_len: Some(100_000),
            ..DeadLetterQueue::new(DEAD)
        }),
        ..StreamOptions::new(KEY, GROUP)
    }
}

/// A host with this delivery limit; it runs until it is stopped.
pub(crate) fn running(cap: Option<u32>) -> Settings {
    Settings::new(policy(cap))
}

/// The same, but it ends when its queue is empty.
pub(crate) fn until_empty(settings: Settings) -> Settings {
    let timeout = Some(Duration::from_secs(100));
    Settings {
        until_empty: Some(UntilEmpty { timeout }),
        ..settings
    }
}

/// Claim up to `max` messages without waiting.
pub(crate) async fn fetch(host: &(impl Queue + ?Sized), max: usize) -> Vec<Arc<Claim>> {
    shared(host.fetch(max, Duration::ZERO).await.unwrap())
}

/// Claim up to `max` orphans, as a host that holds nothing.
pub(crate) async fn orphans(host: &(impl Queue + ?Sized), max: usize) -> Taken {
    host.take_orphans(max, &holds_nothing).await.unwrap()
}

/// The same; only the claims.
pub(crate) async fn orphaned(host: &(impl Queue + ?Sized), max: usize) -> Vec<Arc<Claim>> {
    shared(orphans(host, max).await.claims)
}

/// Claim more orphans, as a host that holds these: it soon takes its own for lost, unless it says that it holds them.
/// Returns how many it holds then.
pub(crate) async fn take_more(host: &(impl Queue + ?Sized), taken: &mut Vec<Arc<Claim>>) -> usize {
    let ids: Vec<DeliveryId> = taken.iter().map(|claim| claim.id).collect();
    let more = host.take_orphans(9, &|id| ids.contains(id)).await.unwrap();
    taken.extend(shared(more.claims));
    taken.len()
}

/// Settle one delivery.
pub(crate) async fn settle(
    host: &(impl Queue + ?Sized),
    claim: &Arc<Claim>,
    count: u32,
    step: SettleAction,
) -> Reply {
    let settlement = settlement(claim, count, step);
    let mut replies = host.settle(&[settlement]).await.unwrap();
    assert_eq!(replies.len(), 1);
    replies.remove(0)
}

/// Settle one delivery, and assert that the settlement was carried out.
pub(crate) async fn settled(
    host: &(impl Queue + ?Sized),
    claim: &Arc<Claim>,
    count: u32,
    step: SettleAction,
) {
    let what = format!("{step:?} of {:?}", claim.message.body);
    assert_eq!(
        settle(host, claim, count, step).await,
        Reply::Done,
        "{what}"
    );
}

/// Settle one delivery, and assert that Redis refuses it: why.
pub(crate) async fn refused(
    host: &(impl Queue + ?Sized),
    claim: &Arc<Claim>,
    count: u32,
    step: SettleAction,
) -> String {
    match settle(host, claim, count, step).await {
        Reply::Refused(why) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// Record the start that the native count `write` stands for.
pub(crate) async fn recorded(
    host: &(impl Queue + ?Sized),
    claim: &Arc<Claim>,
    expect: u32,
    write: u32,
) -> Reply {
    let replies = host.record(&[record(claim, expect, write)]).await;
    replies.unwrap().remove(0)
}

/// Nothing waits, and nothing is pending.
pub(crate) async fn is_empty(host: &(impl Queue + ?Sized)) -> bool {
    host.backlog().await.unwrap() == Backlog::default()
}

/// As hosts keep claims.
pub(crate) fn shared(claims: Vec<Claim>) -> Vec<Arc<Claim>> {
    claims.into_iter().map(Arc::new).collect()
}

/// A host that holds nothing.
pub(crate) fn holds_nothing(_: &DeliveryId) -> bool {
    false
}

pub(crate) fn record(claim: &Arc<Claim>, expect: u32, write: u32) -> Record {
    Record {
        claim: Arc::clone(claim),
        expect,
        write,
        is_late: false,
        is_repeated: false,
    }
}

/// The same after an answer that was lost.
pub(crate) fn repeated(record: Record) -> Record {
    Record {
        is_repeated: true,
        ..record
    }
}

pub(crate) fn settlement(claim: &Arc<Claim>, count: u32, step: SettleAction) -> Settlement {
    Settlement {
        handler: "sha256:aa".into(),
        ..Settlement::new(Arc::clone(claim), count, step)
    }
}

pub(crate) fn park(keep: u32, after: Duration) -> SettleAction {
    SettleAction::Park { keep, after }
}

/// Put it back with this count: it is due at once.
pub(crate) fn requeue(keep: u32) -> SettleAction {
    park(keep, Duration::ZERO)
}

pub(crate) fn dead_letter() -> SettleAction {
    SettleAction::DeadLetter(rejection())
}

pub(crate) fn discard() -> SettleAction {
    SettleAction::Discard(rejection())
}

fn rejection() -> Rejection {
    Rejection {
        reason: Reason::Dropped,
        detail: "no such product".to_owned(),
        attempts: 1,
        handled: true,
    }
}

pub(crate) fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(_))
}

/// The bodies of some claims, as text.
pub(crate) fn bodies<C: Deref<Target = Claim>>(claims: &[C]) -> Vec<String> {
    let body = |claim: &C| String::from_utf8_lossy(&claim.message.body).into_owned();
    claims.iter().map(body).collect()
}
