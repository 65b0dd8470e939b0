//! Held messages, end to end: they come again uncharged, whatever dies meanwhile, and as often as the operator allows.

use hostler_tests::command::run;
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use hostler_tests::web::Web;
use hostler_tests::witness::Witness;

use crate::grants::outbound_scene::{rule, url};
use crate::runtime::e2e_scene::Scene;

const HELD: &str = "EXISTS {orders}:held:workers";

fn holding(scene: &Scene, name: &str) -> HostOptions {
    scene
        .host()
        .flag("handler", &guest(name).display().to_string())
        .flags("backoff-first=5ms min-idle=3s timeout=60s")
        .admin()
}

#[tokio::test]
async fn hold_101_is_charged() {
    let mut scene = Scene::new().await;
    let id = scene.publish("hold:1+nack,ack").await;
    let host = holding(&scene, "holding").cap(2).ready().await;
    let look = scene.emptied().await;
    assert_eq!(look.dead, [], "{look:?}");
    let mut expected = vec![1; 101];
    expected.push(2);
    host.starts(102).await;
    assert_eq!(host.witness().attempts(&id), expected);
    assert_eq!(host.metric("hostler_holds_total"), 100);
    assert_eq!(host.metric("hostler_holds_refused_total"), 1);
    // Canaries and the breaker look at the charged one only.
    let series = "hostler_version_attempts_total{version=\"current\",outcome=\"nack-requeue\"}";
    assert_eq!(host.metric(series), 1);
    let told = |line: &&hostler_tests::host::Line| {
        line.message() == "the message is not held: its attempt is charged"
            && line
                .text("reason")
                .is_some_and(|why| why.contains("`hold.max`"))
    };
    assert_eq!(scene.raw.number(HELD).await, 0);
    assert_eq!(host.drained().await.count(told), 1);
}

/// With a cap of 1 the first attempt is the last one.
#[tokio::test]
async fn a_message_with_one_start_left_is_held_as_often_as_others() {
    let mut scene = Scene::new().await;
    let host = holding(&scene, "holding")
        .cap(1)
        .flag("hold-max-age", "1h")
        .ready()
        .await;
    let id = scene.publish("wait:4000:100").await;
    let late = scene.publish("wait:4000:100+drop").await;
    let look = scene.emptied().await;
    assert_eq!(look.dead_letters_of(&id).len(), 0);
    assert_eq!(
        look.dead_letters_of(&late)[0].header("x-dead-letter-attempts"),
        Some("1")
    );
    assert_eq!(scene.raw.number(HELD).await, 0);
    let witness = host.drained().await.witness();
    for id in [&id, &late] {
        assert!(witness.starts(id) >= 3, "{:?}", witness.attempts(id));
        assert!(witness.attempts(id).iter().all(|attempt| *attempt == 1));
    }
}

#[tokio::test]
async fn a_host_that_dies_in_a_held_attempt_charges_it() {
    let mut scene = Scene::new().await;
    let options = holding(&scene, "holding").cap(2);
    let first = options.ready().await;
    let id = scene.publish("wait:5000:100+sleep:50000,ack").await;
    eventually("it was held, and is too old for another hold", async || {
        let now: (u64, u64) = redis::from_redis_value(scene.raw.ask("TIME").await).unwrap();
        let published: u64 = id.split('-').next().unwrap().parse().unwrap();
        let held = first.metric("hostler_holds_total");
        held >= 1
            && now.0 * 1000 > published + 6_000
            && first.witness().starts(&id) as u64 == held + 1
    })
    .await;
    let killed = first.kill().await;
    let second = options.ready().await;
    let look = scene.emptied().await;
    assert_eq!(look.dead, [], "{look:?}");
    assert!(
        killed
            .witness()
            .attempts(&id)
            .iter()
            .all(|attempt| *attempt == 1)
    );
    assert_eq!(scene.raw.number(HELD).await, 0);
    assert_eq!(second.drained().await.witness().attempts(&id), [2]);
}

/// A destination that is away for longer than all attempts would last: nothing dies of it, but with its host.
#[tokio::test]
async fn many_held_messages_outlive_their_hosts() {
    let mut scene = Scene::new().await;
    // Each host holds all of them twice, long before they are too old for that.
    let ids = scene.publish_all("wait:20000:2000", 300).await;
    let options = holding(&scene, "holding").cap(5);
    let mut ended = Vec::new();
    for _ in 0..2 {
        let host = options.ready().await;
        eventually("many are held", async || {
            host.metric("hostler_holds_total") > 300
        })
        .await;
        ended.push(host.kill().await);
    }
    let host = options.ready().await;
    scene.emptied().await;
    ended.push(host.drained().await);
    let look = scene.look().await;
    assert_eq!(look.dead, [], "{look:?}");
    let witness = Witness::of_all(&ended);
    assert!(witness.total() > 600, "{}", witness.total());
    for id in &ids {
        let attempts = witness.attempts(id);
        // Each kill charges one attempt at most.
        assert!(attempts.iter().all(|attempt| *attempt <= 3), "{attempts:?}");
    }
    assert_eq!(scene.raw.number(HELD).await, 0);
}

/// A server that is away for longer than three attempts would last, and hosts that die. With `HOSTLER_EXACTLY_ONCE`: 1,000
/// messages and 60 seconds.
#[tokio::test]
async fn a_server_that_is_away_charges_attempts_of_hosts_that_died_only() {
    const KILLS: u32 = 2;
    let is_large = std::env::var_os("HOSTLER_EXACTLY_ONCE").is_some();
    let (messages, rounds, hold) = if is_large {
        (1_000, 14, 2_000)
    } else {
        (100, 2, 200)
    };
    let (mut scene, web) = (Scene::new().await, Web::start().await);
    web.away(true);
    let config = scene.server.dir().join("orders.toml");
    std::fs::write(&config, rule(&web, "journal = true\n")).unwrap();
    let poll = format!("poll:{hold}|{}", url(&web, "/gate"));
    let ids = scene.publish_all(&poll, messages).await;
    let options = holding(&scene, "polling")
        .cap(KILLS + 1)
        .flag("config", &config.display().to_string())
        .flag("grant-journal", "{}");
    let mut ended = Vec::new();
    for _ in 0..KILLS {
        let host = options.ready().await;
        eventually("each message was held some times", async || {
            host.metric("hostler_holds_total") >= u64::from(rounds * messages as u32)
        })
        .await;
        ended.push(host.kill().await);
    }
    let host = options.ready().await;
    eventually("they are held again", async || {
        host.metric("hostler_holds_total") >= messages as u64
    })
    .await;
    web.away(false);
    scene.emptied().await;
    ended.push(host.drained().await);
    let look = scene.look().await;
    assert_eq!(look.dead, [], "{look:?}");
    for id in &ids {
        let mut charged = 1;
        for host in &ended {
            let witness = host.witness();
            let attempts = witness.attempts(id);
            // A host charges no hold. One that dies charges at most the attempt that it was in.
            assert!(
                attempts.iter().all(|attempt| *attempt == attempts[0]),
                "{attempts:?}"
            );
            let first = attempts.first().copied().unwrap_or(charged);
            assert!(
                first == charged || first == charged + 1,
                "{attempts:?} after {charged}"
            );
            charged = first;
        }
    }
    let left = scene.raw.ask("KEYS {orders}:*").await;
    let left: Vec<String> = redis::from_redis_value(left).unwrap();
    let of_messages = |key: &&String| key.contains(":journal") || key.contains(":held");
    assert_eq!(left.iter().find(of_messages), None, "{left:?}");
}

#[tokio::test]
async fn holds_and_effects_exclude_each_other() {
    let mut scene = Scene::new().await;
    let published = scene.publish("publish:invoices:x+hold:100").await;
    let held = scene.publish("hold:100+publish:invoices:x").await;
    // On a queue with effects each acknowledgement is a settlement.
    let later = scene.publish("try:hold:100+nack,ack").await;
    let host = holding(&scene, "holding-publisher")
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag("hold-max", "2")
        .cap(3)
        .ready()
        .await;
    let look = scene.emptied().await;
    let detail = |id: &str| {
        let dead = look.dead_letters_of(id)[0];
        dead.header("x-dead-letter-detail").unwrap().to_owned()
    };
    assert!(
        detail(&published).starts_with("the attempt has published"),
        "{look:?}"
    );
    assert!(
        detail(&held).starts_with("the attempt holds its message"),
        "{look:?}"
    );
    assert_eq!(scene.raw.number("EXISTS invoices").await, 0);
    assert_eq!(scene.raw.number(HELD).await, 0);
    let witness = host.drained().await.witness();
    assert_eq!(witness.attempts(&later), [1, 1, 1, 2]);
}

#[tokio::test]
async fn a_batch_holds_the_messages_that_it_names() {
    let mut scene = Scene::new().await;
    let held = scene.publish("hold:100+nack,ack").await;
    let wrong = scene.publish("hold-at:9:100").await;
    let others = scene.publish_all("ack", 3).await;
    let host = holding(&scene, "acting-batch")
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flags("batch-size=16 hold-max=2")
        .cap(2)
        .ready()
        .await;
    let look = scene.emptied().await;
    let witness = host.drained().await.witness();
    // An error of the call is the reason of a drop.
    assert_eq!(witness.attempts(&held), [1, 1, 1]);
    for id in &others {
        assert_eq!(witness.attempts(id), [1]);
    }
    for (id, why) in [(&wrong, "none has the index 9"), (&held, "held 2 times")] {
        let detail = look.dead_letters_of(id)[0].header("x-dead-letter-detail");
        assert!(detail.unwrap().contains(why), "{detail:?}");
    }
    assert_eq!(look.dead.len(), 2);
}

#[tokio::test]
async fn a_program_holds_by_an_exit_code() {
    let mut scene = Scene::new().await;
    let id = scene.publish("exit:9,ack").await;
    let program = hostler_tests::guests::guest_module("program");
    let host = holding(&scene, "holding")
        .flag("handler", &program.display().to_string())
        .flag("program-exit-codes", r#"{"9":"hold 100ms"}"#)
        .flag("hold-max", "2")
        .cap(2)
        .ready()
        .await;
    let look = scene.emptied().await;
    assert_eq!(look.dead, [], "{look:?}");
    assert_eq!(host.metric("hostler_holds_total"), 2);
    let witness = host.drained().await.witness();
    assert_eq!(witness.attempts(&id), [1, 1, 1, 2]);
}

#[tokio::test]
async fn a_reliable_list_holds_messages_and_its_attempts_survive_their_hosts() {
    let scene = Scene::new().await;
    let options = holding(&scene, "holding")
        .without("stream")
        .without("group")
        .flags("list=jobs reliable=true hold-max=3")
        .cap(2);
    scene.raw.ask("LPUSH jobs hold:100+nack,ack").await;
    let host = options.ready().await;
    let settled = async || {
        let held = scene.raw.ask("KEYS {jobs}:processing:*").await;
        let held: Vec<String> = redis::from_redis_value(held).unwrap();
        host.count(|line| line.start().is_some()) == 5 && held.is_empty()
    };
    eventually("it is settled", settled).await;
    let ended = host.drained().await;
    assert_eq!(ended.json()["acked"], 1);
    let starts: Vec<u32> = ended
        .log
        .iter()
        .filter_map(|line| line.start())
        .map(|(_, n)| n)
        .collect();
    assert_eq!(starts, [1, 1, 1, 1, 2]);
    // It dies in an attempt that was held before.
    scene
        .raw
        .ask("LPUSH jobs hold:100+nack,sleep:50000,ack")
        .await;
    let options = options.flag("hold-max", "1").cap(3);
    let first = options.ready().await;
    eventually("its second attempt runs", async || {
        first
            .log()
            .iter()
            .filter_map(|line| line.start())
            .any(|(_, n)| n == 2)
    })
    .await;
    first.kill().await;
    let second = options.until_empty().finish().await;
    let starts: Vec<u32> = second
        .log
        .iter()
        .filter_map(|line| line.start())
        .map(|(_, n)| n)
        .collect();
    assert_eq!(starts, [3]);
    assert_eq!(second.json()["acked"], 1);
}

#[tokio::test]
async fn a_queue_that_takes_nothing_back_refuses_a_handler_that_holds() {
    let scene = Scene::new().await;
    let (url, handler) = (scene.server.url(), guest("holding").display().to_string());
    for (kind, name) in [("--list", "jobs"), ("--channel", "news")] {
        let ended = run(["run", "--redis", &url, "--handler", &handler, kind, name]);
        assert_eq!(ended.code, 65, "{ended:?}");
        let said = ended.stderr;
        let names_it = said.contains("hostler:handler/flow");
        assert!(names_it && said.contains("at most once"), "{said}");
    }
}

#[tokio::test]
async fn held_messages_are_shown() {
    let mut scene = Scene::new().await;
    let host = holding(&scene, "holding").cap(3).ready().await;
    let id = scene.publish("hold:600000+nack").await;
    eventually("it is held", async || {
        host.metric("hostler_holds_total") == 1
    })
    .await;
    let url = scene.server.url();
    let stream = ["--redis", &url, "--stream", "orders", "--group", "workers"];
    let inspected = run(["inspect", "--json"].iter().chain(&stream)).ok().json();
    assert_eq!(inspected["on_hold"], 1);
    assert_eq!(inspected["delayed"], 1);
    let text = run(["inspect"].iter().chain(&stream)).ok().stdout;
    assert!(text.contains("1, uncharged"), "{text}");
    eventually("the queue is listed", async || {
        run(["trace", &id, "--redis", &url]).code == 0
    })
    .await;
    let traced = run(["trace", &id, "--json", "--redis", &url]).ok().json();
    let found = &traced["found"][0];
    assert_eq!(
        (&found["holds"], &found["attempts"]),
        (&1.into(), &0.into())
    );
    assert!(found["held_since_ms"].as_u64() > Some(0));
    assert!(found["due_ms"].as_u64() > found["held_since_ms"].as_u64());
    let text = run(["trace", &id, "--redis", &url]).ok().stdout;
    assert!(
        text.contains("was held by its handler 1 time since"),
        "{text}"
    );
    host.drained().await;
}
