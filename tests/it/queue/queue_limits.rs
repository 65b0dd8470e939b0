//! Limits of starts, beside a real Redis: what the script allows, what it reserves, and what it keeps.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::flow::{Pace, Rate};
use hostler::delivery::ledger::{Admission, Permits};
use hostler::queue::limits::{Allows, Limit, Place, Start};
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::queue::{Claim, Queue, Reply, SettleAction, Settlement};
use hostler_tests::redis::eventually;
use hostler_tests::skew::Skewed;

use crate::queue::queue_scene::{KEY, PARKED, Scene, Stream, due, options, text};
use crate::scene::{settlement, shared};

/// Headers of messages.
const NONE: &[(&str, &str)] = &[];
const A: &[(&str, &str)] = &[("tenant", "a")];
const B: &[(&str, &str)] = &[("tenant", "b")];

const HOUR_US: u64 = 3_600_000_000;

fn limit(name: &str, rate: &str, burst: u32) -> Limit {
    let rate = Rate::parse(rate).unwrap();
    Limit {
        name: name.into(),
        allows: Allows::Starts(Pace { rate, burst }),
        by: None,
        units: None,
    }
}

/// So many attempts at once.
fn at_once(name: &str, most: u32) -> Limit {
    Limit {
        name: name.into(),
        allows: Allows::Attempts(most),
        by: None,
        units: None,
    }
}

fn by(header: &str, limit: Limit) -> Limit {
    let by = Some(Place::Header(header.to_owned()));
    Limit { by, ..limit }
}

async fn host(scene: &Scene, limits: &[Limit]) -> StreamQueue {
    let options = StreamOptions {
        limits: limits.into(),
        ..options()
    };
    scene.host_with(options).await
}

/// Messages with these headers, read by this host.
async fn read(scene: &Scene, host: &StreamQueue, headers: &[&[(&str, &str)]]) -> Vec<Start> {
    for headers in headers {
        let mut words: Vec<Vec<u8>> = [
            "XADD",
            KEY,
            "*",
            "_payload",
            r#"{"customer":{"id":7},"n":3}"#,
        ]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
        for (name, value) in *headers {
            words.push(format!("h:{name}").into_bytes());
            words.push(value.as_bytes().to_vec());
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        scene.raw.ask_words(&words).await;
    }
    let mut claims = Vec::new();
    eventually("all are read", async || {
        claims.extend(host.fetch(100, Duration::ZERO).await.unwrap());
        claims.len() == headers.len()
    })
    .await;
    shared(claims).into_iter().map(start).collect()
}

fn start(claim: Arc<Claim>) -> Start {
    let reserved_ms = claim.reserved_ms;
    Start { claim, reserved_ms }
}

async fn ask(host: &StreamQueue, starts: &[Start]) -> Vec<Admission> {
    say(host, starts, NO_PERMITS).await
}

const NO_PERMITS: Permits = permits(0, 0);

/// A host has these permits, says its request with this number.
const fn permits(held: usize, number: u64) -> Permits {
    let lease = Duration::from_secs(3600);
    Permits {
        held,
        number,
        lease,
    }
}

async fn say(host: &StreamQueue, starts: &[Start], permits: Permits) -> Vec<Admission> {
    let admitted = host.admit(starts, permits, true).await.unwrap();
    admitted
        .into_iter()
        .map(|admitted| admitted.admission)
        .collect()
}

fn granted(admissions: &[Admission]) -> usize {
    let granted = admissions.iter().filter(|a| **a == Admission::Granted);
    granted.count()
}

/// The number that Redis keeps for a limit, and when it was written, in microseconds.
async fn kept(scene: &Scene, key: &str) -> (u64, u64) {
    let text = scene.raw.text(&format!("GET {key}")).await;
    let (paid, written) = text.split_once(' ').unwrap();
    (paid.parse().unwrap(), written.parse().unwrap())
}

#[tokio::test]
async fn the_script_computes_what_the_core_computes() {
    let scene = Scene::new().await;
    for (number, rate) in ["7/s", "1000000/s", "333/min", "1/h", "5000/h"]
        .into_iter()
        .enumerate()
    {
        for burst in [1, 3, 1_000_000] {
            let name = format!("l{number}-{burst}");
            let rate = Rate::parse(rate).unwrap();
            let pace = Pace { rate, burst };
            let limit = by(
                "tenant",
                Limit {
                    units: Some(Place::Header("units".to_owned())),
                    allows: Allows::Starts(pace),
                    ..at_once(&name, 1)
                },
            );
            let host = host(&scene, std::slice::from_ref(&limit)).await;
            let units = ["1", "2", "3", "70000", "x", "0"];
            let headers: Vec<Vec<(&str, &str)>> = units
                .iter()
                .map(|units| vec![("tenant", "a"), ("units", *units)])
                .collect();
            let headers: Vec<&[(&str, &str)]> = headers.iter().map(Vec::as_slice).collect();
            let mut paid = 0;
            for (start, units) in read(&scene, &host, &headers).await.iter().zip(units) {
                let units = units.parse().unwrap_or(1);
                let admissions = ask(&host, std::slice::from_ref(start)).await;
                let (after, at) = kept(&scene, &format!("{{hostler:limits}}:{name}:a")).await;
                assert_eq!(after, pace.paid(paid, at, units, 0), "{limit:?} {units}");
                let wait = pace.start(paid, at, units, 0) - at;
                let expected = match wait {
                    0 => Admission::Granted,
                    _ => Admission::Later(Duration::from_micros(wait)),
                };
                assert_eq!(admissions, [expected], "{limit:?} {units}");
                paid = after;
            }
        }
    }
}

#[tokio::test]
async fn a_message_takes_from_all_of_its_limits_or_from_none() {
    let scene = Scene::new().await;
    let limits = [limit("wide", "1/h", 5), limit("narrow", "1/h", 2)];
    let host = host(&scene, &limits).await;
    let starts = read(&scene, &host, &[NONE; 4]).await;
    let admissions = ask(&host, &starts).await;
    assert_eq!(granted(&admissions), 2);
    assert!(
        matches!(admissions[2..], [Admission::Wait(_), Admission::Wait(_)]),
        "{admissions:?}"
    );
    let (paid, at) = kept(&scene, "{hostler:limits}:wide").await;
    // A start may be late by 30 ms, and is not lost.
    assert_eq!(paid - at, 2 * HOUR_US - 30_000);
    // Another queue that names one of them shares it.
    let other = self::host(&scene, &limits[..1]).await;
    let starts = read(&scene, &other, &[NONE; 4]).await;
    assert_eq!(granted(&ask(&other, &starts).await), 3);
    assert_eq!(granted(&ask(&host, &starts).await), 0);
}

#[tokio::test]
async fn a_key_that_is_used_up_holds_up_no_other_key() {
    let scene = Scene::new().await;
    let host = host(&scene, &[by("tenant", limit("tenants", "1/h", 1))]).await;
    let [a, b, none]: [&[(&str, &str)]; 3] = [&[("tenant", "a")], &[("tenant", "b")], &[]];
    let starts = read(&scene, &host, &[a, a, a, b, none, none]).await;
    let admissions = ask(&host, &starts).await;
    let [first, second, third, other, without, again] = admissions[..] else {
        panic!("{admissions:?}");
    };
    let granted = Admission::Granted;
    assert_eq!([first, other, without], [granted; 3]);
    let later = |hours: u64| Admission::Later(Duration::from_secs(hours * 3600));
    // Those without a key share one.
    assert_eq!([second, third, again], [later(1), later(2), later(1)]);
    // Where too many wait, it is first in, first out.
    let starts = read(&scene, &host, &[a, b]).await;
    let stopped = host.admit(&starts, NO_PERMITS, false).await.unwrap();
    for admitted in stopped {
        assert!(
            matches!(admitted.admission, Admission::Wait(_)),
            "{admitted:?}"
        );
        assert_eq!(admitted.limit.as_deref(), Some("tenants"));
    }
}

#[tokio::test]
async fn the_key_and_the_units_may_stand_in_the_body() {
    let scene = Scene::new().await;
    let json = |pointer: &str| Some(Place::Json(pointer.to_owned()));
    let limit = Limit {
        by: json("/customer/id"),
        units: json("/n"),
        ..limit("customers", "1/h", 10)
    };
    let host = host(&scene, &[limit]).await;
    let starts = read(&scene, &host, &[&[]]).await;
    ask(&host, &starts).await;
    let (paid, at) = kept(&scene, "{hostler:limits}:customers:7").await;
    assert_eq!(paid - at, 3 * HOUR_US);
}

/// A message that waits costs Redis little, and comes back with its start, and with the count that it had.
#[tokio::test]
async fn a_message_waits_uncharged_for_the_start_that_is_reserved_for_it() {
    let scene = Scene::new().await;
    let host = host(&scene, &[by("tenant", limit("tenants", "1/h", 1))]).await;
    let starts = read(&scene, &host, &[A; 100]).await;
    ask(&host, &starts).await;
    let memory = async || {
        scene
            .raw
            .number(&format!("MEMORY USAGE {PARKED} SAMPLES 0"))
            .await
    };
    let put_off = |ms| SettleAction::HandBack {
        keep: 1,
        after: Duration::from_millis(ms),
    };
    let park = async |starts: &[Start], ms| {
        let now = u64::try_from(scene.now_ms().await).unwrap();
        let back = |start: &Start| Settlement {
            reserved_ms: Some(now + ms),
            ..settlement(&start.claim, 1, put_off(ms))
        };
        let settlements: Vec<_> = starts.iter().map(back).collect();
        let replies = host.settle(&settlements).await.unwrap();
        assert!(
            replies.iter().all(|reply| *reply == Reply::Done),
            "{replies:?}"
        );
    };
    park(&starts[..50], 3_600_000).await;
    let half = memory().await;
    park(&starts[50..99], 3_600_000).await;
    assert!(
        (memory().await - half) / 49 < 250,
        "{half} {}",
        memory().await
    );
    assert_eq!(
        scene.raw.number("PTTL {hostler:limits}:tenants:a").await / HOUR_US as i64,
        0
    );

    park(&starts[99..], 1).await;
    let mut back = Vec::new();
    eventually("its time has come", async || {
        back = due(&host, 1).await;
        !back.is_empty()
    })
    .await;
    let claim = &back[0];
    assert_eq!((claim.id, claim.native), (starts[99].claim.id, 1));
    let reserved = claim.reserved_ms.unwrap();
    let now = u64::try_from(scene.now_ms().await).unwrap();
    assert!(
        now >= reserved && now - reserved < 60_000,
        "{reserved} {now}"
    );
    // It starts without a new one; but not if it was missed by more than a second.
    let in_time = Start {
        claim: Arc::clone(claim),
        reserved_ms: Some(now),
    };
    assert_eq!(
        ask(&host, std::slice::from_ref(&in_time)).await,
        [Admission::Granted]
    );
    let missed = Start {
        reserved_ms: Some(now - 60_000),
        ..in_time
    };
    let again = ask(&host, std::slice::from_ref(&missed)).await;
    assert!(matches!(again[..], [Admission::Later(_)]), "{again:?}");
    // What is parked for another cause has none.
    let parked = SettleAction::Park {
        keep: 1,
        after: Duration::ZERO,
    };
    host.settle(&[settlement(claim, 1, parked)]).await.unwrap();
    assert_eq!(
        due(&host, 1).await[0].reserved_ms,
        None,
        "{}",
        text(claim.id)
    );
}

#[tokio::test]
async fn a_limit_that_is_paid_for_leaves_nothing_behind() {
    let scene = Scene::new().await;
    let limits = [
        limit("all", "1000/s", 100),
        by("tenant", limit("tenants", "1000/s", 1)),
    ];
    let host = host(&scene, &limits).await;
    let starts = read(&scene, &host, &[A, &[("tenant", "b")]]).await;
    ask(&host, &starts).await;
    assert_eq!(
        scene.raw.number("DBSIZE").await - scene.raw.number("EXISTS orders").await,
        5 - 1
    );
    eventually("its keys are gone", async || {
        let keys = scene.raw.ask("KEYS {hostler:limits}:*").await;
        redis::from_redis_value::<Vec<String>>(keys)
            .unwrap()
            .is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_stops_no_limit() {
    let skewed = Skewed::new();
    let scene = Scene::of(Stream, skewed.server()).await;
    let limits = [
        limit("all", "1000/s", 10),
        by("tenant", limit("tenants", "1/min", 1)),
    ];
    let host = host(&scene, &limits).await;
    let starts = read(&scene, &host, &[A, B, A]).await;
    ask(&host, &starts[..1]).await;
    skewed.set(-3600);
    // The limit without a key goes on, and the other one waits as long as before.
    eventually("another key starts", async || {
        ask(&host, &starts[1..2]).await == [Admission::Granted]
    })
    .await;
    let again = ask(&host, &starts[2..]).await;
    let [Admission::Later(wait)] = again[..] else {
        panic!("{again:?}");
    };
    assert!(wait <= Duration::from_secs(60), "{wait:?}");
}

/// What lies beyond the limit of today, because it was lower or its clock was set back, is paid for in its time.
#[tokio::test]
async fn a_limit_that_is_raised_lets_start_what_waits() {
    let scene = Scene::new().await;
    let before = host(&scene, &[limit("all", "1/h", 3)]).await;
    let starts = read(&scene, &before, &[NONE; 6]).await;
    assert_eq!(granted(&ask(&before, &starts).await), 3);
    let after = host(&scene, &[limit("all", "1000/s", 5)]).await;
    let mut left = 3;
    eventually("the others start", async || {
        left -= granted(&ask(&after, &starts[..left]).await);
        left == 0
    })
    .await;
}

#[tokio::test]
async fn hosts_share_permits_and_have_those_that_they_say() {
    let scene = Scene::new().await;
    let limits = [at_once("calls", 3), limit("all", "1000000/s", 100)];
    let (one, two) = (host(&scene, &limits).await, host(&scene, &limits).await);
    let starts = read(&scene, &one, &[NONE; 4]).await;
    assert_eq!(granted(&say(&one, &starts[..2], permits(0, 1)).await), 2);
    let others = say(&two, &starts[2..], permits(0, 1)).await;
    assert_eq!(granted(&others), 1);
    assert!(matches!(others[1], Admission::Wait(wait) if wait <= Duration::from_secs(1)));
    // A request without an answer is asked again: the permits are the same.
    assert_eq!(granted(&say(&one, &starts[..2], permits(0, 2)).await), 2);
    assert_eq!(granted(&say(&two, &starts[3..], permits(1, 2)).await), 0);
    // One ends, and the host gives it back; a request of before that comes late changes nothing.
    assert_eq!(say(&one, &[], permits(1, 4)).await, []);
    assert_eq!(granted(&say(&one, &starts[..1], permits(0, 3)).await), 0);
    assert_eq!(granted(&say(&two, &starts[3..], permits(1, 3)).await), 1);
    assert_eq!(granted(&say(&two, &starts[3..], permits(2, 4)).await), 0);
    // Lowered below what runs, nothing starts until it fell.
    let lower = host(&scene, &[at_once("calls", 2)]).await;
    assert_eq!(granted(&ask(&lower, &starts[..1]).await), 0);
    assert_eq!(say(&two, &[], permits(1, 5)).await, []);
    assert_eq!(granted(&ask(&lower, &starts[..1]).await), 0);
    assert_eq!(say(&two, &[], permits(0, 6)).await, []);
    assert_eq!(granted(&ask(&lower, &starts[..1]).await), 1);
    assert_eq!(say(&one, &[], permits(0, 5)).await, []);
    assert_eq!(say(&lower, &[], permits(0, 1)).await, []);
    assert_eq!(scene.raw.number("EXISTS {hostler:limits}::calls").await, 0);
}

#[tokio::test]
async fn the_permits_of_a_host_that_says_nothing_return_when_their_lease_ends() {
    let scene = Scene::new().await;
    let limits = [at_once("calls", 1)];
    let (dead, live) = (host(&scene, &limits).await, host(&scene, &limits).await);
    let starts = read(&scene, &dead, &[NONE; 2]).await;
    let lease = Duration::from_millis(300);
    let begin = scene.now_ms().await;
    let short = Permits {
        lease,
        ..permits(0, 1)
    };
    assert_eq!(granted(&say(&dead, &starts[..1], short).await), 1);
    let mut number = 0;
    eventually("the permit is free", async || {
        number += 1;
        granted(&say(&live, &starts[1..], permits(0, number)).await) == 1
    })
    .await;
    assert!(scene.now_ms().await - begin >= 300);
}

/// A host that has waited for a second comes first, whoever asks meanwhile.
#[tokio::test]
async fn a_host_that_waits_comes_before_one_that_always_has_something_to_do() {
    let scene = Scene::new().await;
    let limits = [at_once("calls", 1)];
    let (busy, waits) = (host(&scene, &limits).await, host(&scene, &limits).await);
    let starts = read(&scene, &busy, &[NONE; 2]).await;
    assert_eq!(granted(&say(&busy, &starts[..1], permits(0, 1)).await), 1);
    let mut number = 1;
    eventually("the other one gets the permit", async || {
        number += 1;
        // Its attempt has ended, and it asks for the next one, again and again.
        let has = usize::from(granted(&say(&waits, &starts[1..], permits(0, number)).await) == 1);
        if has == 0 {
            say(&busy, &starts[..1], permits(0, number)).await;
        }
        has == 1
    })
    .await;
}
