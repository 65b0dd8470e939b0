//! The scene of tests that run on streams and on reliable lists.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler::dead_letter::{DeadLetters, Entry};
use hostler::delivery::message::Headers;
use hostler::delivery::policy::{Reason, Rejection};
use hostler::queue::Queue;
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::kind::QueueOptions;
use hostler::queue::list::ListOptions;
use hostler::queue::stream::StreamOptions;
use hostler::runtime::{Exit, Settings};
use hostler::telemetry::metrics::Metrics;
use hostler::wire::dead_letter::{Context, list_headers, stream_fields};
use hostler::wire::list::Framing;
use hostler::wire::stream::{self, MissingBody};
use hostler::wire::{envelope, frame};
use hostler_tests::command::{Ended, run};
use hostler_tests::host::HostOptions;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::RedisOptions;

use crate::scene::{self, GROUP, cluster, connector};
pub(crate) use crate::scene::{Kind, on_both, running, until_empty};

/// A host that gives each message three starts, and ends when its queue is empty.
pub(crate) fn three() -> Settings {
    until_empty(running(Some(3)))
}

/// A queue of either kind, and how it is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) key: String,
    pub(crate) dead: DeadLetterQueue,
    pub(crate) max_length: Option<u64>,
    pub(crate) ttl: Option<Duration>,
    /// Values and entries in another layout are malformed.
    pub(crate) strict: bool,
}

impl Served {
    pub(crate) fn new(key: &str, dead: &str) -> Self {
        Self {
            key: key.to_owned(),
            dead: DeadLetterQueue::new(dead),
            max_length: None,
            ttl: None,
            strict: false,
        }
    }

    fn options(self, kind: Kind) -> QueueOptions {
        match kind {
            Kind::Stream => QueueOptions::Stream(StreamOptions {
                dead_letter: Some(self.dead),
                max_length: self.max_length,
                decoding: stream::Options {
                    missing_body: match self.strict {
                        true => MissingBody::Malformed,
                        false => MissingBody::default(),
                    },
                    ..stream::Options::default()
                },
                ..StreamOptions::new(self.key, "workers")
            }),
            Kind::List => QueueOptions::List(ListOptions {
                dead_letter: Some(self.dead),
                max_length: self.max_length,
                ttl: self.ttl,
                framing: match self.strict {
                    true => Framing::Frame,
                    false => Framing::default(),
                },
                ..ListOptions::new(self.key)
            }),
        }
    }
}

/// A message in a queue, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) headers: Headers,
    pub(crate) body: String,
    /// Of a stream's entry: its fields and values in a row.
    pub(crate) fields: Vec<u8>,
}

impl Found {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.find_str(name).unwrap_or("")
    }

    pub(crate) fn reason(&self) -> &str {
        self.header("x-dead-letter-reason")
    }

    pub(crate) fn attempts(&self) -> &str {
        self.header("x-dead-letter-attempts")
    }

    pub(crate) fn detail(&self) -> &str {
        self.header("x-dead-letter-detail")
    }

    /// Its history as JSON.
    pub(crate) fn deaths(&self) -> serde_json::Value {
        serde_json::from_str(self.header("x-death")).unwrap()
    }
}

/// A queue of one kind, and the handler of the hosts in this process.
pub(crate) struct Both {
    pub(crate) kind: Kind,
    pub(crate) script: Arc<Script>,
}

pub(crate) type Scene = scene::Scene<Both>;

impl Scene {
    pub(crate) async fn new(kind: Kind) -> Self {
        Self::with(kind, RedisOptions::default()).await
    }

    pub(crate) async fn with(kind: Kind, options: RedisOptions) -> Self {
        let script = Arc::default();
        Self::of(Both { kind, script }, options).await
    }

    /// A cluster of one node: its scripts refuse keys of two slots.
    pub(crate) async fn across_slots(kind: Kind, options: RedisOptions) -> Self {
        let scene = Self::with(kind, cluster(options)).await;
        scene.take_all_slots().await;
        scene
    }

    /// The key of the queue of most tests.
    pub(crate) fn key(&self) -> &'static str {
        match self.kind {
            Kind::Stream => "orders",
            Kind::List => "jobs",
        }
    }

    /// The key of its dead letters.
    pub(crate) fn dead_key(&self) -> &'static str {
        match self.kind {
            Kind::Stream => "orders:dead",
            Kind::List => "jobs:dead",
        }
    }

    /// The queue of most tests.
    pub(crate) fn own(&self) -> Served {
        Served::new(self.key(), self.dead_key())
    }

    pub(crate) async fn open(&self, served: Served) -> Arc<dyn Queue> {
        let options = served.options(self.kind);
        options.open(self.connector()).await.unwrap()
    }

    pub(crate) async fn start(&self, served: Served, mut settings: Settings) -> Host {
        settings.gate.ttl = served.ttl;
        Host::on(self.open(served).await, settings, &self.script)
    }

    /// Run a host until its queue is empty.
    pub(crate) async fn serve(&self, served: Served, settings: Settings) -> Arc<Metrics> {
        let host = self.start(served, settings).await;
        let metrics = Arc::clone(&host.metrics);
        assert_eq!(host.ended().await, Exit::Drained);
        metrics
    }

    /// The built binary on the queue of most tests.
    pub(crate) fn binary(&self) -> HostOptions {
        let options = HostOptions::new(&self.server).flag("dead-letter", self.dead_key());
        match self.kind {
            Kind::Stream => options,
            Kind::List => options
                .without("stream")
                .without("group")
                .flag("list", self.key())
                .flag("reliable", "true"),
        }
    }

    /// Put a message as producers do: a bare value where a list's has no headers.
    pub(crate) async fn put(&self, key: &str, body: impl AsRef<[u8]>, headers: &[(&str, &str)]) {
        let body = body.as_ref();
        match self.kind {
            Kind::Stream => {
                let names: Vec<String> = headers.iter().map(|(n, _)| format!("h:{n}")).collect();
                let mut words: Vec<&[u8]> = vec![b"XADD", key.as_bytes(), b"*", b"_payload", body];
                for (name, (_, value)) in names.iter().zip(headers) {
                    words.extend([name.as_bytes(), value.as_bytes()]);
                }
                self.raw.ask_words(&words).await;
            }
            Kind::List if headers.is_empty() => self.push(key, body).await,
            Kind::List => {
                let value = frame::encode(&self::headers(headers), body);
                self.push(key, &value.unwrap()).await;
            }
        }
    }

    /// Put a message into the queue of most tests.
    pub(crate) async fn send(&self, body: impl AsRef<[u8]>) {
        self.put(self.key(), body, &[]).await;
    }

    /// The messages of a queue, oldest first.
    pub(crate) async fn all(&self, key: &str) -> Vec<Found> {
        match self.kind {
            Kind::Stream => {
                let entries = self.raw.entries(key).await;
                entries
                    .into_iter()
                    .map(|(_, fields)| of_fields(&fields))
                    .collect()
            }
            Kind::List => self.values(key).await.iter().map(of_value).collect(),
        }
    }

    /// The values of a list, oldest first.
    pub(crate) async fn values(&self, key: &str) -> Vec<Bytes> {
        let values = self.list(key).await;
        values.into_iter().rev().map(Bytes::from).collect()
    }

    /// Every message of a queue as it stands in Redis, oldest first, without its place.
    pub(crate) async fn contents(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        match self.kind {
            Kind::Stream => {
                let entries = self.raw.entries(key).await;
                entries.into_iter().map(|(_, fields)| fields).collect()
            }
            Kind::List => {
                let values = self.values(key).await;
                values.iter().map(|value| vec![value.to_vec()]).collect()
            }
        }
    }

    pub(crate) async fn bodies(&self, key: &str) -> Vec<String> {
        self.all(key)
            .await
            .into_iter()
            .map(|one| one.body)
            .collect()
    }

    /// The dead letters of the queue of most tests.
    pub(crate) async fn dead(&self) -> Vec<Found> {
        self.all(self.dead_key()).await
    }

    /// The one dead letter.
    pub(crate) async fn only_dead(&self) -> Found {
        let mut dead = self.dead().await;
        assert_eq!(dead.len(), 1, "{dead:?}");
        dead.remove(0)
    }

    pub(crate) async fn length(&self, key: &str) -> u64 {
        let command = match self.kind {
            Kind::Stream => "XLEN",
            Kind::List => "LLEN",
        };
        let length = self.raw.number(&format!("{command} {key}")).await;
        u64::try_from(length).unwrap()
    }

    /// A dead letter of the queue of most tests that died at this time (epoch milliseconds; 0 =
    /// now). Says its id.
    pub(crate) async fn letter_of(
        &self,
        body: impl AsRef<[u8]>,
        reason: Reason,
        headers: &[(&str, &str)],
        died_ms: u64,
    ) -> String {
        let letter = Letter {
            headers,
            died_ms,
            ..Letter::of(reason)
        };
        self.die(body, letter).await
    }

    /// Put a dead letter, as a host writes it. Says its id.
    pub(crate) async fn die(&self, body: impl AsRef<[u8]>, letter: Letter<'_>) -> String {
        let body = Bytes::copy_from_slice(body.as_ref());
        let rejection = Rejection {
            reason: letter.reason,
            detail: "no such customer".to_owned(),
            attempts: 3,
            handled: true,
        };
        let token = format!("7-{}", fastrand::u32(..));
        let context = Context {
            source: letter.source.unwrap_or(self.key()),
            source_id: letter.source_id.unwrap_or(&token),
            group: (self.kind == Kind::Stream).then_some(letter.group),
            rejection: &rejection,
            handler: "sha256:abc",
            evidence: None,
            now_ms: match letter.died_ms {
                0 => hostler::telemetry::wall_clock_ms(),
                died => died,
            },
            expires_at_ms: None,
        };
        let key = self.dead_key();
        let headers = headers(letter.headers);
        if self.kind == Kind::List {
            let value = frame::encode(&list_headers(&headers, &context).0, &body).unwrap();
            self.push(key, &value).await;
            return Entry::of_value(value).id;
        }
        let fields = stream::encode(body, &headers, &Bytes::from_static(b"_payload"));
        let id = match letter.died_ms {
            0 => "*".to_owned(),
            died => format!("{died}-*"),
        };
        self.add(key, &id, &stream_fields(&fields, &headers, &context).0)
            .await
    }

    /// Add an entry with these fields to a stream. Says its id.
    pub(crate) async fn add(&self, key: &str, id: &str, fields: &[(Bytes, Bytes)]) -> String {
        let mut words: Vec<&[u8]> = vec![b"XADD", key.as_bytes(), id.as_bytes()];
        words.extend(fields.iter().flat_map(|(n, v)| [&n[..], &v[..]]));
        redis::from_redis_value(self.raw.ask_words(&words).await).unwrap()
    }

    /// Put `count` dead letters, with the bodies 0, 1, 2, ...
    pub(crate) async fn numbered(&self, count: usize) {
        for n in 0..count {
            self.letter(&n.to_string(), Reason::Trap).await;
        }
    }

    /// The same that has died just now.
    pub(crate) async fn letter(&self, body: &str, reason: Reason) -> String {
        self.letter_of(body, reason, &[], 0).await
    }

    pub(crate) fn letters(&self) -> DeadLetters {
        self.letters_at(&self.url())
    }

    pub(crate) fn letters_at(&self, url: &str) -> DeadLetters {
        DeadLetters::new(&connector(url), self.dead_key())
    }

    /// The words of `hostler dlq <command> ...` on the dead letters of most tests.
    pub(crate) fn words(&self, command: &str, more: &[&str]) -> Vec<String> {
        let url = self.server.url();
        let first = ["dlq", command, "--redis", &url, self.dead_key()];
        let words = first.iter().chain(more);
        words.map(|word| (*word).to_owned()).collect()
    }

    /// Run it.
    pub(crate) fn dlq(&self, command: &str, more: &[&str]) -> Ended {
        run(self.words(command, more))
    }

    /// The words of `hostler inspect ...` on the queue of most tests.
    pub(crate) fn inspecting(&self, more: &[&str]) -> Vec<String> {
        let url = self.server.url();
        let queue: &[&str] = match self.kind {
            Kind::Stream => &["--stream", "orders", "--group", "workers"],
            Kind::List => &["--list", "jobs", "--reliable"],
        };
        let first = ["inspect", "--redis", &url];
        let words = first.iter().chain(queue).chain(more);
        words.map(|word| (*word).to_owned()).collect()
    }

    /// Every key and its value, as Redis serializes it.
    pub(crate) async fn dump(&self) -> std::collections::BTreeMap<String, Vec<u8>> {
        let keys: Vec<String> = redis::from_redis_value(self.raw.ask("KEYS *").await).unwrap();
        let mut dump = std::collections::BTreeMap::new();
        for key in keys {
            let value = self.raw.ask_words(&[b"DUMP", key.as_bytes()]).await;
            dump.insert(key, redis::from_redis_value(value).unwrap());
        }
        dump
    }
}

/// A dead letter to put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letter<'a> {
    pub(crate) reason: Reason,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// Where it died, if not in the queue of most tests.
    pub(crate) source: Option<&'a str>,
    pub(crate) source_id: Option<&'a str>,
    /// Of a stream: in which of its groups it died.
    pub(crate) group: &'a str,
    /// When it died, in epoch milliseconds; 0 = now.
    pub(crate) died_ms: u64,
}

impl Letter<'_> {
    pub(crate) fn of(reason: Reason) -> Self {
        Self {
            reason,
            headers: &[],
            source: None,
            source_id: None,
            group: GROUP,
            died_ms: 0,
        }
    }
}

fn headers(headers: &[(&str, &str)]) -> Headers {
    let header =
        |(name, value): &(&str, &str)| ((*name).to_owned().into(), (*value).to_owned().into());
    Headers::new(headers.iter().map(header).collect())
}

/// An entry of a stream.
fn of_fields(fields: &[Vec<u8>]) -> Found {
    let pairs = fields.chunks(2);
    let pairs = pairs.map(|pair| (Bytes::from(pair[0].clone()), Bytes::from(pair[1].clone())));
    let pairs: Vec<_> = pairs.collect();
    let body = pairs.iter().find(|(name, _)| name == "_payload");
    Found {
        headers: stream::headers(&pairs),
        body: body.map_or_else(String::new, |(_, body)| {
            String::from_utf8_lossy(body).into()
        }),
        fields: fields.concat(),
    }
}

/// A value of a list: a frame, an envelope with headers, or a bare body.
fn of_value(value: &Bytes) -> Found {
    let with_headers = |(headers, _): &(Headers, Bytes)| !headers.is_empty();
    let (headers, body) = frame::decode(value)
        .or_else(|| envelope::decode(value).filter(with_headers))
        .unwrap_or_else(|| (Headers::default(), value.clone()));
    Found {
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
        fields: Vec::new(),
    }
}
