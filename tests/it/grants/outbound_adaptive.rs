//! Rules with `adaptive`: the requests in flight follow what a server can take, and a server that is away charges no message.

use std::time::{Duration, Instant};

use hostler::delivery::outcome::Outcome;
use hostler_tests::command::run;
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use hostler_tests::web::{PLACES, Web};

use crate::grants::outbound_scene::{rig, rule, url};
use crate::runtime::e2e_scene::Scene;

/// A host of the guest `outbound` with an adaptive rule for this server.
fn adaptive(scene: &Scene, web: &Web, more: &str) -> HostOptions {
    let config = scene.server.dir().join("orders.toml");
    let rule = rule(web, &format!("adaptive = true\n{more}"));
    let secret = "[grant.secret]\nneeded = { variable = \"NEEDED\", expose = true }\n";
    std::fs::write(&config, rule + secret).unwrap();
    scene
        .host()
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .variable("NEEDED", "needed")
        .admin()
}

#[tokio::test]
async fn a_server_that_is_away_gets_no_requests_and_the_message_is_held() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, "adaptive = true\n"));
    let need = format!("need:GET|{}", url(&web, "/status/503"));
    for number in 1..=5 {
        let report = rig.run(&need).await;
        assert_eq!(report.outcome, Outcome::NackRequeue(None));
        // The one that closes it is held, too.
        assert_eq!(report.hold.is_some(), number == 5, "{number}: {report:?}");
    }
    for (body, outcome) in [
        (need.clone(), Outcome::NackRequeue(None)),
        // A language that ends a handler with the error of its call.
        (
            format!("send:GET|{}+trap", url(&web, "/ok")),
            Outcome::NackRequeue(None),
        ),
    ] {
        let report = rig.run(&body).await;
        assert_eq!(report.outcome, outcome, "{report:?}");
        assert!(matches!(report.hold, Some(Ok(_))), "{report:?}");
    }
    let said = rig.reason(&format!("fetch:GET|{}", url(&web, "/ok"))).await;
    assert!(
        said.contains("Connect") && said.contains("closed: `api.test"),
        "{said}"
    );
    let authority = format!("api.test:{}", web.port());
    let standard = format!("wasi:GET|http|{authority}|/ok");
    let said = rig.reason(&standard).await;
    assert!(said.contains("DestinationUnavailable"), "{said}");
    assert_eq!(web.requests(), 5);
    // Whoever needs no other answer is not held.
    let report = rig.run(&format!("send:GET|{}", url(&web, "/ok"))).await;
    assert_eq!((report.outcome, report.hold), (Outcome::Ack, None));
    // A request tries it again, and it is open.
    eventually("it is open", async || {
        let fetch = format!("fetch:GET|{}", url(&web, "/ok"));
        rig.reason(&fetch).await == "200 ok"
    })
    .await;
    // No other rule is concerned, and no server that asks for it by name is tried early.
    web.away(true);
    rig.run(&format!("send:GET|{}", url(&web, "/pause/3600")))
        .await;
    let report = rig.run(&need).await;
    let hold = report.hold.unwrap().unwrap();
    assert!(hold > Duration::from_secs(3590), "{hold:?}");
}

#[tokio::test]
async fn a_trap_without_a_refused_request_is_a_fault() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, "adaptive = true\n"));
    let report = rig
        .run(&format!("send:GET|{}+trap", url(&web, "/status/503")))
        .await;
    assert!(matches!(report.outcome, Outcome::Fault(_)), "{report:?}");
}

#[tokio::test]
async fn what_is_closed_is_shown_and_charges_nothing() {
    let (mut scene, web) = (Scene::new().await, Web::start().await);
    web.away(true);
    let host = adaptive(&scene, &web, "journal = true\n")
        .flag("max-deliveries", "6")
        .flag("dead-letter", "orders:dead")
        .flags("backoff-first=5ms concurrency=2")
        .ready()
        .await;
    let need = format!("need:POST|{}", url(&web, "/gate"));
    let ids = scene.publish_all(&need, 20).await;
    eventually("all are held", async || {
        host.metric("hostler_holds_total") >= 20
    })
    .await;
    let closed = host.metrics();
    let closed = hostler_tests::host::without_queue(&closed);
    for series in [
        "hostler_http_closed{rule=\"api.test\"} 1",
        "hostler_http_requests_total{rule=\"api.test\",end=\"closed\"}",
    ] {
        assert!(closed.contains(series), "{series}: {closed}");
    }
    let (status, ready) = host.get("/ready");
    assert_eq!(status, 200, "{ready}");
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["closed"][0]["why"], "status 503", "{ready}");
    let redis = scene.server.url();
    let of = [
        "--redis", &redis, "--stream", "orders", "--group", "workers",
    ];
    eventually("`inspect` shows it", async || {
        let shown = run([&["inspect"], &of[..]].concat()).ok().stdout;
        shown.contains("is closed on 1 of 1 hosts")
    })
    .await;
    let queues = run(["queues", "--redis", &redis]).ok().stdout;
    assert!(queues.contains("status 503"), "{queues}");
    // Of refused requests nothing is written: they were not sent.
    let journals = scene.raw.ask("KEYS {orders}:journal*").await;
    let journals: Vec<String> = redis::from_redis_value(journals).unwrap();
    assert!(journals.len() < 15, "{journals:?}");
    web.away(false);
    let look = scene.emptied().await;
    assert_eq!(look.dead, [], "{look:?}");
    assert_eq!(host.metric("hostler_http_closed{rule=\"api.test\"}"), 0);
    let witness = host.drained().await.witness();
    for id in &ids {
        // The requests that closed it were sent.
        let most = witness.attempts(id).iter().max();
        assert!(most.is_some_and(|most| *most <= 5), "{most:?}");
    }
}

/// How long each part of the show takes.
struct Show {
    hosts: usize,
    steady: Duration,
    outage: Duration,
    /// For how long a place is taken.
    place_ms: u64,
    /// The least part of the places that is used, and the most of the requests that are answered 429.
    used: f64,
    refused: f64,
}

impl Show {
    /// A server with [`PLACES`] places, which is away for a time. Messages come as fast as they are handled.
    async fn run(&self) {
        const WAITING: usize = 300;
        const WITHIN: Duration = Duration::from_secs(10);
        let (mut scene, web) = (Scene::new().await, Web::start().await);
        let options = adaptive(&scene, &web, "")
            .flag("max-deliveries", "5")
            .flag("dead-letter", "orders:dead")
            .flags("concurrency=64 reuse=1000");
        let mut hosts = Vec::new();
        for _ in 0..self.hosts {
            hosts.push(options.ready().await);
        }
        let need = format!(
            "need:GET|{}",
            url(&web, &format!("/place/{}", self.place_ms))
        );
        let places = web.places();
        let mut published = 0;
        let mut feed_until = async |scene: &mut Scene, end: &mut dyn FnMut() -> bool| {
            while !end() {
                let missing = (places.served() + WAITING).saturating_sub(published);
                scene.publish_all(&need, missing).await;
                published += missing;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let per_second = PLACES as f64 * 1000.0 / self.place_ms as f64;
        // The window is found within the first calls.
        feed_until(&mut scene, &mut || places.served() >= 10 * PLACES).await;
        let (begin, before) = (Instant::now(), places.served());
        feed_until(&mut scene, &mut || begin.elapsed() >= self.steady).await;
        let took = begin.elapsed().as_secs_f64();
        let used = (places.served() - before) as f64 / took / per_second;
        web.away(true);
        let begin = Instant::now();
        feed_until(&mut scene, &mut || begin.elapsed() >= self.outage).await;
        let away = places.away();
        web.away(false);
        // A second in which it is as fast as before.
        let (begin, mut window) = (Instant::now(), (Instant::now(), places.served()));
        let mut is_fast = false;
        feed_until(&mut scene, &mut || {
            if window.0.elapsed() >= Duration::from_secs(1) {
                let rate = (places.served() - window.1) as f64 / window.0.elapsed().as_secs_f64();
                is_fast = rate >= 0.9 * used * per_second;
                window = (Instant::now(), places.served());
            }
            is_fast || begin.elapsed() >= WITHIN
        })
        .await;
        let recovered = begin.elapsed();
        let look = scene.emptied().await;
        let (served, refused) = (places.served(), places.refused());
        let holds = hosts.iter().map(|host| host.metric("hostler_holds_total"));
        println!(
            "{} hosts: used {used:.3}, 429 {refused} of {served}, away {away}, again after {recovered:?}, holds {}",
            self.hosts,
            holds.sum::<u64>()
        );
        assert_eq!(look.dead, [], "{look:?}");
        assert!(used >= self.used, "{used}");
        let share = refused as f64 / served as f64;
        assert!(share <= self.refused, "{refused} of {served}");
        assert!(is_fast, "{recovered:?}");
        // Until it was closed, and one after the other from then on.
        let tries = 4 * usize::try_from(self.outage.as_secs()).unwrap();
        let most = 2 * PLACES + self.hosts * tries;
        assert!(away <= most, "{away}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_few_places_is_used_and_an_outage_kills_nothing() {
    let show = Show {
        hosts: 1,
        steady: Duration::from_secs(4),
        outage: Duration::from_secs(3),
        place_ms: 200,
        // Of a machine that does other things as well: the long one is exact.
        used: 0.7,
        refused: 0.05,
    };
    show.run().await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_outage_of_a_minute() {
        let show = Show {
            hosts: 1,
            steady: Duration::from_secs(60),
            outage: Duration::from_secs(60),
            place_ms: 100,
            used: 0.9,
            refused: 0.02,
        };
        show.run().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn three_hosts_share_the_places() {
        let show = Show {
            hosts: 3,
            steady: Duration::from_secs(60),
            outage: Duration::from_secs(10),
            place_ms: 100,
            used: 0.9,
            refused: 0.02,
        };
        show.run().await;
    }
}
