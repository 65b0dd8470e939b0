//! Cancelling, end to end: wherever the message is, the answer is true, its effects happen whole or never, and nothing of it stays.

use std::time::Duration;

use hostler::publish::scripts;
use hostler::publish::{
    Awaited, CancelError, Cancelled, Canceller, List, Outgoing, Receipt, Status, Verdict,
};
use hostler::redis::script::Script;
use hostler_tests::cluster::Cluster;
use hostler_tests::command::{Ended, fed, hostler, measured, run, run_line};
use hostler_tests::host::HostOptions;
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{PATIENCE, RawRedis, RedisOptions, documented_user, eventually};

use crate::runtime::e2e_scene::{Scene, inbox, orders, serving};
use crate::scene::{Kind, connector, on_both};

on_both! {
    a_message_is_cancelled_at_each_step_of_its_way
    a_cancelled_message_takes_its_records_along
    a_cancel_that_races_with_the_host_says_what_happened
    a_running_attempt_is_cut_off_also_if_it_computes
    a_host_that_stands_still_settles_nothing_of_a_cancelled_message
    a_lost_answer_cancels_once
    many_are_cancelled_after_a_count
    a_route_keeps_cancelled_messages
    the_documented_user_can_cancel
    a_search_by_id_ends_at_its_bound_and_says_so
}

/// How often each way is gone.
fn rounds() -> usize {
    let given = std::env::var("HOSTLER_CANCELS").ok();
    given.map_or(5, |text| text.parse().unwrap())
}

/// A host of `orders` whose handler publishes to `invoices`.
fn acting(scene: &Scene, kind: Kind) -> HostOptions {
    at(&scene.server.url(), kind).directory(scene.server.dir())
}

fn at(url: &str, kind: Kind) -> HostOptions {
    serving(url, kind, "holding-publisher")
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flags("backoff-first=10m backoff-max=10m min-idle=5s")
        .flags("timeout=10m drain-timeout=9m concurrency=2")
}

fn canceller(url: &str, kind: Kind) -> Canceller {
    Canceller::new(&connector(url), orders(kind)).unwrap()
}

fn verdict(mut done: Vec<Cancelled>) -> Verdict {
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0).verdict
}

fn is_void(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Void(_))
}

async fn is_told(awaited: Awaited) {
    let answer = awaited.answer(PATIENCE).await.unwrap();
    let found = (answer.status, answer.reason.as_deref());
    assert_eq!(found, (Status::Cancelled, Some("cancelled")));
}

/// How many invoices with this body there are.
async fn invoices(raw: &RawRedis, body: &str) -> usize {
    let entries = raw.entries("invoices").await;
    let has = |fields: &[Vec<u8>]| fields.iter().any(|field| field == body.as_bytes());
    entries.iter().filter(|(_, fields)| has(fields)).count()
}

/// Nothing of a message is left that a host could find.
async fn is_clean(raw: &RawRedis, kind: Kind) {
    let mut keys = vec![
        "{orders}:delayed",
        "{orders}:parked:workers",
        "{orders}:held:workers",
    ];
    if kind == Kind::List {
        keys.extend(["orders", "{orders}:retry"]);
    }
    for key in keys {
        assert_eq!(raw.number(&format!("EXISTS {key}")).await, 0, "{key}");
    }
    for pattern in [
        "{orders}:processing:*",
        "{orders}:started:*",
        "{orders}:journal*",
    ] {
        let found = raw.ask(&format!("KEYS {pattern}")).await;
        let found: Vec<String> = redis::from_redis_value(found).unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
    if kind == Kind::Stream && raw.text("TYPE orders").await == "stream" {
        let group = raw.ask("XINFO GROUPS orders").await;
        if !matches!(&group, redis::Value::Array(groups) if groups.is_empty()) {
            assert!(raw.pending("orders", "workers").await.is_empty());
        }
    }
}

async fn is_parked(raw: &RawRedis, kind: Kind) {
    eventually("it is parked", async || match kind {
        Kind::Stream => raw.number("ZCARD {orders}:parked:workers").await == 1,
        Kind::List => raw.number("ZCARD {orders}:delayed").await == 1,
    })
    .await;
}

async fn a_message_is_cancelled_at_each_step_of_its_way(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let (inbox, canceller) = (inbox(&url, kind), canceller(&url, kind));
    for round in 0..rounds() {
        let body = |step: &str| format!("publish:invoices:{step}{round}");
        // No group and no host has seen it.
        let unread = inbox.send(&Outgoing::new(body("unread"))).await.unwrap();
        let later = Outgoing::new(body("later")).delay(Duration::from_secs(600));
        let later = inbox.send(&later).await.unwrap();
        for awaited in [unread, later] {
            assert_eq!(
                verdict(canceller.cancel(awaited.id()).await.unwrap()),
                Verdict::Cancelled
            );
            is_told(awaited).await;
        }
        is_clean(&scene.raw, kind).await;
        let host = acting(&scene, kind).ready().await;
        for (way, step) in [("nack", "parked"), ("hold:600000+nack", "held")] {
            let asked = match way {
                // A hold has no effects.
                "nack" => format!("{}+nack", body(step)),
                way => way.to_owned(),
            };
            let awaited = inbox.send(&Outgoing::new(asked)).await.unwrap();
            is_parked(&scene.raw, kind).await;
            let done = canceller.cancel(awaited.id()).await.unwrap();
            assert_eq!(verdict(done), Verdict::Cancelled, "{step}");
            is_told(awaited).await;
        }
        let asked = format!("{}+sleep:600000+answer:paid", body("running"));
        let awaited = inbox.send(&Outgoing::new(asked.clone())).await.unwrap();
        host.starts(3).await;
        let done = verdict(canceller.cancel(awaited.id()).await.unwrap());
        assert!(is_void(&done), "{done:?}");
        is_told(awaited).await;
        let series = "hostler_dispositions_total{disposition=\"discard\",reason=\"cancelled\"}";
        eventually("the host counts it", async || host.metric(series) == 1).await;
        // The slot is free: the host does not wait for it.
        let ended = host.drained().await;
        assert_eq!(ended.json()["acked"], 0);
        is_clean(&scene.raw, kind).await;
        // The host that has it dies.
        let awaited = inbox.send(&Outgoing::new(asked)).await.unwrap();
        let host = acting(&scene, kind).ready().await;
        host.starts(1).await;
        host.kill().await;
        assert!(is_void(&verdict(
            canceller.cancel(awaited.id()).await.unwrap()
        )));
        is_told(awaited).await;
    }
    let host = acting(&scene, kind)
        .flag("until-empty", "true")
        .finish()
        .await;
    assert_eq!(host.json()["attempts"], 0);
    is_clean(&scene.raw, kind).await;
    assert_eq!(scene.raw.number("EXISTS invoices orders:dead").await, 0);
}

async fn a_cancelled_message_takes_its_records_along(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let (inbox, canceller) = (inbox(&url, kind), canceller(&url, kind));
    let options = serving(&url, kind, "durable")
        .directory(scene.server.dir())
        .flag("grant-journal", "{}")
        .flags("backoff-first=10m backoff-max=10m min-idle=5s")
        .flags("timeout=10m drain-timeout=9m");
    for _ in 0..rounds() {
        for (end, dies) in [
            ("nack", false),
            ("sleep:600000", false),
            ("sleep:600000", true),
        ] {
            let host = options.ready().await;
            let asked = format!("remember:paid=yes+{end}");
            let awaited = inbox.send(&Outgoing::new(asked)).await.unwrap();
            eventually("a record is there", async || {
                let found = scene.raw.ask("KEYS {orders}:journal*").await;
                !redis::from_redis_value::<Vec<String>>(found)
                    .unwrap()
                    .is_empty()
            })
            .await;
            if end == "nack" {
                is_parked(&scene.raw, kind).await;
            }
            let host = match dies {
                true => {
                    host.kill().await;
                    None
                }
                false => Some(host),
            };
            let done = verdict(canceller.cancel(awaited.id()).await.unwrap());
            assert!(done.is_cancelled(), "{end}: {done:?}");
            is_told(awaited).await;
            is_clean(&scene.raw, kind).await;
            if let Some(host) = host {
                host.drained().await;
            }
        }
    }
    is_clean(&scene.raw, kind).await;
}

async fn a_cancel_that_races_with_the_host_says_what_happened(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let hosts = [
        acting(&scene, kind).ready().await,
        acting(&scene, kind).ready().await,
    ];
    let (inbox, canceller) = (inbox(&url, kind), canceller(&url, kind));
    let mut seen = [0; 2];
    for round in 0..8 * rounds() {
        // An attempt that lasts loses the race, also on a busy machine.
        let ms = [0, 1, 2, 4, 8, 30, 300, 3000][round % 8];
        let asked = format!("publish:invoices:n{round}.+sleep:{ms}+answer:n{round}");
        let awaited = inbox.send(&Outgoing::new(asked)).await.unwrap();
        let done = verdict(canceller.cancel(awaited.id()).await.unwrap());
        let answer = awaited.answer(PATIENCE).await.unwrap();
        let is_cancelled = done.is_cancelled();
        seen[usize::from(is_cancelled)] += 1;
        match is_cancelled {
            true => assert_eq!(answer.reason.as_deref(), Some("cancelled")),
            false => assert_eq!(answer.status, Status::Acked, "{done:?}"),
        }
        let written = invoices(&scene.raw, &format!("n{round}.")).await;
        assert_eq!(written, usize::from(!is_cancelled), "{done:?}");
    }
    assert!(seen[1] > 0, "{seen:?}");
    let mut acked = 0;
    for host in hosts {
        acked += host.drained().await.json()["acked"].as_u64().unwrap();
    }
    // No acknowledgement counts that found nothing.
    assert_eq!(acked, seen[0]);
    is_clean(&scene.raw, kind).await;
}

async fn a_running_attempt_is_cut_off_also_if_it_computes(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let host = acting(&scene, kind)
        .flags("cpu=9m concurrency=1")
        .ready()
        .await;
    let (inbox, canceller) = (inbox(&url, kind), canceller(&url, kind));
    let awaited = inbox.send(&Outgoing::new("spin:500000")).await.unwrap();
    host.starts(1).await;
    assert!(is_void(&verdict(
        canceller.cancel(awaited.id()).await.unwrap()
    )));
    is_told(awaited).await;
    // Its slot serves the next one.
    let next = inbox.send(&Outgoing::new("answer:next")).await.unwrap();
    assert_eq!(next.answer(PATIENCE).await.unwrap().status, Status::Acked);
    host.drained().await;
}

async fn a_host_that_stands_still_settles_nothing_of_a_cancelled_message(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let host = acting(&scene, kind).ready().await;
    let (inbox, canceller) = (inbox(&url, kind), canceller(&url, kind));
    let asked = "publish:invoices:one+sleep:300+answer:paid";
    let awaited = inbox.send(&Outgoing::new(asked)).await.unwrap();
    host.starts(1).await;
    host.pause().await;
    let id = awaited.id().to_owned();
    assert!(is_void(&verdict(canceller.cancel(&id).await.unwrap())));
    is_told(awaited).await;
    host.resume();
    let next = inbox.send(&Outgoing::new("answer:next")).await.unwrap();
    assert_eq!(next.answer(PATIENCE).await.unwrap().status, Status::Acked);
    assert_eq!(host.drained().await.json()["acked"], 1);
    assert_eq!(scene.raw.number("EXISTS invoices").await, 0);
    is_clean(&scene.raw, kind).await;
}

async fn a_lost_answer_cancels_once(kind: Kind) {
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 3).unwrap();
    let inbox = inbox(&scene.server.url(), kind);
    let canceller = canceller(&proxy.url(), kind);
    let host = acting(&scene, kind).ready().await;
    let (unread, pending): (&'static Script, &'static Script) = match kind {
        Kind::Stream => (&scripts::CANCEL_UNREAD, &scripts::CANCEL),
        Kind::List => (&scripts::CANCEL_VALUE, &scripts::CANCEL_VALUE),
    };
    let again = match kind {
        Kind::Stream => Verdict::Cancelled,
        Kind::List => Verdict::Unknown,
    };
    // The server knows the scripts from here on.
    let first = Outgoing::new("ack").delay(Duration::from_secs(600));
    let first = inbox.send(&first).await.unwrap();
    canceller.cancel(first.id()).await.unwrap();
    for (body, script) in [
        ("nack", pending),
        ("sleep:600000", pending),
        ("ack", unread),
    ] {
        if body == "ack" {
            run_line(&format!(
                "pause --redis {} --queue orders",
                scene.server.url()
            ))
            .ok();
            host.logs("paused: what has not started goes back").await;
        }
        let starts = host.witness().total();
        let awaited = inbox.send(&Outgoing::new(body)).await.unwrap();
        match body {
            "nack" => is_parked(&scene.raw, kind).await,
            "sleep:600000" => host.starts(starts + 1).await,
            _ => {}
        }
        proxy.cut_reply(script.digest(), 0);
        let before = proxy.replies_cut();
        // The id of an entry finds the note that it was cancelled, also if the entry is gone.
        let id = match awaited.receipt() {
            Receipt::Entry(id) => id.clone(),
            _ => awaited.id().to_owned(),
        };
        let mut failures = 0;
        let verdict = loop {
            match canceller.cancel(&id).await {
                Ok(done) => break verdict(done),
                Err(_) => failures += 1,
            }
        };
        proxy.disarm();
        assert!(proxy.replies_cut() > before && failures > 0, "{body}");
        assert_eq!(verdict, again, "{body}");
        is_told(awaited).await;
    }
    host.drained().await;
    is_clean(&scene.raw, kind).await;
}

/// `hostler cancel` on this server.
fn cancel(url: &str, rest: &str) -> Ended {
    let words = ["cancel", "--redis", url, "--json"];
    run(words.into_iter().chain(rest.split_whitespace()))
}

async fn many_are_cancelled_after_a_count(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    // A host lists the queue, and makes the group.
    let host = acting(&scene, kind).ready().await;
    run_line(&format!("pause --redis {url} --queue orders")).ok();
    host.logs("paused: what has not started goes back").await;
    let publisher = inbox(&url, kind);
    for n in 0..600 {
        let message = Outgoing::new(n.to_string()).header("tenant", format!("t{}", n % 3));
        publisher.publisher().publish(&message).await.unwrap();
    }
    let length = async || match kind {
        Kind::Stream => scene.raw.number("XLEN orders").await,
        Kind::List => scene.raw.number("LLEN orders").await,
    };
    let tenant = "--queue orders --header tenant=t1";
    let counted = cancel(&url, &format!("{tenant} --dry-run")).ok().json();
    assert_eq!(counted["found"], 200);
    let asked = [
        "cancel",
        "--redis",
        &url,
        "--queue",
        "orders",
        "--header",
        "tenant=t1",
    ];
    let ended = fed(asked, b"n\n");
    assert!(
        ended
            .stderr
            .contains("cancel 200 messages of orders? [y/N]"),
        "{ended:?}"
    );
    assert_eq!(length().await, 600);
    let ended = fed(asked, b"");
    assert_eq!(ended.code, 64, "{ended:?}");
    fed(asked, b"y\n").ok();
    assert_eq!(length().await, 400);
    match kind {
        Kind::Stream => {
            let none = cancel(&url, "--queue orders --older 1h --yes").ok().json();
            assert_eq!(none["by_answer"].as_object().unwrap().len(), 0);
            let old = cancel(&url, "--queue orders --older 0s --header tenant=t2 --yes");
            assert_eq!(old.ok().json()["by_answer"]["cancelled"], 200);
        }
        Kind::List => {
            let ended = cancel(&url, "--queue orders --older 0s --yes");
            assert_eq!(ended.code, 64, "{ended:?}");
            cancel(&url, "--queue orders --header tenant=t2 --yes").ok();
        }
    }
    assert_eq!(length().await, 200);
    let all = cancel(&url, "--queue orders --all --yes").ok().json();
    assert_eq!(all["by_answer"]["cancelled"], 200);
    assert_eq!(length().await, 0);
    host.drained().await;
}

async fn a_route_keeps_cancelled_messages(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let host = acting(&scene, kind)
        .flags("dead-letter-routes=cancelled=orders:gone")
        .ready()
        .await;
    let inbox = inbox(&url, kind);
    for body in ["nack", "sleep:600000"] {
        let starts = host.witness().total();
        let awaited = inbox.send(&Outgoing::new(body)).await.unwrap();
        host.starts(starts + 1).await;
        if body == "nack" {
            is_parked(&scene.raw, kind).await;
        }
        let done = cancel(&url, awaited.id()).ok().json();
        assert_eq!(done["messages"].as_array().unwrap().len(), 1, "{done}");
        let answer = awaited.answer(PATIENCE).await.unwrap();
        assert_eq!(answer.status, Status::Cancelled);
        assert_eq!(answer.reason.as_deref(), Some("cancelled"));
    }
    // A dead letter is not cancelled, and the answer says where it is.
    let dropped = inbox.send(&Outgoing::new("drop")).await.unwrap();
    let id = dropped.id().to_owned();
    dropped.answer(PATIENCE).await.unwrap();
    let ended = cancel(&url, &id);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended.stderr.contains("it is a dead letter in orders:dead"),
        "{ended:?}"
    );
    let peeked = run_line(&format!("dlq peek --redis {url} orders:gone --json"))
        .ok()
        .json();
    assert_eq!(peeked["by_reason"]["cancelled"], 2, "{peeked}");
    host.drained().await;
    is_clean(&scene.raw, kind).await;
}

async fn the_documented_user_can_cancel(kind: Kind) {
    let options = RedisOptions::default().user(&documented_user("canceller"));
    let scene = Scene::with(options).await;
    let host = acting(&scene, kind).ready().await;
    let inbox = inbox(&scene.server.url(), kind);
    let url = format!("{}?user=canceller&pass=change-me", scene.server.url());
    for body in ["nack", "sleep:600000", "ack"] {
        let starts = host.witness().total();
        if body == "ack" {
            run_line(&format!(
                "pause --redis {} --queue orders",
                scene.server.url()
            ))
            .ok();
            host.logs("paused: what has not started goes back").await;
        }
        let awaited = inbox.send(&Outgoing::new(body)).await.unwrap();
        if body != "ack" {
            host.starts(starts + 1).await;
        }
        if body == "nack" {
            is_parked(&scene.raw, kind).await;
        }
        cancel(&url, &format!("--queue orders {}", awaited.id())).ok();
        is_told(awaited).await;
    }
    cancel(&url, "--queue orders --all --yes").ok();
    host.drained().await;
    // Without the right, it says so, and nothing is done.
    inbox
        .publisher()
        .publish(&Outgoing::new("ack"))
        .await
        .unwrap();
    scene.raw.ask("ACL SETUSER canceller -xdel -lrem").await;
    let ended = cancel(&url, "--queue orders --all --yes");
    assert!(ended.stderr.contains("permission to run"), "{ended:?}");
    let left = match kind {
        Kind::Stream => "XLEN orders",
        Kind::List => "LLEN orders",
    };
    assert!(scene.raw.number(left).await >= 1);
}

/// 250 entries that neither of the groups `workers` and `others` has read.
async fn of_two_groups(scene: &Scene) -> Vec<String> {
    for group in ["workers", "others"] {
        let create = format!("XGROUP CREATE orders {group} 0 MKSTREAM");
        scene.raw.ask(&create).await;
    }
    let mut ids = Vec::new();
    for n in 0..250 {
        ids.push(scene.raw.add("orders", &format!("ack:{n}")).await);
    }
    ids
}

#[tokio::test]
async fn a_lost_answer_of_entries_that_are_handed_out_ahead_hands_out_the_rest() {
    let scene = Scene::new().await;
    let ids = of_two_groups(&scene).await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 3).unwrap();
    let workers = canceller(&proxy.url(), Kind::Stream).group(Some("workers".to_owned()));
    // The server knows the scripts from here on.
    let first = workers.cancel(&ids[0]).await.unwrap();
    assert_eq!(verdict(first), Verdict::Cancelled);
    let parked = async || scene.raw.number("ZCARD {orders}:parked:workers").await;
    // 100 are handed out at once.
    for ahead in [100, 200] {
        proxy.cut_reply(scripts::CANCEL_AHEAD.digest(), 0);
        let lost = workers.cancel(&ids[240]).await;
        assert!(matches!(lost, Err(CancelError::Redis(_))), "{lost:?}");
        assert_eq!(parked().await, ahead);
    }
    let done = workers.cancel(&ids[240]).await.unwrap();
    assert_eq!(verdict(done), Verdict::Cancelled);
    assert_eq!((proxy.replies_cut(), parked().await), (2, 239));
    let host = scene.host().flag("until-empty", "true").finish().await;
    assert_eq!(host.json()["acked"], 248);
    // The other group has all of them.
    let others = "XINFO GROUPS orders";
    let left = format!("{:?}", scene.raw.ask(others).await);
    assert!(left.contains("others"), "{left}");
    assert_eq!(scene.raw.number("XLEN orders").await, 250);
}

/// An id that is not among those that are looked at is not called unknown.
async fn a_search_by_id_ends_at_its_bound_and_says_so(kind: Kind) {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let publisher = inbox(&url, kind);
    for n in 0..400 {
        let message = Outgoing::new("ack").header("x-message-id", format!("n{n}"));
        publisher.publisher().publish(&message).await.unwrap();
    }
    let within = |most: u64| canceller(&url, kind).search_max(most);
    let bounded = within(200).cancel("n390").await;
    assert!(matches!(bounded, Err(CancelError::Bound(_))), "{bounded:?}");
    assert!(within(200).has("n390").await.is_err());
    assert!(within(200).has("n7").await.unwrap());
    let (length, settled) = match kind {
        Kind::Stream => ("XLEN orders", Verdict::TooLate),
        Kind::List => ("LLEN orders", Verdict::Unknown),
    };
    assert_eq!(scene.raw.number(length).await, 400);
    let done = within(1000).cancel("n390").await.unwrap();
    assert_eq!(verdict(done), Verdict::Cancelled);
    let host = acting(&scene, kind).flag("until-empty", "true");
    assert_eq!(host.finish().await.json()["acked"], 399);
    // Of a stream, all entries are looked at.
    let done = within(1000).cancel("n7").await.unwrap();
    assert_eq!(verdict(done), settled);
    if kind == Kind::Stream {
        let bounded = within(200).cancel("n7").await;
        assert!(matches!(bounded, Err(CancelError::Bound(_))), "{bounded:?}");
    }
}

#[tokio::test]
async fn messages_of_more_instances_than_a_page_are_found() {
    let scene = Scene::new().await;
    let mut headers = hostler::delivery::message::Headers::default();
    headers.push("x-message-id", "one");
    let value = hostler::wire::frame::encode(&headers, b"body").unwrap();
    for n in 0..1_000 {
        let instance = format!("ZADD {{orders}}:instances {n} h{n}");
        scene.raw.ask(&instance).await;
    }
    let held = [&[7; 16][..], &value].concat();
    scene.push("{orders}:processing:h700", &held).await;
    let done = canceller(&scene.server.url(), Kind::List)
        .cancel("one")
        .await;
    assert_eq!(verdict(done.unwrap()), Verdict::Void("h700".to_owned()));
}

#[tokio::test]
async fn a_group_is_cancelled_apart_also_if_others_need_the_entry() {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let ids = of_two_groups(&scene).await;
    let of = |group: &str| canceller(&url, Kind::Stream).group(Some(group.to_owned()));
    let done = of("workers").cancel(&ids[200]).await.unwrap();
    assert_eq!(verdict(done), Verdict::Cancelled);
    // It is there for the other group, and those before it are due for this one.
    assert_eq!(scene.raw.number("XLEN orders").await, 250);
    assert_eq!(scene.raw.number("ZCARD {orders}:parked:workers").await, 200);
    assert_eq!(
        verdict(of("workers").cancel(&ids[200]).await.unwrap()),
        Verdict::Cancelled
    );
    assert_eq!(
        verdict(of("others").cancel(&ids[200]).await.unwrap()),
        Verdict::Cancelled
    );
    assert_eq!(scene.raw.number("XLEN orders").await, 249);
    // In all groups: one has it, the other has not.
    let done = canceller(&url, Kind::Stream)
        .cancel(&ids[100])
        .await
        .unwrap();
    let is_cancelled = |done: &Cancelled| done.verdict == Verdict::Cancelled;
    assert!(done.len() == 2 && done.iter().all(is_cancelled), "{done:?}");
    assert_eq!(scene.raw.number("XLEN orders").await, 248);
    let host = scene.host().flag("until-empty", "true").finish().await;
    assert_eq!(host.json()["acked"], 248);
    let done = of("workers").cancel(&ids[0]).await.unwrap();
    assert_eq!(verdict(done), Verdict::TooLate);
    let done = canceller(&url, Kind::Stream).cancel("1-1").await.unwrap();
    assert_eq!(verdict(done), Verdict::Unknown);
}

#[tokio::test]
async fn the_command_refuses_what_it_cannot_mean() {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let ended = cancel(&url, "--queue orders 1-1");
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(ended.stderr.contains("no such queue is known"), "{ended:?}");
    let host = acting(&scene, Kind::Stream).ready().await;
    let ended = cancel(&url, "--queue orders nobody");
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_eq!(ended.json()["messages"][0]["answer"], "unknown");
    // Two groups have messages of their own.
    let other = acting(&scene, Kind::Stream)
        .flag("group", "others")
        .ready()
        .await;
    let ended = cancel(&url, "--queue orders --all --yes");
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(ended.stderr.contains("several ways"), "{ended:?}");
    host.drained().await;
    other.drained().await;
}

#[tokio::test]
async fn a_simple_list_gives_up_what_no_host_has_taken() {
    let scene = Scene::new().await;
    let list = || Canceller::new(&connector(&scene.server.url()), List::new("lines")).unwrap();
    let mut headers = hostler::delivery::message::Headers::default();
    headers.push("x-message-id", "one");
    let value = hostler::wire::frame::encode(&headers, b"body").unwrap();
    scene.push("lines", &value).await;
    assert_eq!(
        verdict(list().cancel("one").await.unwrap()),
        Verdict::Cancelled
    );
    assert_eq!(
        verdict(list().cancel("one").await.unwrap()),
        Verdict::Unknown
    );
    assert!(!scene.exists("lines").await);
    let news = hostler::publish::Channel::new("news");
    let refused = Canceller::new(&connector(&scene.server.url()), news);
    assert!(refused.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_keep_to_the_slot_of_their_queue() {
    let cluster = Cluster::start(3, 0).await;
    for kind in [Kind::Stream, Kind::List] {
        let host = at(&cluster.url(), kind).ready().await;
        let (inbox, canceller) = (inbox(&cluster.url(), kind), canceller(&cluster.url(), kind));
        let later = Outgoing::new("ack").delay(Duration::from_secs(600));
        let later = inbox.send(&later).await.unwrap();
        let running = inbox.send(&Outgoing::new("sleep:600000")).await.unwrap();
        host.starts(1).await;
        for awaited in [later, running] {
            let done = verdict(canceller.cancel(awaited.id()).await.unwrap());
            assert!(done.is_cancelled(), "{done:?}");
            is_told(awaited).await;
        }
        host.drained().await;
        cluster.at("orders").await.ask("DEL orders").await;
    }
}

/// It compares memory: alone.
mod measured {
    use super::*;

    #[tokio::test]
    async fn cancel_and_trace_hold_few_large_messages_at_a_time() {
        const COUNT: u64 = 24;
        const SIZE: u64 = 16 << 20;
        for kind in [Kind::Stream, Kind::List] {
            let scene = Scene::new().await;
            let url = scene.server.url();
            // A host lists the queue.
            acting(&scene, kind).ready().await.drained().await;
            let inbox = inbox(&url, kind);
            let publish = async |body: Vec<u8>| {
                let message = Outgoing::new(body).header("tenant", "acme");
                inbox.publisher().publish(&message).await.unwrap();
            };
            // Small ones before them say nothing about their size.
            for _ in 0..200 {
                publish(b"small".to_vec()).await;
            }
            for _ in 0..COUNT {
                publish(vec![b'x'; SIZE.try_into().unwrap()]).await;
            }
            for (words, code) in [
                ("trace nobody", 1),
                ("cancel --queue orders nobody", 1),
                ("cancel --queue orders --header tenant=acme --yes", 0),
            ] {
                let line = format!("{words} --redis {url}");
                let mut command = hostler(line.split_whitespace());
                let (ended, most) = measured(&mut command);
                println!("{kind:?}: {words}: {} MiB at most", most >> 20);
                assert_eq!(ended.code(), Some(code), "{words}");
                // All of them have 384 MiB.
                assert!(most < 10 * SIZE, "{kind:?}: {words}: {most} bytes");
            }
            let left = scene.raw.number("EXISTS orders").await;
            assert!(kind == Kind::Stream || left == 0);
        }
    }
}
