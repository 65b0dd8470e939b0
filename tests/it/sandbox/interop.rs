//! A foreign peer: a service of the ruststream family on the same streams, lists and channels. Hosts
//! read whole messages of the peer. The peer reads messages that hosts publish, requeue and
//! dead-letter.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use bytes::Bytes;
use hostler::publish::{self, Codec, Destination, List, Outgoing, Receipt};
use hostler::queue::kind::QueueOptions;
use hostler::queue::pubsub::PubSubOptions;
use hostler::wire::frame;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{PATIENCE, RedisOptions, eventually};
use serde_json::{Value as Json, json};

use crate::scene;

/// Header values can be text or any bytes.
const HEADERS: [(&str, &[u8]); 3] = [
    ("content-type", b"application/json"),
    ("correlation-id", b"abc-1"),
    ("signature", b"\xde\xad\xbe\xef"),
];
const NOT_TEXT: &[u8] = b"\x00\xff\r\n body";
/// The header in which the peer counts starts.
const THEIR_COUNT: &str = "x-ruststream-retry-count";

#[derive(Default)]
struct Peer;

type Scene = scene::Scene<Peer>;

/// A message as the peer sees it.
#[derive(Debug)]
struct Seen {
    body: Vec<u8>,
    headers: BTreeMap<String, Vec<u8>>,
}

/// A peer that reads; killed when dropped.
struct Reader {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Scene {
    fn peer(&self, words: &[&str]) -> Command {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| workspace.join("target"));
        let peer = target.join("debug/peer");
        assert!(
            peer.is_file(),
            "{} is missing: run `make peer`",
            peer.display()
        );
        let mut command = Command::new(peer);
        command.arg(format!("redis://127.0.0.1:{}", self.server.port()));
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// The peer publishes a message with all headers, and these.
    fn peer_publishes(&self, kind: &str, key: &str, body: &[u8], more: &[(&str, &str)]) {
        let mut headers = BTreeMap::from(HEADERS);
        headers.extend(more.iter().map(|(n, v)| (*n, v.as_bytes())));
        let line = json!({"body": body, "headers": headers});
        let mut child = self.peer(&["publish", kind, key]).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{line}").unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }

    /// A peer that reads this many, once it has begun to.
    fn peer_reads(&self, kind: &str, key: &str, answer: &str) -> Reader {
        let mut child = self
            .peer(&["read", kind, key, "1", answer])
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::sync_channel(16);
        let stdout: ChildStdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        let reader = Reader { child, lines };
        assert_eq!(reader.line(), "ready");
        reader
    }

    /// A host on this queue, which dead-letters to `<queue>:dead` (where its kind can).
    fn host(&self, kind: &str, queue: &str) -> HostOptions {
        let host = HostOptions::new(&self.server);
        let elsewhere = host.clone().without("stream").without("group");
        let dead = format!("{queue}:dead");
        match kind {
            "stream" => host.flag("stream", queue).flag("dead-letter", &dead),
            "list" => elsewhere
                .flag("list", queue)
                .flag("reliable", "true")
                .flag("dead-letter", &dead),
            _ => elsewhere.flag("channel", queue),
        }
    }

    /// hostler publishes a message with all headers.
    async fn publish(&self, to: impl Into<Destination>, body: &'static [u8]) -> Receipt {
        let message = HEADERS
            .into_iter()
            .fold(Outgoing::new(body), |message, (name, value)| {
                message.header(name, value)
            });
        let publisher = publish::connect(&self.server.url(), to).await.unwrap();
        publisher.publish(&message).await.unwrap()
    }
}

impl Reader {
    fn line(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("the peer says something")
    }

    /// The next message that it has read and settled.
    fn reads(&self) -> Seen {
        let line: Json = serde_json::from_str(&self.line()).unwrap();
        let bytes = |bytes: &Json| -> Vec<u8> { serde_json::from_value(bytes.clone()).unwrap() };
        let headers = line["headers"].as_object().unwrap();
        Seen {
            body: bytes(&line["body"]),
            headers: headers.iter().map(|(n, v)| (n.clone(), bytes(v))).collect(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(std::str::from_utf8(value).unwrap())
    }

    /// Body and every header are there, byte for byte.
    #[track_caller]
    fn expect_whole(&self, body: &[u8]) {
        assert_eq!(self.body, body);
        for (name, value) in HEADERS {
            assert_eq!(
                self.headers.get(name).map(|v| &v[..]),
                Some(value),
                "{name}"
            );
        }
    }
}

/// The guest has echoed the message into the reason of its dead letter.
#[track_caller]
fn expect_seen(seen: &str, queue: &str) {
    for part in [
        &format!("queue={queue} "),
        " body=4 ",
        "content-type=application/json",
        "correlation-id=abc-1",
        // Guests see bytes that are no text with replacement characters.
        "signature=\u{7ad}\u{fffd}\u{fffd}",
    ] {
        assert!(seen.contains(part), "no {part} in {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_peer_on_a_stream_arrives_whole() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    for body in [&b"echo"[..], NOT_TEXT] {
        scene.peer_publishes("stream", "orders", body, &[]);
    }
    let published = scene.raw.entries("orders").await;
    scene.host("stream", "orders").cap(1).finish().await;
    let dead = scene.raw.entries("orders:dead").await;
    assert_eq!(dead.len(), 2);
    let mut seen = String::new();
    for (_, fields) in dead {
        let field = |name: &str| {
            let mut pairs = fields.chunks(2);
            let pair = pairs.find(|pair| pair[0] == name.as_bytes());
            pair.map(|pair| pair[1].clone())
        };
        // Its copy has every field that the peer wrote, as it wrote it.
        let source = field("h:x-dead-letter-source-id").unwrap();
        let mut source = published.iter().filter(|(id, _)| id.as_bytes() == source);
        for pair in source.next().unwrap().1.chunks(2) {
            assert!(fields.chunks(2).any(|copy| copy == pair), "{pair:?}");
        }
        if field("_payload").as_deref() == Some(b"echo") {
            seen = String::from_utf8(field("h:x-dead-letter-detail").unwrap()).unwrap();
        }
    }
    expect_seen(&seen, "orders");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_peer_on_a_list_arrives_whole_in_both_framings() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    for (theirs, codec) in [("list", "frame"), ("json", "json")] {
        scene.peer_publishes(theirs, codec, b"echo", &[]);
        scene
            .host("list", codec)
            .flag("codec", codec)
            .finish()
            .await;
        // The dead letter is the peer's to read, in the codec of its list.
        let dead = format!("{codec}:dead");
        let message = scene.peer_reads(theirs, &dead, "ack").reads();
        message.expect_whole(b"echo");
        assert_eq!(message.header("x-dead-letter-reason"), Some("dropped"));
        assert_eq!(message.header("x-dead-letter-source"), Some(codec));
        assert_eq!(message.header("x-dead-letter-attempts"), Some("1"));
        expect_seen(message.header("x-dead-letter-detail").unwrap(), codec);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_peer_on_a_channel_arrives_whole() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    let host = scene.host("channel", "news").ready().await;
    // A host has the very bytes; another listens as a host does.
    let listens = QueueOptions::PubSub(PubSubOptions::new("news"));
    let listener = listens.open(scene.connector()).await.unwrap();
    // Guests' logs name a message by the id that its header gives it.
    for (n, body) in [&b"echo"[..], NOT_TEXT, b""].into_iter().enumerate() {
        let id = format!("from-a-peer-{n}");
        scene.peer_publishes("channel", "news", body, &[("x-message-id", &id)]);
        let claims = listener.fetch(9, PATIENCE).await.unwrap();
        assert_eq!(claims.len(), 1);
        let message = &claims[0].message;
        assert_eq!((&*message.queue, &*message.id), ("news", &*id));
        assert_eq!(message.body, body);
        let mut headers: Vec<_> = message.headers.iter().cloned().collect();
        headers.sort();
        let mut written: Vec<(Bytes, Bytes)> = HEADERS
            .iter()
            .map(|(name, value)| (Bytes::from_static(name.as_bytes()), (*value).into()))
            .collect();
        written.push(("x-message-id".into(), id.clone().into()));
        written.sort();
        assert_eq!(headers, written);
        host.starts(n + 1).await;
        assert_eq!(host.witness().attempts(&id), [1]);
    }
    // Its guest has seen all of it. A channel has no dead letters, so the log has the detail.
    host.logs("lost: ").await;
    let lost = host.log();
    let lost = lost
        .iter()
        .find(|line| line.message().starts_with("lost: "));
    expect_seen(lost.and_then(|line| line.text("detail")).unwrap(), "news");
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peer_reads_messages_of_hostler_on_every_kind_of_queue() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    scene.publish(Destination::stream("orders"), NOT_TEXT).await;
    let read = scene.peer_reads("stream", "orders", "ack").reads();
    read.expect_whole(NOT_TEXT);
    assert!(scene.raw.pending("orders", "workers").await.is_empty());

    for (codec, theirs) in [(Codec::Frame, "list"), (Codec::Json, "json")] {
        scene
            .publish(List::new("jobs").codec(codec), NOT_TEXT)
            .await;
        let read = scene.peer_reads(theirs, "jobs", "ack").reads();
        read.expect_whole(NOT_TEXT);
    }

    let reader = scene.peer_reads("channel", "news", "ack");
    let to = || Destination::channel("news");
    // The peer has subscribed when the message has a receiver.
    eventually("the peer listens", async || {
        scene.publish(to(), NOT_TEXT).await == Receipt::Receivers(1)
    })
    .await;
    reader.reads().expect_whole(NOT_TEXT);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peer_reads_dead_letters_of_requeued_messages() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    for (theirs, queue, to) in [
        ("stream", "orders", Destination::stream("orders")),
        ("list", "jobs", List::new("jobs").into()),
        (
            "json",
            "readable",
            List::new("readable").codec(Codec::Json).into(),
        ),
    ] {
        let kind = if theirs == "stream" { "stream" } else { "list" };
        let host = || match theirs {
            "json" => scene.host(kind, queue).flag("codec", "json"),
            _ => scene.host(kind, queue),
        };
        let dead = format!("{queue}:dead");
        // Put back at once, and after a while.
        for body in [&b"nack:0"[..], b"nack:5"] {
            scene.publish(to.clone(), body).await;
            host().flag("max-deliveries", "3").finish().await;
            let message = scene.peer_reads(theirs, &dead, "ack").reads();
            message.expect_whole(body);
            for (name, value) in [
                ("x-dead-letter-reason", "max-deliveries"),
                ("x-dead-letter-attempts", "3"),
                ("x-dead-letter-source", queue),
            ] {
                assert_eq!(message.header(name), Some(value), "{theirs}");
            }
            // Its next queue counts anew.
            assert_eq!(message.header(THEIR_COUNT), None);
            assert_eq!(message.header("x-retry-count"), None);
            let death: Json = serde_json::from_str(message.header("x-death").unwrap()).unwrap();
            assert_eq!(death[0]["queue"], queue);
        }
        // No handler sees this body.
        scene.publish(to.clone(), NOT_TEXT).await;
        host().flag("max-payload", "4B").finish().await;
        let message = scene.peer_reads(theirs, &dead, "ack").reads();
        message.expect_whole(NOT_TEXT);
        assert_eq!(message.header("x-dead-letter-reason"), Some("oversize"));
    }
    assert!(scene.raw.pending("orders:dead", "workers").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peer_reads_a_requeued_message_of_a_list_with_its_count() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    scene.publish(List::new("jobs"), b"sleep:20+nack:0").await;
    let host = scene.host("list", "jobs").ready().await;
    host.starts(3).await;
    let ended = host.drained().await;
    let values = scene.list("jobs").await;
    assert_eq!(values.len(), 1, "handed back");
    let (written, _) = frame::decode(&values[0].clone().into()).unwrap();
    let id = written.find_str("x-message-id").unwrap().to_owned();
    let charged = ended.witness().starts(&id);
    assert!(charged >= 3);

    // Both headers have the same count. The peer puts the message back in its turn.
    let message = scene.peer_reads("reliable", "jobs", "requeue").reads();
    message.expect_whole(b"sleep:20+nack:0");
    assert_eq!(message.header(THEIR_COUNT), Some(&*charged.to_string()));
    assert_eq!(message.header("x-retry-count"), Some(&*charged.to_string()));
    assert_eq!(scene.list("jobs").await.len(), 1);

    // And a host goes on counting.
    let host = scene.host("list", "jobs").ready().await;
    host.starts(1).await;
    let attempts = host.witness().attempts(&id).to_vec();
    assert!(
        usize::try_from(attempts[0]).unwrap() > charged,
        "{attempts:?}"
    );
    host.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peer_reclaims_a_parked_message_of_a_stream() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    scene
        .publish(Destination::stream("orders"), b"nack:3600000")
        .await;
    let host = scene.host("stream", "orders").ready().await;
    eventually("it is parked", async || {
        let held = scene.raw.pending("orders", "workers").await;
        held.first()
            .is_some_and(|held| held.consumer == "hostler:parked")
    })
    .await;
    host.kill().await;
    // A requeue keeps the entry in its place, so a peer that takes over idle entries gets it.
    let message = scene.peer_reads("reclaim", "orders", "ack").reads();
    message.expect_whole(b"nack:3600000");
    assert!(scene.raw.pending("orders", "workers").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_count_of_the_peer_counts_towards_the_cap() {
    let scene = Scene::with(RedisOptions::default().tcp()).await;
    for (kind, queue) in [("stream", "orders"), ("list", "jobs")] {
        let headers = [(THEIR_COUNT, "2"), ("x-message-id", "counted")];
        scene.peer_publishes(kind, queue, b"nack:0", &headers);
        let host = scene.host(kind, queue).flag("max-deliveries", "4");
        let ended = host.finish().await;
        assert_eq!(ended.witness().attempts("counted"), [3, 4], "{kind}");
    }
}
