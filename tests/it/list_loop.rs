//! The loop on a reliable list, with a native handler: what happens to messages.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::attempt::Allowance;
use hostler::delivery::backoff::Backoff;
use hostler::delivery::policy::{DeadLetterRules, OnCap, OnFault, Policy};
use hostler::queue::Queue;
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::runtime::{Exit, Settings, UntilEmpty};
use hostler::wire::list::Framing;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RedisOptions, eventually};

use crate::list_scene::{DEAD, INSTANCES, KEY, Scene, framed, options, recovering};
use crate::queue_scene::connector;

/// Short, so that tests of dead hosts end soon; hosts that live renew three times in it.
const MIN_IDLE: Duration = Duration::from_millis(600);

fn settings(cap: Option<u32>) -> Settings {
    let policy = Policy {
        allowance: Allowance {
            cap,
            ..Allowance::default()
        },
        on_cap: OnCap::DeadLetter,
        on_fault: OnFault::Requeue,
        has_dead_letter: true,
        dead_letters: DeadLetterRules::default(),
        backoff: Backoff {
            first: Duration::from_millis(5),
            ..Backoff::default()
        },
    };
    let defaults = Settings::new(policy);
    let ledger = hostler::delivery::ledger::Settings {
        min_idle: MIN_IDLE,
        orphan_scan: Duration::from_millis(50),
        ..defaults.ledger.clone()
    };
    Settings { ledger, ..defaults }
}

fn until_empty(settings: Settings) -> Settings {
    Settings {
        until_empty: Some(UntilEmpty {
            timeout: Some(Duration::from_secs(20)),
        }),
        ..settings
    }
}

fn quick(options: ListOptions) -> ListOptions {
    ListOptions {
        min_idle: MIN_IDLE,
        ..options
    }
}

async fn start(
    scene: &Scene,
    options: ListOptions,
    settings: Settings,
    script: &Arc<Script>,
) -> Host {
    let queue = ListQueue::open(connector(&scene.server.url()), options)
        .await
        .unwrap();
    Host::on(Arc::new(queue) as Arc<dyn Queue>, settings, script)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_ends_as_it_should() {
    let framings = [Framing::Auto, Framing::Raw];
    for (n, options) in [options(), recovering(), options()].into_iter().enumerate() {
        let options = ListOptions {
            framing: framings[n / 2],
            ..options
        };
        let scene = Scene::new().await;
        for i in 0..500 {
            let body: &[u8] = match i % 5 {
                0 => b"nack,ack",
                1 => b"nack:30,nack:0,ack",
                2 => b"drop",
                3 => b"nack",
                _ => b"ack",
            };
            scene.push(&[body]).await;
        }
        let script = Arc::new(Script::default());
        let host = start(&scene, options, until_empty(settings(Some(3))), &script).await;
        let metrics = Arc::clone(&host.metrics);
        assert_eq!(host.ended().await, Exit::Drained);
        let summary = metrics.summary();
        assert_eq!(summary.acked, 300);
        assert_eq!(summary.dead_lettered["dropped"], 100);
        assert_eq!(summary.dead_lettered["max-deliveries"], 100);
        assert_eq!(script.starts().len(), 100 * (2 + 3 + 1 + 3 + 1));
        // Nothing is left but the dead letters.
        assert_eq!(scene.raw.number("DBSIZE").await, 1);
        let dead = scene.list(DEAD).await;
        assert_eq!(dead.len(), 200);
        for value in dead {
            let (headers, payload) = framed(&value);
            let (reason, attempts) = match &payload[..] {
                b"drop" => ("dropped", "1"),
                _ => ("max-deliveries", "3"),
            };
            assert_eq!(headers.find_str("x-dead-letter-reason"), Some(reason));
            assert_eq!(headers.find_str("x-dead-letter-attempts"), Some(attempts));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_dies_with_its_host_is_started_as_often_as_it_may_be() {
    let raw = ListOptions {
        framing: Framing::Raw,
        ..recovering()
    };
    for options in [options(), recovering(), raw] {
        for cap in [1, 2, 3] {
            let scene = Scene::new().await;
            let options = quick(options.clone());
            scene.push(&[b"sleep:100000"]).await;
            let script = Arc::new(Script::default());
            for start_number in 1..=cap as usize {
                let host = start(&scene, options.clone(), settings(Some(cap)), &script).await;
                eventually("it starts", async || script.starts().len() == start_number).await;
                host.crash();
            }
            let host = start(&scene, options, until_empty(settings(Some(cap))), &script).await;
            let metrics = Arc::clone(&host.metrics);
            assert_eq!(host.ended().await, Exit::Drained);
            let attempts: Vec<u32> = script.starts().iter().map(|(_, n)| *n).collect();
            assert_eq!(attempts, (1..=cap).collect::<Vec<_>>());
            assert_eq!(metrics.summary().dead_lettered["max-deliveries"], 1);
            let (headers, payload) = framed(&scene.list(DEAD).await[0]);
            assert_eq!(payload, "sleep:100000");
            let told = cap.to_string();
            assert_eq!(headers.find_str("x-dead-letter-attempts"), Some(&*told));
            assert_eq!(headers.find("x-hostler-crashes"), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn innocents_beside_a_killer_are_not_dead_lettered() {
    let scene = Scene::new().await;
    let options = quick(recovering());
    scene.push(&[b"sleep:100000"]).await;
    for _ in 0..5 {
        scene.push(&[b"sleep:100000,ack"]).await;
    }
    let script = Arc::new(Script::default());
    // All six start, and die with their host.
    let host = start(&scene, options.clone(), settings(Some(3)), &script).await;
    eventually("all start", async || script.starts().len() == 6).await;
    host.crash();
    // The killer kills again: the others have one charge, and ack beside it.
    let host = start(&scene, options.clone(), settings(Some(3)), &script).await;
    eventually("the killer starts again", async || {
        let starts = script.starts();
        starts.len() == 12 && scene.raw.number("LLEN jobs").await == 0
    })
    .await;
    eventually("the others are acknowledged", async || {
        host.metrics.summary().acked == 5
    })
    .await;
    host.crash();
    let host = start(&scene, options.clone(), settings(Some(3)), &script).await;
    eventually("it runs alone", async || script.starts().len() == 13).await;
    assert_eq!(host.metrics.isolated_runs.get(), 1);
    host.crash();
    let host = start(&scene, options, until_empty(settings(Some(3))), &script).await;
    assert_eq!(host.ended().await, Exit::Drained);
    assert_eq!(script.starts().len(), 13);
    assert_eq!(scene.list(DEAD).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_costs_no_message() {
    let durable = RedisOptions::default().appendonly();
    let mut scene = Scene::with(durable.set("appendfsync", "always")).await;
    for n in 0..300 {
        let id = n.to_string();
        let headers = vec![("x-message-id".into(), id.into())];
        let headers = hostler::delivery::message::Headers::new(headers);
        let value = hostler::wire::frame::encode(&headers, b"sleep:5").unwrap();
        scene.push(&[&value]).await;
    }
    let script = Arc::new(Script::default());
    let mut settings = settings(None);
    settings.ledger.concurrency = 4;
    let host = start(&scene, quick(recovering()), settings, &script).await;
    for starts in [30, 100] {
        eventually("it works", async || script.starts().len() >= starts).await;
        scene.server.restart();
    }
    scene.raw = scene.server.raw().await;
    eventually("all are settled", async || {
        let mut left = 0;
        for key in ["LLEN jobs", "ZCARD {jobs}:delayed", "ZCARD jobs:claims"] {
            left += scene.raw.number(key).await;
        }
        left == 0
    })
    .await;
    for n in 0..300 {
        assert!(script.starts_of(&n.to_string()) >= 1, "{n} was lost");
    }
    assert_eq!(host.drain().await, Exit::Drained);
    assert!(scene.list(DEAD).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_handler_is_not_robbed() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        let options = quick(options);
        scene.push(&[b"sleep:2400", b"sleep:2400"]).await;
        let script = Arc::new(Script::default());
        let all = until_empty(settings(Some(3)));
        let one = start(&scene, options.clone(), all.clone(), &script).await;
        let two = start(&scene, options, all, &script).await;
        assert_eq!(one.ended().await, Exit::Drained);
        assert_eq!(two.ended().await, Exit::Drained);
        assert_eq!(script.starts().len(), 2);
        assert_eq!(scene.raw.number("DBSIZE").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_host_hands_back_what_has_not_started_without_a_charge() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        scene.push(&[b"sleep:300"]).await;
        let rest: Vec<String> = (0..7).map(|n| format!("ack,{n}")).collect();
        let rest: Vec<&[u8]> = rest.iter().map(|body| body.as_bytes()).collect();
        scene.push(&rest).await;
        let script = Arc::new(Script::default());
        let mut one_slot = settings(Some(2));
        one_slot.ledger.concurrency = 1;
        one_slot.ledger.prefetch_max = 5;
        let host = start(&scene, options.clone(), one_slot, &script).await;
        eventually("the first runs", async || script.starts().len() == 1).await;
        assert_eq!(host.drain().await, Exit::Drained);
        // In their order, untouched.
        let mut list = scene.list(KEY).await;
        list.reverse();
        assert_eq!(
            list,
            rest.iter()
                .rev()
                .map(|v| v.to_vec())
                .rev()
                .collect::<Vec<_>>()
        );
        assert_eq!(scene.raw.number(&format!("EXISTS {INSTANCES}")).await, 0);
        let host = start(&scene, options, until_empty(settings(Some(2))), &script).await;
        assert_eq!(host.ended().await, Exit::Drained);
        assert!(script.starts().iter().all(|(_, attempt)| *attempt == 1));
        assert_eq!(script.starts().len(), 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_hosts_die_under_load() {
    let scene = Scene::new().await;
    let options = |n: usize| ListOptions {
        consumer: format!("host{n}"),
        ..quick(recovering())
    };
    let script = Arc::new(Script::default());
    let mut hosts = Vec::new();
    for n in 0..5 {
        hosts.push(start(&scene, options(n), settings(None), &script).await);
    }
    for n in 0..600 {
        let body = if n % 3 == 0 {
            "nack:20,sleep:5"
        } else {
            "sleep:5"
        };
        let id = n.to_string();
        let value = hostler::wire::frame::encode(
            &hostler::delivery::message::Headers::new(vec![("x-message-id".into(), id.into())]),
            body.as_bytes(),
        )
        .unwrap();
        scene.push(&[&value]).await;
        if n == 300 {
            hosts.remove(0).crash();
        }
    }
    eventually("all are settled", async || {
        let acked: u64 = hosts.iter().map(|h| h.metrics.summary().acked).sum();
        let keys = ["LLEN jobs", "ZCARD {jobs}:delayed", "ZCARD jobs:claims"];
        let mut left = 0;
        for key in keys {
            left += scene.raw.number(key).await;
        }
        acked > 500 && left == 0
    })
    .await;
    for n in 0..600 {
        assert!(script.starts_of(&n.to_string()) >= 1, "{n} was lost");
    }
    for host in hosts {
        assert_eq!(host.drain().await, Exit::Drained);
    }
    assert!(scene.list(DEAD).await.is_empty());
}
