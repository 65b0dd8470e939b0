//! Replies, end to end: each way in which a message ends answers its producer once, whatever dies meanwhile, and no key stays.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use hostler::publish::{Answer, Destination, Inbox, List, Outgoing, Status, WaitError};
use hostler_tests::cluster::Cluster;
use hostler_tests::command::run_line;
use hostler_tests::guests::guest_module;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{PATIENCE, RawRedis, eventually};
use hostler_tests::sentinel::Watched;

use crate::runtime::e2e_scene::{Scene, inbox, orders, serving};
use crate::scene::{Kind, connector, on_both};

on_both! {
    each_end_of_a_message_answers
    a_bound_is_an_error_of_the_call_and_the_last_answer_counts
    a_host_that_dies_at_any_step_answers_once
    a_lost_answer_of_the_script_answers_once
    a_full_server_is_drained_and_keeps_replies
}

/// A host of the stream or list `orders` with this guest. Answers are kept for 30 seconds.
fn replying(scene: &Scene, kind: Kind, name: &str) -> HostOptions {
    at(&scene.server.url(), kind, name).directory(scene.server.dir())
}

fn at(url: &str, kind: Kind, name: &str) -> HostOptions {
    let times = "backoff-first=5ms min-idle=3s timeout=60s reply-keep=30s";
    serving(url, kind, name).flags(times)
}

async fn ask(inbox: &Inbox, body: &str) -> Answer {
    let message = Outgoing::new(body.to_owned());
    inbox.ask(&message, PATIENCE).await.unwrap()
}

fn value(answer: &Answer) -> Option<&str> {
    let value = answer.value.as_ref();
    value.map(|value| std::str::from_utf8(value).unwrap())
}

fn given_up(answer: &Answer) -> (Status, &str) {
    (answer.status, answer.reason.as_deref().unwrap())
}

/// The keys of inboxes, each with its time to live in milliseconds.
async fn inboxes(raw: &RawRedis) -> BTreeMap<String, i64> {
    let keys = raw.ask("KEYS {orders}:replies:*").await;
    let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
    let mut all = BTreeMap::new();
    for key in keys {
        let left = raw.number(&format!("PTTL {key}")).await;
        all.insert(key, left);
    }
    all
}

/// Publish a message for an inbox that only this test reads.
async fn publish_to(raw: &RawRedis, kind: Kind, inbox: &str, id: &str, body: &str) {
    let headers = [("x-message-id", id), ("x-reply-to", inbox)];
    match kind {
        Kind::Stream => {
            let words: [&[u8]; 9] = [
                b"XADD",
                b"orders",
                b"*",
                b"_payload",
                body.as_bytes(),
                b"h:x-message-id",
                id.as_bytes(),
                b"h:x-reply-to",
                inbox.as_bytes(),
            ];
            raw.ask_words(&words).await;
        }
        Kind::List => {
            let mut all = hostler::delivery::message::Headers::default();
            for (name, value) in headers {
                all.push(name, value.to_owned());
            }
            let value = hostler::wire::frame::encode(&all, body.as_bytes()).unwrap();
            raw.ask_words(&[b"LPUSH", b"orders", &value]).await;
        }
    }
}

/// The ids and statuses in an inbox, in order.
async fn answers(raw: &RawRedis, inbox: &str) -> Vec<(String, String, Option<String>)> {
    let entries = raw.entries(&format!("{{orders}}:replies:{inbox}")).await;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let answer = |fields: &[Vec<u8>]| {
        let find = |name: &[u8]| {
            let pair = fields.chunks(2).find(|pair| pair[0] == name);
            pair.map(|pair| text(&pair[1]))
        };
        (
            find(b"id").unwrap(),
            find(b"status").unwrap(),
            find(b"value"),
        )
    };
    entries.iter().map(|(_, fields)| answer(fields)).collect()
}

async fn each_end_of_a_message_answers(kind: Kind) {
    let scene = Scene::new().await;
    let host = replying(&scene, kind, "replying")
        .flags("max-deliveries=2 max-payload=1KiB")
        .ready()
        .await;
    let inbox = inbox(&scene.server.url(), kind);
    let group = (kind == Kind::Stream).then(|| "workers".to_owned());

    let acked = ask(&inbox, "answer:paid").await;
    assert_eq!((acked.status, value(&acked)), (Status::Acked, Some("paid")));
    assert_eq!(acked.group, group);
    let silent = ask(&inbox, "ack").await;
    assert_eq!((silent.status, value(&silent)), (Status::Acked, None));
    // A failed attempt takes its answer along.
    let retried = ask(&inbox, "answer:first+nack,ack").await;
    assert_eq!((retried.status, value(&retried)), (Status::Acked, None));
    let delayed = Outgoing::new("answer:late").delay(Duration::from_millis(50));
    let delayed = inbox.ask(&delayed, PATIENCE).await.unwrap();
    assert_eq!(value(&delayed), Some("late"));

    let dropped = ask(&inbox, "answer:lost+drop:no such customer").await;
    assert_eq!(given_up(&dropped), (Status::DeadLettered, "dropped"));
    assert_eq!(dropped.detail.as_deref(), Some("no such customer"));
    assert_eq!(value(&dropped), None);
    let failed = ask(&inbox, "nack").await;
    assert_eq!(given_up(&failed), (Status::DeadLettered, "max-deliveries"));
    let expired = Outgoing::new("ack").header("x-expires-at", "1700000000000");
    let expired = inbox.ask(&expired, PATIENCE).await.unwrap();
    assert_eq!(given_up(&expired), (Status::DeadLettered, "expired"));
    let malformed = Outgoing::new("ack").header("x-expires-at", "soon");
    let malformed = inbox.ask(&malformed, PATIENCE).await.unwrap();
    assert_eq!(given_up(&malformed), (Status::DeadLettered, "malformed"));
    let large = ask(&inbox, &"x".repeat(2000)).await;
    assert_eq!(given_up(&large), (Status::DeadLettered, "oversize"));

    let series = |status: &str| format!("hostler_replies_total{{status=\"{status}\"}}");
    eventually("each answer is counted", async || {
        host.metric(&series("acked")) == 4 && host.metric(&series("dead-lettered")) == 5
    })
    .await;
    host.drained().await;
    // Those that are read are deleted, and the key goes.
    let left = inboxes(&scene.raw).await;
    assert_eq!(left.len(), 1);
    assert!(
        left.values().all(|left| (1..=30_000).contains(left)),
        "{left:?}"
    );
    let key = left.keys().next().unwrap();
    eventually("they are deleted", async || {
        scene.raw.number(&format!("XLEN {key}")).await == 0
    })
    .await;
}

async fn a_bound_is_an_error_of_the_call_and_the_last_answer_counts(kind: Kind) {
    let scene = Scene::new().await;
    let host = replying(&scene, kind, "replying").ready().await;
    let inbox = inbox(&scene.server.url(), kind);
    let whole = ask(&inbox, "answer-of:65536").await;
    assert_eq!(whole.value.as_ref().map(|value| value.len()), Some(65536));
    let large = ask(&inbox, "answer-of:65537").await;
    assert_eq!(given_up(&large), (Status::DeadLettered, "dropped"));
    let detail = large.detail.as_deref().unwrap();
    assert!(
        detail.starts_with("the reply has 65537 bytes, 65536 are allowed"),
        "{detail}"
    );
    let twice = ask(&inbox, "answer:one+answer:two").await;
    assert_eq!(value(&twice), Some("two"));
    host.drained().await;
}

/// At each step: before and behind the script that settles, and behind the verdict.
async fn a_host_that_dies_at_any_step_answers_once(kind: Kind) {
    for step in ["Verdict", "Settle-before", "Settle-after"] {
        let scene = Scene::new().await;
        let options = replying(&scene, kind, "replying").flag("concurrency", "2");
        let ids: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
        for id in &ids {
            publish_to(&scene.raw, kind, "mine", id, &format!("answer:{id}")).await;
        }
        let dying = options
            .clone()
            .variable("TEST_ABORT_AT", &format!("{step}:3"));
        let ended = dying.start().ended().await;
        assert!(ended.signal().is_some(), "{step}: {ended:?}");
        let host = options.ready().await;
        eventually("each is answered", async || {
            answers(&scene.raw, "mine").await.len() >= ids.len()
        })
        .await;
        host.drained().await;
        let mut found = answers(&scene.raw, "mine").await;
        found.sort();
        let mut expected: Vec<_> = ids
            .iter()
            .map(|id| (id.clone(), "acked".to_owned(), Some(id.clone())))
            .collect();
        expected.sort();
        assert_eq!(found, expected, "{step}");
    }
}

async fn a_lost_answer_of_the_script_answers_once(kind: Kind) {
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    let options = at(&proxy.url(), kind, "replying").flags("max-deliveries=2");
    let host = options.directory(scene.server.dir()).ready().await;
    for (id, body, status, reply) in [
        ("one", "answer:1", "acked", Some("1")),
        ("two", "drop:no", "dead-lettered", None),
    ] {
        let before = proxy.replies_cut();
        // The request names the inbox: no other one does.
        proxy.cut_reply(format!("{{orders}}:replies:{id}"), 0);
        publish_to(&scene.raw, kind, id, id, body).await;
        eventually("the answer is lost", async || proxy.replies_cut() > before).await;
        proxy.disarm();
        eventually("it is settled", async || {
            host.metric(&format!("hostler_replies_total{{status=\"{status}\"}}")) == 1
                || host.metric("hostler_gone_total") > 0
        })
        .await;
        let expected = (id.to_owned(), status.to_owned(), reply.map(str::to_owned));
        assert_eq!(answers(&scene.raw, id).await, [expected]);
    }
    host.drained().await;
}

/// A message goes, and its answer is smaller. A reply waits for memory, with its message.
async fn a_full_server_is_drained_and_keeps_replies(kind: Kind) {
    let scene = Scene::new().await;
    let host = replying(&scene, kind, "replying").ready().await;
    publish_to(&scene.raw, kind, "mine", "one", "sleep:3000+ack").await;
    host.starts(1).await;
    scene.out_of_memory(true).await;
    eventually("it is answered", async || {
        answers(&scene.raw, "mine").await.len() == 1
    })
    .await;
    scene.out_of_memory(false).await;
    publish_to(&scene.raw, kind, "mine", "two", "sleep:3000+answer:paid").await;
    host.starts(2).await;
    scene.out_of_memory(true).await;
    eventually("it is refused", async || {
        host.metric("hostler_settlements_refused_total") >= 2
    })
    .await;
    assert_eq!(answers(&scene.raw, "mine").await.len(), 1);
    scene.out_of_memory(false).await;
    eventually("it is answered as well", async || {
        answers(&scene.raw, "mine").await.len() == 2
    })
    .await;
    let found = answers(&scene.raw, "mine").await;
    assert_eq!(found[1].2.as_deref(), Some("paid"));
    let ended = host.drained().await;
    assert_eq!(ended.json()["attempts"], 2);
}

#[tokio::test]
async fn an_answer_is_part_of_the_acknowledgement_with_its_effects() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "holding-publisher")
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .ready()
        .await;
    let inbox = inbox(&scene.server.url(), Kind::Stream);
    let both = ask(&inbox, "publish:invoices:1+answer:paid").await;
    assert_eq!((both.status, value(&both)), (Status::Acked, Some("paid")));
    assert_eq!(scene.raw.number("XLEN invoices").await, 1);
    let neither = ask(&inbox, "publish:invoices:2+answer:paid+drop:no").await;
    assert_eq!(given_up(&neither), (Status::DeadLettered, "dropped"));
    assert_eq!(scene.raw.number("XLEN invoices").await, 1);
    // A reply is an effect: it excludes a hold.
    let held = ask(&inbox, "hold:100+answer:x").await;
    let detail = held.detail.as_deref().unwrap();
    assert!(
        detail.starts_with("the attempt holds its message"),
        "{detail}"
    );
    let answered = ask(&inbox, "answer:x+hold:100").await;
    let detail = answered.detail.as_deref().unwrap();
    assert!(
        detail.starts_with("the attempt has published, answered"),
        "{detail}"
    );
    host.drained().await;
}

#[tokio::test]
async fn a_batch_answers_to_the_producers_that_it_names() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "acting-batch")
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flags("batch-size=16 max-deliveries=2")
        .ready()
        .await;
    let inbox = inbox(&scene.server.url(), Kind::Stream);
    let bodies = ["answer:a", "ack", "answer:b", "answer-at:9:c", "nack"];
    let all = join_all(bodies.map(|body| ask(&inbox, body))).await;
    assert_eq!(value(&all[0]), Some("a"));
    assert_eq!((all[1].status, value(&all[1])), (Status::Acked, None));
    assert_eq!(value(&all[2]), Some("b"));
    assert!(
        all[3]
            .detail
            .as_deref()
            .unwrap()
            .contains("none has the index 9")
    );
    assert_eq!(given_up(&all[4]), (Status::DeadLettered, "max-deliveries"));
    host.drained().await;
}

#[tokio::test]
async fn what_is_discarded_or_handled_before_answers() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "replying")
        .without("dead-letter")
        .flags("max-deliveries=1 on-cap=discard dedup-window=1h")
        .ready()
        .await;
    let first = inbox(&scene.server.url(), Kind::Stream);
    let dropped = ask(&first, "drop:no").await;
    assert_eq!(given_up(&dropped), (Status::Discarded, "dropped"));
    let failed = ask(&first, "nack").await;
    assert_eq!(given_up(&failed), (Status::Discarded, "max-deliveries"));
    let message = Outgoing::new("answer:once").header("x-message-id", "order-1");
    let once = first.ask(&message, PATIENCE).await.unwrap();
    assert_eq!(value(&once), Some("once"));
    let again = inbox(&scene.server.url(), Kind::Stream);
    let again = again.ask(&message, PATIENCE).await.unwrap();
    assert_eq!((again.status, value(&again)), (Status::Duplicate, None));
    host.drained().await;
}

#[tokio::test]
async fn a_policy_that_discards_answers() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "replying").ready().await;
    let inbox = inbox(&scene.server.url(), Kind::Stream);
    let kept = ask(&inbox, "drop:no").await;
    assert_eq!(given_up(&kept), (Status::DeadLettered, "dropped"));
    let url = scene.server.url();
    let route = "dead_letter.routes=dropped=discard";
    run_line(&format!("policy set --redis {url} --queue orders {route}")).ok();
    eventually("the policy is in force", async || {
        let answer = ask(&inbox, "drop:no").await;
        assert_eq!(answer.reason.as_deref(), Some("dropped"));
        answer.status == Status::Discarded
    })
    .await;
    host.drained().await;
}

#[tokio::test]
async fn a_producer_that_waits_on_the_command_line_reads_that_it_was_cancelled() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "replying").ready().await;
    let url = scene.server.url();
    let line = format!("publish --redis {url} --stream orders --wait 100s --body sleep:50000");
    let line = format!("{line} --header x-message-id=order-1");
    let waiting = tokio::task::spawn_blocking(move || run_line(&line));
    host.starts(1).await;
    run_line(&format!("cancel --redis {url} --queue orders order-1")).ok();
    let waited = waiting.await.unwrap();
    assert_eq!((waited.code, &*waited.stdout), (12, ""), "{waited:?}");
    let said = "order-1 is cancelled: cancelled by an operator";
    assert!(waited.stderr.contains(said), "{waited:?}");
    let series = "hostler_replies_total{status=\"cancelled\"}";
    eventually("the host counts it", async || host.metric(series) == 1).await;
    host.drained().await;
}

#[tokio::test]
async fn the_stdout_of_a_program_is_its_reply() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "replying")
        .flag("handler", &guest_module("program").display().to_string())
        .flag("program-stdout", "reply")
        .ready()
        .await;
    let inbox = inbox(&scene.server.url(), Kind::Stream);
    let said = ask(&inbox, "out:paid").await;
    let text = value(&said).unwrap_or_default();
    assert!(text.contains("paid"), "{said:?}");
    host.drained().await;
}

/// Nothing but its own keys: no script settles it, and nothing is written about it.
#[tokio::test]
async fn a_message_without_a_waiting_producer_costs_nothing_more() {
    let mut scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "replying").ready().await;
    scene.publish_all("ack", 50).await;
    scene.emptied().await;
    host.drained().await;
    for left in [
        "KEYS {orders}:replies:*",
        "KEYS {orders}:acted:*",
        "KEYS {orders}:written:*",
    ] {
        let keys: Vec<String> = redis::from_redis_value(scene.raw.ask(left).await).unwrap();
        assert_eq!(keys, [] as [&str; 0]);
    }
    // A reply that no producer waits for is kept by the id, for its time.
    let id = scene.publish("answer:kept").await;
    let host = replying(&scene, Kind::Stream, "replying")
        .flag("reply-keep", "2s")
        .until_empty()
        .finish()
        .await;
    assert_eq!(host.json()["acked"], 1);
    let inbox = format!("workers:{id}");
    let kept = answers(&scene.raw, &inbox).await;
    assert_eq!(kept, [(id, "acked".to_owned(), Some("kept".to_owned()))]);
    eventually("its time is over", async || {
        inboxes(&scene.raw).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn queues_at_most_once_refuse_by_name() {
    let scene = Scene::new().await;
    let refused = |to: Destination| Inbox::new(&scene.connector(), to, None).unwrap_err();
    for to in [
        List::new("orders").into(),
        hostler::publish::Channel::new("news").into(),
    ] {
        assert!(matches!(refused(to), WaitError::NoAnswers(_)));
    }
    let ended = replying(&scene, Kind::List, "replying")
        .without("reliable")
        .without("dead-letter")
        .without("min-idle")
        .without("reply-keep")
        .without("backoff-first")
        .end()
        .await;
    let text = ended.stderr();
    assert!(
        text.contains("hostler:handler/reply") && text.contains("at most once"),
        "{text}"
    );
}

#[tokio::test]
async fn publish_waits_and_its_exit_code_says_what_became_of_the_message() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "replying")
        .flags("max-deliveries=1")
        .ready()
        .await;
    let url = scene.server.url();
    let publish = |body: &str| {
        run_line(&format!(
            "publish --redis {url} --stream orders --body {body} --wait 100s"
        ))
    };
    let paid = publish("answer:paid");
    assert_eq!((paid.code, &*paid.stdout), (0, "paid\n"), "{paid:?}");
    let silent = publish("ack");
    assert_eq!((silent.code, &*silent.stdout), (0, ""), "{silent:?}");
    let dropped = publish("drop:no");
    assert_eq!((dropped.code, &*dropped.stdout), (11, ""), "{dropped:?}");
    assert!(
        dropped.stderr.contains("dead-lettered: dropped: no"),
        "{dropped:?}"
    );
    assert_eq!(publish("nack").code, 12);
    let json = run_line(&format!(
        "publish --redis {url} --stream orders --body answer:9 --wait 100s --group workers --json"
    ));
    let json = json.json();
    assert_eq!(
        (&json["status"], &json["value"]),
        (&"acked".into(), &"9".into())
    );
    // Another group never answers.
    let other = run_line(&format!(
        "publish --redis {url} --stream orders --body ack --wait 1s --group others"
    ));
    assert_eq!(other.code, 75, "{other:?}");
    let list = run_line(&format!(
        "publish --redis {url} --list jobs --body ack --wait 1s"
    ));
    assert_eq!(list.code, 64, "{list:?}");
    assert_eq!(scene.raw.number("EXISTS jobs").await, 0);
    host.drained().await;
    let traced = run_line(&format!(
        "publish --redis {url} --stream orders --body answer:9 --wait 300ms"
    ));
    assert_eq!(traced.code, 75, "{traced:?}");
}

#[tokio::test]
async fn trace_shows_who_waits_and_what_is_kept() {
    let scene = Scene::new().await;
    let host = replying(&scene, Kind::Stream, "replying").ready().await;
    publish_to(&scene.raw, Kind::Stream, "web-1", "order-1", "answer:paid").await;
    eventually("it is answered", async || {
        answers(&scene.raw, "web-1").await.len() == 1
    })
    .await;
    let url = scene.server.url();
    let traced = run_line(&format!("trace --redis {url} order-1 --json")).json();
    let found = &traced["found"][0];
    assert_eq!(found["inbox"], "web-1", "{traced}");
    assert_eq!(found["answers"][0]["status"], "acked", "{traced}");
    assert_eq!(found["answers"][0]["bytes"], 4, "{traced}");
    let text = run_line(&format!("trace --redis {url} order-1"))
        .ok()
        .stdout;
    assert!(text.contains("with a reply of 4 bytes"), "{text}");
    host.drained().await;
}

/// How many producers wait: `HOSTLER_WAITERS=10000` is the long show.
fn waiters(short: usize) -> usize {
    let given = std::env::var("HOSTLER_WAITERS").ok();
    given.map_or(short, |text| text.parse().unwrap())
}

/// What the handler does with message `n`, and whether this is the answer.
fn body(n: usize) -> String {
    match n % 10 {
        8 => "drop:no".to_owned(),
        9 => "nack,ack".to_owned(),
        _ => format!("answer:{n}"),
    }
}

fn is_answer(n: usize, answer: &Answer) {
    match n % 10 {
        8 => assert_eq!(given_up(answer), (Status::DeadLettered, "dropped")),
        9 => assert_eq!((answer.status, value(answer)), (Status::Acked, None)),
        _ => assert_eq!(value(answer), Some(&*n.to_string())),
    }
}

/// Ask for `count` messages at a time, while hosts die: each has its answer.
async fn ask_while_hosts_die(inbox: &Inbox, options: &HostOptions, count: usize, kills: usize) {
    let killing = async {
        let mut host = options.ready().await;
        for _ in 0..kills {
            host.starts(count / (2 * kills)).await;
            host.kill().await;
            host = options.ready().await;
        }
        host
    };
    let asking =
        (0..count).map(|n| async move { inbox.ask(&Outgoing::new(body(n)), 3 * PATIENCE).await });
    let (host, all): (Host, _) = tokio::join!(killing, join_all(asking));
    for (n, answer) in all.iter().enumerate() {
        is_answer(n, answer.as_ref().unwrap());
    }
    host.drained().await;
}

async fn no_inbox_is_left(raw: &RawRedis) {
    eventually("no key of answers is left", async || {
        inboxes(raw).await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_producers_wait_and_each_gets_its_answer_whichever_host_dies() {
    let scene = Scene::new().await;
    let inbox = inbox(&scene.server.url(), Kind::Stream);
    let options = replying(&scene, Kind::Stream, "replying").flag("reply-keep", "2s");
    let count = waiters(300);
    ask_while_hosts_die(&inbox, &options, count, 2.max(count / 2_500)).await;
    no_inbox_is_left(&scene.raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_through_a_cluster() {
    let cluster = Cluster::start(3, 0).await;
    let options = at(&cluster.url(), Kind::Stream, "replying")
        // In another slot: the copy comes first, then the answer with the removal.
        .flags("dead-letter=graveyard reply-keep=2s");
    let inbox = inbox(&cluster.url(), Kind::Stream);
    ask_while_hosts_die(&inbox, &options, 60, 1).await;
    no_inbox_is_left(&cluster.at("orders").await).await;
}

/// An answer that a failed primary took along comes again: its settlement is lost, too. Hosts die before and behind it.
#[tokio::test(flavor = "multi_thread")]
async fn answers_come_through_a_failover() {
    let mut watched = Watched::start().await;
    let options = at(&watched.url(), Kind::Stream, "replying")
        .flags("durability=replica reply-keep=2s concurrency=4 wait-redis=60s");
    let count = waiters(200);
    // A replica has what is published.
    let connector = connector(&watched.url()).durable(true);
    let inbox = Inbox::new(&connector, orders(Kind::Stream), None).unwrap();
    // No host is done with all of them before it dies.
    let asked = |n| Outgoing::new(format!("sleep:20+{}", body(n)));
    let sending = (0..count).map(async |n| inbox.send(&asked(n)).await.unwrap());
    let sent = join_all(sending).await;
    let waiting = join_all(sent.into_iter().map(|sent| sent.answer(3 * PATIENCE)));
    let failing = async {
        let mut host = options.ready().await;
        for step in ["a host dies", "the primary fails", "a host dies"] {
            host.starts(count / 6).await;
            match step {
                "a host dies" => {
                    host.kill().await;
                    host = options.ready().await;
                }
                _ => {
                    let old = watched.primary().await;
                    watched.servers[old].kill();
                    watched.replaced(old).await;
                    // Settlements wait for a replica, too.
                    watched.servers[old].restart();
                }
            }
        }
        host
    };
    let (host, all): (Host, _) = tokio::join!(failing, waiting);
    let mut late = 0;
    for (n, answer) in all.into_iter().enumerate() {
        match answer {
            Ok(answer) => is_answer(n, &answer),
            Err(WaitError::TimedOut { .. }) => late += 1,
            Err(error) => panic!("{n}: {error}"),
        }
    }
    println!("{count} waited, {late} of them without an answer in time");
    assert_eq!(late, 0);
    host.drained().await;
    let primary = watched.primary().await;
    no_inbox_is_left(&watched.servers[primary].raw().await).await;
}
