//! Rules that change in a running host, on streams and on reliable lists, and the delay of a
//! change.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hostler_tests::command::{end, hostler, run};
use hostler_tests::host::Host;
use hostler_tests::redis::{RedisServer, eventually};
use serde_json::json;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::policies::policy_scene::{File, HELD, IGNORED, held};

on_both! {
    each_policy_rule_takes_effect_in_a_running_host
    a_bad_policy_is_refused_when_set_and_ignored_when_read
    inspect_shows_each_active_rule_and_its_source
    a_policy_takes_effect_at_the_next_poll_and_polls_are_frequent
}

/// All hosts must apply a policy within this time.
const SEEN_WITHIN: Duration = Duration::from_secs(2);

fn set(scene: &Scene, settings: &[&str]) {
    let url = scene.server.url();
    let words = ["policy", "set", "--redis", &url, "--queue", scene.key()];
    run(words.iter().chain(settings)).ok();
}

async fn each_policy_rule_takes_effect_in_a_running_host(kind: Kind) {
    let scene = Scene::new(kind).await;
    let options = scene.binary().without("dead-letter");
    let options = options.flags("concurrency=1 prefetch=1 timeout=60s");
    let host = options.ready().await;
    let died = async |key: &str, count: usize, reason: &str, attempts: &str| {
        eventually(&format!("{key} has {count}"), async || {
            scene.all(key).await.len() == count
        })
        .await;
        let last = scene.all(key).await.pop().unwrap();
        assert_eq!((last.reason(), last.attempts()), (reason, attempts));
    };
    set(&scene, &["dead_letter.key=first", "max_deliveries=2"]);
    held(&host, 1).await;
    scene.send("nack:5").await;
    died("first", 1, "max-deliveries", "2").await;
    set(&scene, &["dead_letter.routes=dropped=second"]);
    held(&host, 2).await;
    scene.send("drop").await;
    died("second", 1, "dropped", "1").await;
    set(&scene, &["on_fault=dead-letter", "dead_letter.max_len=7"]);
    held(&host, 3).await;
    scene.send("trap").await;
    died("first", 2, "trap", "1").await;

    // While one message runs, the others are unread.
    let before = host.witness().total();
    scene.send("sleep:10000").await;
    eventually("it runs", async || host.witness().total() > before).await;
    for _ in 0..40 {
        scene.send("ack").await;
    }
    set(&scene, &["queue.max_length=5"]);
    held(&host, 4).await;
    eventually("the oldest are evicted", async || {
        let dead = scene.all("first").await;
        dead.last().is_some_and(|dead| dead.reason() == "maxlen")
    })
    .await;

    // A message that starts in time, and whose retry is due too late.
    let rules = ["queue.ttl=1s", "dead_letter.routes=expired=third"];
    set(&scene, &rules);
    held(&host, 5).await;
    scene.send("nack:1200").await;
    eventually("it has expired", async || {
        let dead = scene.all("third").await;
        let this = dead.iter().find(|dead| dead.body == "nack:1200");
        this.is_some_and(|dead| dead.reason() == "expired")
    })
    .await;

    let rules = ["queue.ttl=1d", "backoff.first=1h", "backoff.max=2h"];
    set(&scene, &rules);
    held(&host, 6).await;
    scene.send("nack").await;
    let waits = match kind {
        Kind::Stream => "ZCARD {orders}:parked:workers",
        Kind::List => "ZCARD {jobs}:delayed",
    };
    eventually("it waits", async || scene.raw.number(waits).await == 1).await;
    host.drain().await.expect_code(0);
}

async fn a_bad_policy_is_refused_when_set_and_ignored_when_read(kind: Kind) {
    let scene = Scene::new(kind).await;
    let host = scene.binary().without("dead-letter").admin().ready().await;
    let own = format!("dead_letter.key={}", scene.dead_key());
    set(&scene, &[&own, "max_deliveries=2"]);
    held(&host, 1).await;
    // A queue of the other kind.
    match kind {
        Kind::Stream => scene.push("other", b"x").await,
        Kind::List => drop(scene.raw.ask("XADD other * a b").await),
    }
    let url = scene.server.url();
    let key = scene.key();
    for (bad, part) in [
        ("max_deliveries=0", "max_deliveries"),
        ("dead_letter.key=other", "`other`"),
        (&*format!("dead_letter.key={key}"), "the queue itself"),
    ] {
        let refused = run(["policy", "set", "--redis", &url, "--queue", key, bad]);
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.stderr.contains(part), "{refused:?}");
        // Another program writes the rule anyway.
        let ignored = host.count(|line| line.message().starts_with(IGNORED));
        let written = bad.replace('=', " ");
        for command in [
            format!("COPY {{{key}}}:policy kept REPLACE"),
            format!("HSET {{{key}}}:policy {written}"),
        ] {
            scene.raw.ask(&command).await;
        }
        host.logs_times(IGNORED, ignored + 1).await;
        let before = scene.dead().await.len();
        scene.send("nack:5").await;
        eventually("the old rules apply", async || {
            scene.dead().await.len() == before + 1
        })
        .await;
        let last = scene.dead().await.pop().unwrap();
        assert_eq!((last.reason(), last.attempts()), ("max-deliveries", "2"));
        let restore = format!("COPY kept {{{key}}}:policy REPLACE");
        scene.raw.ask(&restore).await;
        eventually("the rules are valid again", async || {
            let (_, status) = host.get("/status");
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            status["refused"].is_null()
        })
        .await;
    }
}

/// The sources are: flag, variable, file, policy of the queue, policy of a pattern, default.
async fn inspect_shows_each_active_rule_and_its_source(kind: Kind) {
    let scene = Scene::new(kind).await;
    let key = scene.key();
    if kind == Kind::Stream {
        let create = "XGROUP CREATE orders workers 0 MKSTREAM";
        scene.raw.ask(create).await;
    }
    for n in 0..3 {
        scene.put("elsewhere", n.to_string(), &[]).await;
    }
    let file = File::of("[backoff]\nfirst = \"1s\"\n");
    let path = file.path.to_str().unwrap();
    let dead_letter = "dead_letter.key=elsewhere";
    set(
        &scene,
        &["max_deliveries=4", dead_letter, "backoff.first=2s"],
    );
    let url = scene.server.url();
    let pattern = ["policy", "set", "--redis", &url, "--match", "*"];
    let rules = ["backoff.max=1m", "max_deliveries=9"];
    run(pattern.iter().chain(&rules)).ok();
    let inspect = scene.inspecting(&["--config", path]);
    let all = |more: &[&str]| {
        let more = more.iter().map(|word| (*word).to_owned());
        let mut command = hostler(inspect.iter().cloned().chain(more));
        end(command.env("HOSTLER_BACKOFF_FACTOR", "3")).ok()
    };
    let report = all(&["--json", "--max-length", "100"]).json();
    let rules = report["rules"].as_array().unwrap();
    for (setting, value, from) in [
        ("queue.max_length", json!("100"), "--max-length"),
        ("backoff.factor", json!("3"), "HOSTLER_BACKOFF_FACTOR"),
        ("backoff.first", json!("1s"), &*format!("{path}:2")),
        ("max_deliveries", json!("4"), &*format!("policy:{key}")),
        ("backoff.max", json!("1m"), "policy:*"),
        ("on_cap", json!("dead-letter"), "default"),
        ("queue.ttl", json!(null), "default"),
    ] {
        let rule = rules.iter().find(|rule| rule["setting"] == setting);
        let shown = (&rule.unwrap()["value"], &rule.unwrap()["from"]);
        assert_eq!(shown, (&value, &json!(from)), "{setting}");
    }
    assert_eq!(report["policies_ignored"], json!(null));
    let dead_letters = &report["dead_letters"];
    assert_eq!(*dead_letters, 3, "the policy sets the dead-letter key");
    let text = all(&[]).stdout;
    let expected = ["max_deliveries", "4", &*format!("policy:{key}")];
    let mut lines = text.lines();
    let has = lines.any(|line| line.split_whitespace().eq(expected));
    assert!(has, "{text}");

    let wrong = format!("HSET {{{key}}}:policy max_deliveries many");
    scene.raw.ask(&wrong).await;
    let report = run(inspect.iter().cloned().chain(["--json".to_owned()]));
    let report = report.ok().json();
    let why = report["policies_ignored"].as_str().unwrap();
    assert!(why.contains("many"), "{why}");
}

/// The commands that a server receives: the time in seconds of the day, and the words.
struct Monitor(Arc<Mutex<Vec<(f64, String)>>>);

impl Monitor {
    fn of(server: &RedisServer) -> Self {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        let seen = Arc::<Mutex<Vec<(f64, String)>>>::default();
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((at, words)) = line.trim_start_matches('+').split_once(' ') {
                    let at: f64 = at.parse().unwrap();
                    kept.lock().unwrap().push((at % 86_400.0, words.to_owned()));
                }
            }
        });
        Self(seen)
    }

    /// The times of a command on a key, in order.
    fn times(&self, command: &str, key: &str) -> Vec<f64> {
        let asked = format!("\"{command}\" \"{key}\"");
        let seen = self.0.lock().unwrap();
        let such = seen.iter().filter(|(_, words)| words.contains(&asked));
        such.map(|(at, _)| *at).collect()
    }
}

/// The time of the first line with this message, in seconds of the day.
fn said(host: &Host, message: &str) -> f64 {
    let log = host.log();
    let line = log.iter().find(|line| line.message() == message).unwrap();
    // 2023-11-14T22:13:20.123456Z
    let (_, time) = line.text("timestamp").unwrap().split_once('T').unwrap();
    let parts = time.trim_end_matches('Z').split(':');
    parts.fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

/// Whether the first time is before the second; midnight may be between them.
fn is_before(first: f64, second: f64) -> bool {
    (second - first).rem_euclid(86_400.0) < 43_200.0
}

async fn a_policy_takes_effect_at_the_next_poll_and_polls_are_frequent(kind: Kind) {
    let scene = Scene::new(kind).await;
    let host = scene.binary().ready().await;
    let monitor = Monitor::of(&scene.server);
    let policy = format!("{{{}}}:policy", scene.key());
    let polls = || monitor.times("HGETALL", &policy);
    eventually("the host polls", async || !polls().is_empty()).await;
    set(&scene, &["max_deliveries=3"]);
    let changed = format!("max_deliveries=3 (policy:{})", scene.key());
    assert_eq!(held(&host, 1).await, changed);
    let changed = monitor.times("HSET", &policy)[0];
    let after = || -> Vec<f64> {
        let all = polls().into_iter();
        all.filter(|poll| is_before(changed, *poll)).collect()
    };
    eventually("the host has polled six times", async || after().len() >= 6).await;
    // The rule takes effect before the second poll: the first poll is enough. This order does not
    // depend on the speed of the machine.
    let held_at = said(&host, HELD);
    let after = after();
    assert!(is_before(changed, held_at) && is_before(held_at, after[1]));
    // The time until the first poll: on a slow machine pauses are longer, but never shorter.
    let pauses = (after.windows(2)).map(|two| (two[1] - two[0]).rem_euclid(86_400.0));
    let shortest = pauses.fold(f64::MAX, f64::min);
    assert!(shortest < SEEN_WITHIN.as_secs_f64(), "{shortest} s");
}
