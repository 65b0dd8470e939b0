//! Large messages: how many bytes a host reads at once and holds, and values as large as Redis takes.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::byte_bounds::held_max;
use hostler::queue::kind::QueueOptions;
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::simple_list::SimpleListOptions;
use hostler::queue::stream::{PARKED_CONSUMER, StreamOptions};
use hostler::queue::{Claim, Queue, Reply, SettleAction};
use hostler::wire::Raw;
use hostler::wire::list::Framing;
use hostler_tests::redis::{RedisOptions, eventually};

use crate::queue::list_scene::{self, both};
use crate::queue::queue_scene::PARKED;
use crate::scene::{
    self, GROUP, KEY, bodies, connector, dead_letter, discard, fetch, is_empty, orphaned, park,
    recorded, requeue, settled, settlement, shared, stream_options, user,
};

#[derive(Default)]
struct Large;

type Scene = scene::Scene<Large>;

const MIB: usize = 1 << 20;

/// The kinds that hold messages in this host.
fn every_kind(held_max: usize) -> [(&'static str, QueueOptions); 3] {
    let stream = StreamOptions {
        held_max,
        ..stream_options()
    };
    let list = ListOptions {
        held_max,
        ..list_scene::recovering()
    };
    let simple = SimpleListOptions {
        held_max,
        ..SimpleListOptions::new("simple")
    };
    [
        (KEY, QueueOptions::Stream(stream)),
        (list_scene::KEY, QueueOptions::List(list)),
        ("simple", QueueOptions::SimpleList(simple)),
    ]
}

async fn publish(scene: &Scene, key: &str, body: &[u8]) {
    let key_bytes = key.as_bytes();
    let words: &[&[u8]] = match key == KEY {
        true => &[b"XADD", key_bytes, b"*", b"_payload", body],
        false => &[b"LPUSH", key_bytes, body],
    };
    scene.raw.ask_words(words).await;
}

fn bytes(claims: &[Arc<Claim>]) -> usize {
    let size = |claim: &Arc<Claim>| match &claim.raw {
        Raw::Fields(fields) => fields.iter().map(|(_, value)| value.len()).sum(),
        Raw::Value(value) => value.len(),
    };
    claims.iter().map(size).sum()
}

#[tokio::test]
async fn one_request_brings_a_number_of_bytes_or_one_message() {
    for (key, options) in every_kind(usize::MAX) {
        let scene = Scene::new().await;
        let host = options.open(scene.connector()).await.unwrap();
        // The first ones say nothing about those behind them.
        for _ in 0..20 {
            publish(&scene, key, b"small").await;
        }
        for _ in 0..16 {
            publish(&scene, key, &vec![b'x'; MIB]).await;
        }
        let mut all = Vec::new();
        let mut most = 0;
        eventually("all have come", async || {
            let new = fetch(&*host, 100).await;
            let due = shared(host.take_due(100).await.unwrap().claims);
            for claims in [new, due] {
                most = most.max(bytes(&claims));
                all.extend(claims);
            }
            all.len() == 36
        })
        .await;
        assert!(most <= 6 * MIB, "{key}: {most} bytes");
        let small = all.iter().filter(|c| c.message.body == "small").count();
        assert_eq!(small, 20, "{key}");
        // None of them has been charged for a start.
        let counts = |c: &Arc<Claim>| c.native <= 1 && c.header == 0;
        assert!(all.iter().all(counts), "{key}");
    }
}

/// One command takes several of them before anybody knows how large they are.
#[tokio::test]
async fn parked_deliveries_beyond_the_bytes_stay_due_with_their_counts() {
    let scene = Scene::new().await;
    let host = QueueOptions::Stream(stream_options());
    let host = host.open(scene.connector()).await.unwrap();
    for place in 0..40 {
        let size = if place < 20 { 5 } else { MIB / 4 };
        publish(&scene, KEY, &vec![b'x'; size]).await;
    }
    let read = format!("XREADGROUP GROUP {GROUP} {PARKED_CONSUMER} COUNT 40 STREAMS {KEY} >");
    scene.raw.ask(&read).await;
    for (id, _) in scene.raw.entries(KEY).await {
        let claim = format!("XCLAIM {KEY} {GROUP} {PARKED_CONSUMER} 0 {id} RETRYCOUNT 3 JUSTID");
        scene.raw.ask(&claim).await;
        scene.raw.ask(&format!("ZADD {PARKED} 1 {id}")).await;
    }
    let mut all = Vec::new();
    for round in 0.. {
        let due = shared(host.take_due(100).await.unwrap().claims);
        assert!(!due.is_empty(), "{round}: {}", all.len());
        assert!(bytes(&due) <= 5 * MIB, "{round}: {}", bytes(&due));
        assert!(round > 0 || due.len() <= 21, "{}", due.len());
        all.extend(due);
        if all.len() == 40 {
            break;
        }
    }
    assert!(all.iter().all(|claim| claim.native == 3));
    host.acknowledge(&all).await.unwrap();
    assert!(is_empty(&*host).await);
}

/// Where entries were small so far, a plain command reads the next ones: the bound holds in the host.
#[tokio::test]
async fn large_entries_among_small_ones_go_back_unharmed() {
    for protocol in ["", "?protocol=resp3"] {
        let scene = Scene::new().await;
        let url = format!("{}{protocol}", scene.url());
        let host = QueueOptions::Stream(stream_options());
        let host = host.open(connector(&url)).await.unwrap();
        for _ in 0..50 {
            publish(&scene, KEY, b"small").await;
        }
        assert_eq!(fetch(&*host, 40).await.len(), 40);
        let scripts = scene.calls("evalsha").await;
        assert_eq!(fetch(&*host, 9).await.len(), 9);
        assert_eq!(
            scene.calls("evalsha").await,
            scripts,
            "no script was needed"
        );
        for place in 0..30 {
            let size = if place % 3 == 0 { MIB } else { 5 };
            publish(&scene, KEY, &vec![b'x'; size]).await;
        }
        let (mut all, mut returned) = (Vec::new(), 0);
        eventually("all have come", async || {
            let new = fetch(&*host, 100).await;
            let due = shared(host.take_due(100).await.unwrap().claims);
            assert!(bytes(&new).max(bytes(&due)) <= 6 * MIB);
            returned += due.len();
            all.extend(new);
            all.extend(due);
            all.len() == 31
        })
        .await;
        assert!(returned >= 10, "{returned}");
        // None of them is charged, and none is there twice.
        assert!(all.iter().all(|c| c.native <= 1 && c.header == 0));
        let large = all.iter().filter(|c| c.message.body.len() == MIB);
        assert_eq!(large.count(), 10);
        host.acknowledge(&all).await.unwrap();
        let pending = host.backlog().await.unwrap().pending;
        assert_eq!(pending, 49, "those of the first two reads");
    }
}

/// The entries behind a large entry are understood, and a refused hand-back is tried again.
#[tokio::test]
async fn a_large_last_entry_leaves_the_connection_intact() {
    let scene = Scene::new().await;
    let host = QueueOptions::Stream(stream_options());
    let host = host.open(scene.connector()).await.unwrap();
    for _ in 0..20 {
        publish(&scene, KEY, b"small").await;
    }
    assert_eq!(fetch(&*host, 20).await.len(), 20);
    let opened = host.contact().connections_opened;
    let parked = format!("{{{KEY}}}:parked:workers");
    scene.obstruct(&parked).await;
    publish(&scene, KEY, b"before").await;
    // As a reply of Redis begins.
    publish(&scene, KEY, ":1\r\n".repeat(MIB / 4).as_bytes()).await;
    assert_eq!(bodies(&fetch(&*host, 20).await), ["before"]);
    scene.delete(&parked).await;
    publish(&scene, KEY, b"behind").await;
    let mut rest = fetch(&*host, 20).await;
    eventually("the large one comes", async || {
        rest.extend(shared(host.take_due(9).await.unwrap().claims));
        rest.len() == 2
    })
    .await;
    assert_eq!(rest[0].message.body, "behind");
    assert_eq!(rest[1].message.body.len(), MIB);
    assert_eq!((rest[1].native <= 1, rest[1].header), (true, 0));
    assert_eq!(host.contact().connections_opened, opened);
}

#[tokio::test]
async fn a_host_reads_nothing_while_it_holds_enough_bytes() {
    for (key, options) in every_kind(3 * MIB) {
        let scene = Scene::new().await;
        let host = options.open(scene.connector()).await.unwrap();
        for _ in 0..8 {
            publish(&scene, key, &vec![b'x'; MIB]).await;
        }
        let mut held = Vec::new();
        loop {
            let claims = fetch(&*host, 9).await;
            if claims.is_empty() {
                break;
            }
            held.extend(claims);
        }
        assert_eq!(bytes(&held) / MIB, 3, "{key}");
        // A fetch that waits goes on as soon as one is settled.
        let waiting = {
            let host = Arc::clone(&host);
            tokio::spawn(async move { host.fetch(9, Duration::from_secs(60)).await })
        };
        tokio::task::yield_now().await;
        let first = held.remove(0);
        host.acknowledge(&[Arc::clone(&first)]).await.unwrap();
        drop(first);
        assert_eq!(waiting.await.unwrap().unwrap().len(), 1, "{key}");
    }
    assert!(held_max(0) > 0 && held_max(usize::MAX) == usize::MAX);
}

#[tokio::test]
async fn a_waiting_host_that_holds_enough_is_interrupted() {
    for (key, options) in every_kind(1) {
        let scene = Scene::new().await;
        let host = options.open(scene.connector()).await.unwrap();
        publish(&scene, key, &[b'x'; 9000]).await;
        publish(&scene, key, b"next").await;
        let held = fetch(&*host, 1).await;
        let waiting = {
            let host = Arc::clone(&host);
            tokio::spawn(async move { host.fetch(9, Duration::from_secs(600)).await })
        };
        eventually("it returns", async || {
            host.interrupt().await.unwrap();
            waiting.is_finished()
        })
        .await;
        assert!(waiting.await.unwrap().unwrap().is_empty(), "{key}");
        drop(held);
        assert_eq!(bodies(&fetch(&*host, 9).await), ["next"], "{key}");
    }
}

#[tokio::test]
async fn without_the_right_to_scripts_a_simple_list_is_read_in_small_steps() {
    let scene: Scene = Scene::with(user("-evalsha")).await;
    let options = QueueOptions::SimpleList(SimpleListOptions::new("simple"));
    let host = options.open(connector(&scene.user_url())).await.unwrap();
    for _ in 0..9 {
        publish(&scene, "simple", &vec![b'x'; MIB]).await;
    }
    let mut left = 9;
    while left > 0 {
        let got = host.fetch(9, Duration::ZERO).await.unwrap().len();
        assert!((1..=4).contains(&got), "{got}");
        assert!(left < 9 || got == 1, "{got}");
        left -= got;
    }
    for _ in 0..40 {
        publish(&scene, "simple", b"small").await;
    }
    let (mut all, mut most) = (0, 0);
    while all < 40 {
        let got = host.fetch(40, Duration::ZERO).await.unwrap().len();
        assert!((1..=16).contains(&got), "{got}");
        most = most.max(got);
        all += got;
    }
    assert!(most > 4, "{most}");
}

/// A server that takes values of one MiB at most.
async fn small_server() -> list_scene::Scene {
    let options = RedisOptions::default().set("proto-max-bulk-len", "1mb");
    list_scene::Scene::with(options).await
}

#[tokio::test]
async fn a_value_as_large_as_redis_takes_ends_in_every_way() {
    let largest = "x".repeat(MIB);
    let steps: [Option<SettleAction>; 6] = [
        None,
        Some(discard()),
        Some(requeue(0)),
        Some(requeue(1)),
        Some(park(1, Duration::from_secs(9))),
        Some(dead_letter()),
    ];
    for options in both() {
        for step in &steps {
            let scene = small_server().await;
            let host = scene.host_with(options.clone()).await;
            let claims = scene.claim_all(&host, &[&largest, "behind it"]).await;
            assert_eq!(recorded(&host, &claims[0], 1, 1).await, Reply::Done);
            assert_eq!(
                host.renew(&claims).await.unwrap(),
                [Reply::Done, Reply::Done]
            );
            match step {
                Some(step) => settled(&host, &claims[0], 1, step.clone()).await,
                None => host.acknowledge(&claims[..1]).await.unwrap(),
            }
            host.acknowledge(&claims[1..]).await.unwrap();
            assert!(scene.processing(&host).await.is_empty(), "{step:?}");
            // Asked again after a lost reply: nothing more happens.
            let keys = scene.keys().await;
            if let Some(step) = step {
                let again = settlement(&claims[0], 1, step.clone());
                let replies = host.settle(&[again]).await.unwrap();
                assert!(
                    matches!(replies[..], [Reply::Gone | Reply::Done]),
                    "{replies:?}"
                );
            }
            assert_eq!(scene.keys().await, keys);
        }
    }
}

#[tokio::test]
async fn a_value_as_large_as_redis_takes_is_taken_over() {
    let largest = "x".repeat(MIB);
    for options in both() {
        let scene = small_server().await;
        let dead = scene.host_with(options.clone()).await;
        scene
            .claim_all(&dead, &["before", &largest, "behind"])
            .await;
        scene.age(&dead).await;
        scene.age_claims().await;
        let heir = scene.host_with(options).await;
        let mut taken = Vec::new();
        eventually("all are taken over", async || {
            taken.extend(orphaned(&heir, 9).await);
            taken.len() == 3
        })
        .await;
        assert_eq!(taken[1].message.body.len(), MIB);
        heir.acknowledge(&taken).await.unwrap();
        assert!(scene.processing(&heir).await.is_empty());
    }
}

/// An envelope whose payload comes first: the copy ends otherwise, so that all of it must be sent.
fn reversed(payload: &str) -> String {
    format!(r#"{{"payload":"{payload}","headers":{{}}}}"#)
}

#[tokio::test]
async fn a_copy_that_redis_does_not_take_is_refused_alone() {
    let scene = small_server().await;
    let options = ListOptions {
        framing: Framing::Json,
        ..list_scene::options()
    };
    let host = scene.host_with(options).await;
    let envelope = reversed(&"x".repeat(MIB - reversed("").len()));
    let values = [reversed("before"), envelope, reversed("behind")];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let claims = scene.claim_all(&host, &values).await;
    for step in [dead_letter(), requeue(1)] {
        let all: Vec<_> = claims
            .iter()
            .map(|claim| settlement(claim, 1, step.clone()))
            .collect();
        let replies = host.settle(&all).await.unwrap();
        let Reply::Refused(why) = &replies[1] else {
            panic!("not refused: {replies:?}");
        };
        assert!(why.contains("Protocol error"), "{why}");
        let others = [&replies[0], &replies[2]];
        assert!(
            others
                .iter()
                .all(|r| matches!(r, Reply::Done | Reply::Gone)),
            "{replies:?}"
        );
    }
    assert_eq!(scene.list(list_scene::DEAD).await.len(), 2);
    assert_eq!(scene.processing(&host).await.len(), 1);
}

#[tokio::test]
async fn one_bad_record_does_not_hold_up_a_take_over() {
    for options in both() {
        let scene = list_scene::Scene::new().await;
        let dead = scene.host_with(options.clone()).await;
        let claims = scene.claim(&dead, &["a", "b", "c"]).await;
        let started = format!("{{jobs}}:started:{}", dead.instance());
        let token = claims[1].id.0.to_be_bytes();
        let words = [b"HSET", started.as_bytes(), &token, b"\xff\xfe"];
        scene.raw.ask_words(&words).await;
        scene.age(&dead).await;
        scene.age_claims().await;
        let heir: ListQueue = scene.host_with(options).await;
        let mut taken = Vec::new();
        eventually("all are taken over", async || {
            taken.extend(orphaned(&heir, 9).await);
            taken.len() == 3
        })
        .await;
        assert_eq!(bodies(&taken), ["a", "b", "c"]);
        assert!(taken.iter().all(|c| c.message.headers.retry_count() == 1));
    }
}

/// A field of a few bytes takes two hundred in a host. Of entries with many fields, a host reads no more than of
/// others that take as much.
#[tokio::test]
async fn many_small_fields_count_as_what_a_host_keeps_of_them() {
    const FIELDS: usize = 500;
    let scene = Scene::new().await;
    let names: Vec<String> = (0..FIELDS).map(|n| format!("h:f{n}")).collect();
    for _ in 0..1_500 {
        let mut words: Vec<&[u8]> = vec![b"XADD", KEY.as_bytes(), b"*"];
        words.extend(names.iter().flat_map(|name| [name.as_bytes(), b"v"]));
        scene.raw.ask_words(&words).await;
    }
    let host = QueueOptions::Stream(stream_options());
    let host = host.open(scene.connector()).await.unwrap();
    let mut held = Vec::new();
    loop {
        let more = fetch(&*host, 500).await;
        if more.is_empty() {
            break;
        }
        held.extend(more);
    }
    // All of them have 5 MiB of bytes, and 143 MiB with what is kept of each field.
    let most = held.len() * FIELDS * 192 / MIB;
    assert!(
        most > 30 && most < 60,
        "{most} MiB in {} entries",
        held.len()
    );
    drop(held);
    assert!(!fetch(&*host, 1).await.is_empty());
}

/// They compare memory: alone, one after the other.
mod measured {
    use hostler_tests::host::HostOptions;

    use super::*;

    /// The most memory that the host has had, in MiB.
    fn resident_max(pid: u32) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib: usize = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib / 1024
    }

    async fn a_host_does_not_grow_with_the_number_of_large_messages(key: &str, kind: &str) {
        let scene = Scene::new().await;
        let options = HostOptions::new(&scene.server).flag("concurrency", "16");
        let options = match kind {
            "stream" => options.dead_letter(),
            "list" => (options.without("stream").without("group"))
                .flag("list", key)
                .flag("reliable", "true")
                .flag("dead-letter", "jobs:dead"),
            _ => (options.without("stream").without("group")).flag("list", key),
        };
        let size = 24 * MIB;
        for _ in 0..16 {
            publish(&scene, key, &vec![b'x'; size]).await;
        }
        let host = options.admin().ready().await;
        // They are larger than `max_payload`.
        eventually("all are turned away", async || {
            let metrics = host.metrics();
            let ended = metrics.lines().filter(|line| {
                line.starts_with("hostler_dispositions_total") && line.contains("oversize")
            });
            let numbers = ended.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            numbers.sum::<f64>() >= 16.0
        })
        .await;
        let most = resident_max(host.pid());
        eprintln!("{kind}: {most} MiB for {} MiB of messages", 16 * size / MIB);
        // All of them have 384 MiB.
        assert!(most < 300, "{kind}: {most} MiB");
        host.drained().await;
    }

    #[tokio::test]
    async fn a_host_of_a_stream_does_not_grow_with_the_number_of_large_messages() {
        a_host_does_not_grow_with_the_number_of_large_messages(KEY, "stream").await;
    }

    mod long {
        use super::a_host_does_not_grow_with_the_number_of_large_messages as does_not_grow;
        use crate::queue::list_scene;

        #[tokio::test]
        async fn a_host_of_a_list_does_not_grow_with_the_number_of_large_messages() {
            does_not_grow(list_scene::KEY, "list").await;
        }

        #[tokio::test]
        async fn a_host_of_a_simple_list_does_not_grow_with_the_number_of_large_messages() {
            does_not_grow("simple", "simple").await;
        }
    }
}
