//! Dead letters brought back: each whole, once, in order, and only where it belongs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hostler::dead_letter::{DeadLetters, Error, Filter, ReplayOptions, Replayed, Skip};
use hostler::delivery::message::Headers;
use hostler::delivery::policy::{Reason, Rejection};
use hostler::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use hostler::queue::stream::StreamOptions;
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler::runtime::{Settings, UntilEmpty};
use hostler::wire::dead_letter::{Context, stream_fields};
use hostler::wire::stream;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};

use crate::dlq_scene::{policy, settings};
use crate::queue_scene::field;

const DEAD: &str = "orders:dead";

fn letters_at(url: &str) -> DeadLetters {
    let target = Target::parse(url, PasswordSource::Url, TlsFiles::default()).unwrap();
    DeadLetters::new(&Connector::new(target, "test"), DEAD)
}

fn letters(server: &RedisServer) -> DeadLetters {
    letters_at(&server.url())
}

/// What a host writes for an entry that died in this queue and group.
fn dead(raw: &[(Bytes, Bytes)], source: &str, group: &str, reason: Reason) -> Vec<(Bytes, Bytes)> {
    let rejection = Rejection {
        reason,
        detail: "no such customer".to_owned(),
        attempts: 3,
        handled: true,
    };
    let context = Context {
        source,
        source_id: "7-1",
        group: Some(group),
        rejection: &rejection,
        handler: "sha256:abc",
        now_ms: 1000,
        expires_at_ms: None,
    };
    stream_fields(raw, &stream::headers(raw), &context)
}

fn letter(body: impl Into<Bytes>, reason: Reason) -> Vec<(Bytes, Bytes)> {
    let raw = [
        (Bytes::from_static(b"_payload"), body.into()),
        (Bytes::from_static(b"h:x-tenant"), Bytes::from_static(b"7")),
    ];
    dead(&raw, "orders", "workers", reason)
}

async fn put(redis: &RawRedis, id: &str, fields: &[(Bytes, Bytes)]) -> String {
    let mut words: Vec<&[u8]> = vec![b"XADD", DEAD.as_bytes(), id.as_bytes()];
    words.extend(fields.iter().flat_map(|(n, v)| [&n[..], &v[..]]));
    redis::from_redis_value(redis.ask_words(&words).await).unwrap()
}

async fn add(redis: &RawRedis, fields: &[(Bytes, Bytes)]) -> String {
    put(redis, "*", fields).await
}

async fn replay(
    letters: &DeadLetters,
    filter: Filter,
    options: ReplayOptions,
) -> Result<Replayed, Error> {
    let mut replay = letters.replay(options);
    let mut scan = letters.scan(filter).await?;
    while !replay.is_done()
        && let Some(entries) = scan.next().await?
    {
        replay.send(&entries).await?;
    }
    Ok(replay.report().clone())
}

async fn replay_all(letters: &DeadLetters) -> Replayed {
    let (filter, options) = (Filter::default(), ReplayOptions::default());
    replay(letters, filter, options).await.unwrap()
}

async fn bodies(redis: &RawRedis, key: &str) -> Vec<String> {
    let body = |fields: &Vec<Vec<u8>>| {
        String::from_utf8_lossy(field(fields, "_payload").unwrap_or(b"?")).into_owned()
    };
    let entries = redis.entries(key).await;
    entries.iter().map(|(_, fields)| body(fields)).collect()
}

fn header(fields: &[Vec<u8>], name: &str) -> Option<String> {
    field(fields, &format!("h:{name}")).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[tokio::test]
async fn what_is_there_goes_back_whole_and_in_order() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for n in 0..700 {
        add(&redis, &letter(n.to_string(), Reason::Dropped)).await;
    }
    let letters = letters(&server);
    let mut replay = letters.replay(ReplayOptions::default());
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    replay
        .send(&scan.next().await.unwrap().unwrap())
        .await
        .unwrap();
    // What dies meanwhile is not in it.
    add(&redis, &letter("late", Reason::Dropped)).await;
    while let Some(entries) = scan.next().await.unwrap() {
        replay.send(&entries).await.unwrap();
    }
    let report = replay.report();
    assert_eq!(report.replayed, 700);
    assert_eq!(report.targets, BTreeMap::from([("orders".to_owned(), 700)]));
    assert_eq!(report.skipped, BTreeMap::new());
    assert_eq!(bodies(&redis, DEAD).await, ["late"]);
    let expected: Vec<_> = (0..700).map(|n| n.to_string()).collect();
    assert_eq!(bodies(&redis, "orders").await, expected);
    let (_, fields) = &redis.entries("orders").await[0];
    for (name, value) in [
        ("x-tenant", Some("7")),
        ("x-message-id", Some("7-1")),
        ("x-replayed", Some("1")),
        ("x-first-death-reason", Some("dropped")),
        ("x-retry-count", None),
        ("x-only-group", None),
    ] {
        assert_eq!(header(fields, name).as_deref(), value, "{name}");
    }
    assert!(header(fields, "x-death").unwrap().contains("\"count\":1"));
}

#[tokio::test]
async fn filters_choose_and_the_rest_stays() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let mut ids = Vec::new();
    for n in 0..40 {
        let reason = [Reason::Dropped, Reason::Timeout][n % 2];
        ids.push(add(&redis, &letter(n.to_string(), reason)).await);
    }
    put(&redis, "*", &[("_payload".into(), "foreign".into())]).await;
    let letters = letters(&server);
    let only = |filter: Filter| replay(&letters, filter, ReplayOptions::default());

    let timeouts = Filter {
        reasons: vec!["timeout".to_owned()],
        ids: vec![
            ids[3].clone(),
            ids[1].clone(),
            ids[2].clone(),
            "1-1".to_owned(),
        ],
        ..Filter::default()
    };
    assert_eq!(only(timeouts).await.unwrap().replayed, 2);
    assert_eq!(bodies(&redis, "orders").await, ["1", "3"], "oldest first");

    let tenant = |value: &str| Filter {
        headers: vec![("X-Tenant".to_owned(), value.to_owned())],
        ..Filter::default()
    };
    assert_eq!(only(tenant("8")).await.unwrap(), Replayed::default());
    let limited = ReplayOptions {
        limit: Some(3),
        ..ReplayOptions::default()
    };
    let report = replay(&letters, tenant("7"), limited).await.unwrap();
    assert_eq!(report.replayed, 3);
    assert_eq!(bodies(&redis, "orders").await, ["1", "3", "0", "2", "4"]);

    let old = |age| Filter {
        older_than: Some(age),
        ..Filter::default()
    };
    assert_eq!(
        only(old(Duration::from_secs(3600))).await.unwrap().replayed,
        0
    );
    let foreign = Filter {
        reasons: vec!["unknown".to_owned()],
        ..Filter::default()
    };
    let report = only(foreign).await.unwrap();
    assert_eq!(report.skipped, BTreeMap::from([(Skip::NoSource, 1)]));
    assert_eq!(redis.number(&format!("XLEN {DEAD}")).await, 36);

    let nonsense = Filter {
        ids: vec!["x".to_owned()],
        ..Filter::default()
    };
    assert!(matches!(
        letters.scan(nonsense).await,
        Err(Error::NoId { .. })
    ));
}

#[tokio::test]
async fn age_is_told_by_the_ids() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let now: u64 = redis.ask("TIME").await.as_sequence().map_or(0, |time| {
        let seconds: u64 = redis::from_redis_value(time[0].clone()).unwrap();
        seconds * 1000
    });
    for (age, body) in [(7_200_000, "old"), (7_200_000, "too"), (60_000, "young")] {
        let id = format!("{}-*", now - age);
        put(&redis, &id, &letter(body, Reason::Trap)).await;
    }
    let letters = letters(&server);
    let filter = Filter {
        older_than: Some(Duration::from_secs(3600)),
        ..Filter::default()
    };
    let report = replay(&letters, filter, ReplayOptions::default()).await;
    assert_eq!(report.unwrap().replayed, 2);
    assert_eq!(bodies(&redis, "orders").await, ["old", "too"]);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    add(&redis, &letter("1", Reason::Dropped)).await;
    let before = redis.ask(&format!("XINFO STREAM {DEAD} FULL")).await;
    let options = ReplayOptions {
        dry_run: true,
        ..ReplayOptions::default()
    };
    let report = replay(&letters(&server), Filter::default(), options).await;
    let report = report.unwrap();
    assert_eq!((report.replayed, report.dry_run), (1, true));
    assert_eq!(
        redis.ask(&format!("XINFO STREAM {DEAD} FULL")).await,
        before
    );
    assert_eq!(redis.number("EXISTS orders").await, 0);
}

#[tokio::test]
async fn what_cannot_go_back_does_not_block_what_can() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    redis.ask("SET text x").await;
    redis.ask("XGROUP CREATE shared mine $ MKSTREAM").await;
    redis.ask("XGROUP CREATE shared yours $").await;
    let body = |text: &'static str| [(Bytes::from("_payload"), Bytes::from(text))];
    // No message, and yet whole: repeated fields, bytes, no body.
    let odd = [
        (Bytes::from("a"), Bytes::from_static(b"\xff\0")),
        (Bytes::from("a"), Bytes::from("2")),
    ];
    add(&redis, &dead(&odd, "orders", "workers", Reason::Malformed)).await;
    add(&redis, &dead(&body("typed"), "text", "g", Reason::Trap)).await;
    add(
        &redis,
        &dead(&body("orphaned"), "shared", "gone", Reason::Trap),
    )
    .await;
    let mut tired = letter("tired", Reason::Trap);
    tired.push((Bytes::from("h:x-replayed"), Bytes::from("3")));
    add(&redis, &tired).await;
    let wide: Vec<(Bytes, Bytes)> = (0..5000)
        .map(|n| (format!("field-{n}").into(), Bytes::from("v")))
        .collect();
    add(&redis, &dead(&wide, "orders", "workers", Reason::Trap)).await;
    add(&redis, &letter("last", Reason::Trap)).await;

    let report = replay_all(&letters(&server)).await;
    assert_eq!(report.replayed, 3, "{report:?}");
    let skipped = [
        (Skip::MaxReplays, 1),
        (Skip::GroupGone, 1),
        (Skip::Refused, 1),
    ];
    assert_eq!(report.skipped, BTreeMap::from(skipped));
    assert!(report.refusal.unwrap().contains("WRONGTYPE"));
    assert_eq!(redis.number(&format!("XLEN {DEAD}")).await, 3);
    // The one with too many fields for a script came behind the others of its batch.
    let entries = redis.entries("orders").await;
    assert_eq!(
        entries[0].1[..4],
        [
            b"a".to_vec(),
            b"\xff\0".to_vec(),
            b"a".to_vec(),
            b"2".to_vec()
        ]
    );
    let wide_one = entries
        .iter()
        .find(|(_, fields)| fields.len() > 10_000)
        .unwrap();
    assert_eq!(wide_one.1[9998], b"field-4999");
    assert_eq!(redis.number("DBSIZE").await, 4, "no record is left");

    // Told where to, they go.
    let options = ReplayOptions {
        to: Some("attic".to_owned()),
        max_replays: 10,
        ..ReplayOptions::default()
    };
    let report = replay(&letters(&server), Filter::default(), options)
        .await
        .unwrap();
    assert_eq!((report.replayed, report.skipped.len()), (3, 0));
    assert_eq!(
        bodies(&redis, "attic").await,
        ["typed", "orphaned", "tired"]
    );
}

#[tokio::test]
async fn a_full_redis_and_a_missing_right_leave_everything_where_it_is() {
    let server = RedisOptions::default()
        .user("app on >secret ~* &* +@all -xdel")
        .start();
    let redis = server.raw().await;
    for n in 0..5 {
        add(&redis, &letter(n.to_string(), Reason::Trap)).await;
    }
    redis.ask("CONFIG SET maxmemory 1").await;
    let all = letters(&server);
    let failed = replay(&all, Filter::default(), ReplayOptions::default()).await;
    assert!(failed.unwrap_err().to_string().contains("OOM"));
    redis.ask("CONFIG SET maxmemory 0").await;
    assert_eq!(redis.number("EXISTS orders").await, 0);

    let url = format!("{}?user=app&pass=secret", server.url());
    let report = replay_all(&letters_at(&url)).await;
    assert_eq!(report.skipped, BTreeMap::from([(Skip::Refused, 5)]));
    assert!(report.refusal.unwrap().contains("xdel"));
    assert_eq!(redis.number("EXISTS orders").await, 0, "no copies pile up");
    assert_eq!(replay_all(&all).await.replayed, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_a_time_move_nothing_twice() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for n in 0..2000 {
        add(&redis, &letter(n.to_string(), Reason::Trap)).await;
    }
    let (one, two) = (letters(&server), letters(&server));
    let (one, two) = tokio::join!(replay_all(&one), replay_all(&two));
    assert_eq!(one.replayed + two.replayed, 2000);
    let moved = bodies(&redis, "orders").await;
    assert_eq!(moved.len(), 2000);
    assert_eq!(moved.iter().collect::<HashSet<_>>().len(), 2000);
    assert_eq!(redis.number(&format!("XLEN {DEAD}")).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_up_at_any_time_it_leaves_no_entry_half_moved() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for n in 0..3000 {
        add(&redis, &letter(n.to_string(), Reason::Trap)).await;
    }
    // Dropped in the middle of whatever it does, time and again.
    for round in 0..40_u64 {
        let letters = letters(&server);
        let some = tokio::time::timeout(Duration::from_micros(round * 300), replay_all(&letters));
        if some.await.is_ok() {
            break;
        }
    }
    replay_all(&letters(&server)).await;
    // What had been sent is carried out although nobody waited for it.
    eventually("all are moved", || async {
        redis.number(&format!("XLEN {DEAD}")).await == 0
    })
    .await;
    let moved = bodies(&redis, "orders").await;
    assert_eq!(moved.len(), 3000);
    assert_eq!(moved.iter().collect::<HashSet<_>>().len(), 3000);
}

#[tokio::test]
async fn a_rate_is_kept() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for n in 0..30 {
        add(&redis, &letter(n.to_string(), Reason::Trap)).await;
    }
    let letters = letters(&server);
    let options = ReplayOptions {
        rate: Some(100.try_into().unwrap()),
        ..ReplayOptions::default()
    };
    let mut replay = letters.replay(options);
    assert_eq!(replay.chunk(), 10);
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let begun = Instant::now();
    while let Some(entries) = scan.next().await.unwrap() {
        for chunk in entries.chunks(replay.chunk()) {
            replay.pace().await;
            replay.send(chunk).await.unwrap();
        }
    }
    assert_eq!(replay.report().replayed, 30);
    // Four sends (16 and 14 entries in tens), three waits: never faster than asked for.
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_groups_only_the_one_it_died_in_runs_it() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let options = |group: &str| StreamOptions {
        dead_letter: Some(DeadLetterQueue {
            key: DEAD.to_owned(),
            max_len: None,
            on_full: OnFull::DropOldest,
            routes: hostler::queue::dead_letter_queue::Routes::default(),
        }),
        ..StreamOptions::new("orders", group)
    };
    let of = |group: &str| {
        let mut settings = settings(policy(Some(1)));
        settings.gate.group = Some(group.into());
        Settings {
            until_empty: Some(UntilEmpty {
                timeout: Some(Duration::from_secs(20)),
            }),
            ..settings
        }
    };
    let script = Arc::new(Script::default());
    let ack = |group: &'static str| {
        let (script, url) = (Arc::clone(&script), server.url());
        async move {
            let host = Host::start(&url, options(group), of(group), &script).await;
            let metrics = Arc::clone(&host.metrics);
            host.ended().await;
            metrics
        }
    };
    redis.ask("XGROUP CREATE orders mine 0 MKSTREAM").await;
    redis.ask("XGROUP CREATE orders yours 0").await;
    redis.add("orders", "drop").await;
    // Both drop it: two dead letters of one message, one for each group.
    ack("mine").await;
    ack("yours").await;
    assert_eq!(redis.number(&format!("XLEN {DEAD}")).await, 2);
    let yours = redis.entries(DEAD).await.swap_remove(1).0;
    let filter = Filter {
        ids: vec![yours],
        ..Filter::default()
    };
    let report = replay(&letters(&server), filter, ReplayOptions::default()).await;
    assert_eq!(report.unwrap().replayed, 1);

    let starts = script.starts().len();
    let metrics = ack("mine").await;
    assert_eq!(script.starts().len(), starts, "not run");
    assert_eq!(metrics.other_group.get(), 1);
    assert!(redis.pending("orders", "mine").await.is_empty());
    let metrics = ack("yours").await;
    assert_eq!(script.starts().len(), starts + 1);
    assert_eq!(script.starts().last().unwrap().1, 1, "attempt 1 again");
    assert_eq!(metrics.other_group.get(), 0);
    let again = redis.entries(DEAD).await.pop().unwrap().1;
    let headers = Headers::new(
        again
            .chunks(2)
            .map(|pair| (Bytes::from(pair[0].clone()), Bytes::from(pair[1].clone())))
            .collect(),
    );
    assert_eq!(headers.find_str("h:x-replayed"), Some("1"));
    assert!(
        headers
            .find_str("h:x-death")
            .unwrap()
            .contains("\"count\":2")
    );
    assert_eq!(headers.find_str("h:x-only-group"), None);
}
