//! A policy that a host cannot read is not absent: policies, the deployed version, a file that is being written. A
//! host reads no message before it knows them, and discards nothing without a word of the operator.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use hostler::wire::keys;
use hostler_tests::cluster::Cluster;
use hostler_tests::command::run;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{RawRedis, eventually};

use crate::policies::policy_scene::{File, HELD};
use crate::rollout::swap_scene::{digest, scripted};
use crate::runtime::e2e_scene::Scene;

/// How many messages each host of a test gets.
const EACH: usize = 5;

/// The readiness of a host says this.
async fn says(host: &Host, parts: &[&str]) {
    let what = || format!("/ready says {parts:?}: {}", host.get("/ready").1);
    hostler_tests::redis::eventually_or(what, async || {
        let (status, text) = host.get("/ready");
        status == 503 && parts.iter().all(|part| text.contains(part))
    })
    .await;
}

async fn is_ready(host: &Host) {
    let what = || format!("the host is ready: {}", host.get("/ready").1);
    hostler_tests::redis::eventually_or(what, async || host.get("/ready").0 == 200).await;
}

/// Messages that their handler drops.
async fn drops(raw: &RawRedis, stream: &str) {
    for _ in 0..EACH {
        raw.add(stream, "drop").await;
    }
}

/// The digests of the handlers that dropped the dead letters of a stream.
async fn handlers(raw: &RawRedis, stream: &str) -> Vec<String> {
    let entries = raw.entries(stream).await;
    let handler = |fields: &Vec<Vec<u8>>| {
        let found = crate::queue::queue_scene::field(fields, "h:x-dead-letter-handler");
        String::from_utf8(found.unwrap().to_vec()).unwrap()
    };
    entries.iter().map(|(_, fields)| handler(fields)).collect()
}

/// Each request of a start and of a short life is lost with its connection, in turn. The queue's own policy, the
/// policies by pattern and the deployed version all decide about each message.
#[tokio::test(flavor = "multi_thread")]
async fn no_lost_connection_makes_a_host_forget_its_policies_or_its_deploy() {
    const AT_ONCE: u64 = 6;
    let scene = Scene::new().await;
    let (first, deployed) = (scripted("file"), scripted("deployed"));
    let file = scene.server.dir().join("file.wasm");
    std::fs::write(&file, &first).unwrap();
    let next = scene.server.dir().join("deployed.wasm");
    std::fs::write(&next, &deployed).unwrap();
    let url = scene.server.url();
    let deploy = [
        "deploy",
        next.to_str().unwrap(),
        "--unchecked",
        "--redis",
        &url,
    ];
    run(deploy.iter().chain(&["--queue-key", "orders"])).ok();
    let words = [
        "HSET",
        "hostler:policies",
        "dead_letter.routes o*",
        "dropped=dropped",
    ];
    scene.raw.ask_words(&words.map(str::as_bytes)).await;
    let mut number = 0;
    let mut lost = 0;
    loop {
        let lives = (number + 1..=number + AT_ONCE).map(|n| one_life(&scene, &file, n));
        let closed = join_all(lives).await;
        number += AT_ONCE;
        lost += closed.iter().filter(|closed| **closed).count();
        if closed.contains(&false) {
            break;
        }
    }
    // A host asks more than this before its first message.
    assert!(lost > 15, "{lost}");
    let all = usize::try_from(number).unwrap() * EACH;
    let handlers = handlers(&scene.raw, "dropped").await;
    assert_eq!(
        handlers.len(),
        all,
        "what is elsewhere was judged without a policy"
    );
    assert!(
        handlers
            .iter()
            .all(|handler| *handler == *digest(&deployed))
    );
    assert!(!scene.exists("elsewhere").await);
}

/// A host on a queue of its own, until that is empty. Its request number `n` is lost. Returns whether there was one.
async fn one_life(scene: &Scene, file: &Path, n: u64) -> bool {
    let stream = format!("orders{n}");
    let raw = scene.server.raw().await;
    for copied in ["versions", "version:1"] {
        let copy = format!("COPY {{orders}}:{copied} {{{stream}}}:{copied}");
        raw.ask(&copy).await;
    }
    let policy = keys::policy(&stream);
    raw.ask(&format!("HSET {policy} dead_letter.key elsewhere"))
        .await;
    drops(&raw, &stream).await;
    let proxy = Proxy::to_socket(&scene.server.socket(), n).unwrap();
    proxy.close_at(n);
    let host = HostOptions::at(&proxy.url()).directory(scene.server.dir());
    let ended = host
        .flag("stream", &stream)
        .flag("handler", file.to_str().unwrap())
        .flags("accept-deploys=true wait-redis=30s")
        .finish()
        .await;
    let summary = ended.json();
    assert_eq!(summary["discarded"], 0, "request {n}: {}", ended.stderr());
    assert_eq!(
        summary["dead_lettered"]["dropped"], EACH,
        "request {n}: {summary}"
    );
    proxy.replies_cut() > 0
}

#[tokio::test]
async fn a_paused_queue_stays_paused_when_the_answer_about_its_policies_is_lost() {
    for (hash, field) in [
        ("{orders}:policy", "queue.paused"),
        ("hostler:policies", "queue.paused orders"),
    ] {
        let scene = Scene::new().await;
        let words = ["HSET", hash, field, "true"].map(str::as_bytes);
        scene.raw.ask_words(&words).await;
        scene.raw.add("orders", "ack").await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
        proxy.cut_reply(hash, 0);
        let options = HostOptions::at(&proxy.url()).directory(scene.server.dir());
        let host = options.start();
        host.logs("ready, and paused").await;
        assert_eq!(proxy.replies_cut(), 1);
        host.logs("rules cannot be read: no message is read until")
            .await;
        host.drain().await.expect_code(0);
        assert_eq!(scene.raw.number("XLEN orders").await, 1);
        assert!(scene.raw.pending("orders", "workers").await.is_empty());
    }
}

#[tokio::test]
async fn a_host_that_starts_waits_for_policies_that_cannot_be_read_and_says_which() {
    let long = "x".repeat(5000);
    let rules = |count: usize| (0..count).map(|n| format!("max_deliveries q{n}"));
    for (hash, fields, parts) in [
        (
            "{orders}:policy",
            vec![],
            ["the policy of the queue", "WRONGTYPE"],
        ),
        (
            "hostler:policies",
            vec![],
            ["policies by pattern", "WRONGTYPE"],
        ),
        (
            "hostler:policies",
            rules(1001).collect(),
            ["policies by pattern", "1001 rules"],
        ),
        (
            "{orders}:policy",
            vec!["max_deliveries".to_owned()],
            ["the policy of the queue", "the rule `max_deliveries`"],
        ),
    ] {
        let scene = Scene::new().await;
        let value = if fields.len() == 1 { &long } else { "5" };
        for field in &fields {
            let words = ["HSET", hash, field, value].map(str::as_bytes);
            scene.raw.ask_words(&words).await;
        }
        if fields.is_empty() {
            scene.raw.ask(&format!("SET {hash} x")).await;
        }
        drops(&scene.raw, "orders").await;
        let host = scene.host().admin().start();
        host.logs("rules cannot be read: no message is read until")
            .await;
        says(&host, &["rules-unreadable", parts[0], parts[1]]).await;
        assert_eq!(host.witness().total(), 0);
        // At once: a host that reads in between would know that there is no key, and discard.
        let mend = "redis.call('DEL', KEYS[1]) \
                    redis.call('HSET', KEYS[2], 'dead_letter.key', 'orders:dead')";
        let words = ["EVAL", mend, "2", hash, "{orders}:policy"].map(str::as_bytes);
        scene.raw.ask_words(&words).await;
        host.logs("ready").await;
        scene.has("orders:dead", EACH as i64).await;
        is_ready(&host).await;
        let ended = host.drained().await;
        assert_eq!(ended.json()["discarded"], 0);
    }
}

#[tokio::test]
async fn a_running_host_keeps_the_policies_that_it_cannot_read_any_more() {
    for (hash, field, name) in [
        (
            "{orders}:policy",
            "dead_letter.key",
            "the policy of the queue",
        ),
        (
            "hostler:policies",
            "dead_letter.key ord*",
            "policies by pattern",
        ),
    ] {
        let scene = Scene::new().await;
        let words = ["HSET", hash, field, "orders:dead"].map(str::as_bytes);
        scene.raw.ask_words(&words).await;
        let host = scene.host().admin().ready().await;
        scene.raw.ask(&format!("RENAME {hash} kept")).await;
        scene.raw.ask(&format!("SET {hash} x")).await;
        host.logs("rules cannot be read: those that were read last hold")
            .await;
        says(&host, &["rules-unreadable", name, "WRONGTYPE"]).await;
        drops(&scene.raw, "orders").await;
        scene.has("orders:dead", EACH as i64).await;
        // The other hash is followed meanwhile.
        let other = match hash {
            "hostler:policies" => ["HSET", "{orders}:policy", "on_fault", "dead-letter"],
            _ => ["HSET", "hostler:policies", "on_fault ord*", "dead-letter"],
        };
        scene.raw.ask_words(&other.map(str::as_bytes)).await;
        host.logs(HELD).await;
        scene.raw.ask(&format!("DEL {hash}")).await;
        scene.raw.ask(&format!("RENAME kept {hash}")).await;
        host.logs("all rules can be read again").await;
        is_ready(&host).await;
        let ended = host.drained().await;
        assert_eq!(ended.json()["discarded"], 0);
    }
}

#[tokio::test]
async fn a_dead_letter_key_that_cannot_be_used_at_the_start_discards_nothing() {
    let scene = Scene::new().await;
    scene.raw.ask("RPUSH taken x").await;
    scene
        .raw
        .ask("HSET {orders}:policy dead_letter.key taken")
        .await;
    drops(&scene.raw, "orders").await;
    let host = scene.host().admin().ready().await;
    host.logs("wrong rules are ignored").await;
    says(&host, &["dead-letters-refused", "dead_letter.key"]).await;
    host.starts(EACH).await;
    assert_eq!(scene.raw.pending("orders", "workers").await.len(), EACH);
    let starts = host.witness().total();
    scene.set(&["dead_letter.key=orders:dead"]);
    scene.has("orders:dead", EACH as i64).await;
    assert_eq!(host.witness().total(), starts, "no handler runs again");
    is_ready(&host).await;
    let ended = host.drained().await;
    assert_eq!(ended.json()["discarded"], 0);
}

/// One node of a cluster after the other is away when a host starts: the one with the queue and its policy, the one
/// with the policies by pattern, another one.
#[tokio::test(flavor = "multi_thread")]
async fn whichever_node_is_away_at_the_start_no_message_is_handled_without_its_policies() {
    let cluster = Cluster::start(3, 0).await;
    let url = cluster.url();
    let set = |which: &[&str], rules: &[&str]| {
        let words = [&["policy", "set", "--redis", &url], which, rules].concat();
        run(words).ok();
    };
    set(&["--queue", "orders"], &["dead_letter.key={orders}:dead"]);
    set(
        &["--match", "ord*"],
        &["dead_letter.routes=dropped={orders}:dropped"],
    );
    let (queue, patterns) = (
        cluster.owner("orders").await,
        cluster.owner(keys::POLICIES).await,
    );
    assert_ne!(queue, patterns);
    let raw = cluster.at("orders").await;
    for away in 0..3 {
        drops(&raw, "orders").await;
        let before = raw.number("XLEN {orders}:dropped").await;
        cluster.nodes[away].pause(true);
        let host = HostOptions::at(&url)
            .directory(cluster.nodes[0].dir())
            .flag("wait-redis", "60s")
            .admin()
            .start();
        if away == patterns {
            host.logs("rules cannot be read: no message is read until")
                .await;
            says(&host, &["rules-unreadable", "policies by pattern"]).await;
            assert_eq!(raw.number("XLEN {orders}:dropped").await, before);
            assert_eq!(host.witness().total(), 0);
        } else if away == queue {
            host.logs("waiting for redis").await;
        } else {
            // Nothing that it needs is there.
            host.logs("ready").await;
        }
        cluster.nodes[away].pause(false);
        eventually("all are dead-lettered where the policies say", async || {
            raw.number("XLEN {orders}:dropped").await == before + EACH as i64
        })
        .await;
        let ended = host.drained().await;
        assert_eq!(ended.json()["discarded"], 0);
        cluster.healed().await;
    }
    assert_eq!(raw.number("EXISTS {orders}:dead").await, 0);
}

/// Write a text in place, byte by byte, with a pause before each line.
fn write_slowly(path: PathBuf, from: usize, text: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        for byte in text.as_bytes().iter().skip(from) {
            file.write_all(&[*byte]).unwrap();
            let pause = if *byte == b'\n' { 600 } else { 5 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    })
}

const TEXT: &str = "\
max_payload = \"1MiB\"
concurrency = 2
[backoff]
first = \"7ms\"
[queue]
max_length = 10000
[dead_letter]
key = \"orders:dead\"
max_len = 1000
";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_never_takes_a_part_of_its_file() {
    let lines = TEXT.match_indices('\n').map(|(at, _)| at + 1);
    // Behind each line, and in the middle of a number.
    let cuts = lines.chain([TEXT.rfind("00\n").unwrap()]);
    let lives = cuts.map(async |cut| {
        let scene = Scene::new().await;
        drops(&scene.raw, "orders").await;
        let file = File::of(&TEXT[..cut]);
        let writing = write_slowly(file.path.clone(), cut, TEXT.to_owned());
        let options = scene.host().flag("config", file.path.to_str().unwrap());
        let ended = options.finish().await;
        writing.await.unwrap();
        assert_eq!(
            ended.json()["discarded"],
            0,
            "behind {cut} bytes: {}",
            ended.stderr()
        );
        assert_eq!(scene.raw.number("XLEN orders:dead").await, EACH as i64);
        let serving = ended
            .log
            .iter()
            .find(|line| line.message() == "serving")
            .unwrap();
        assert_eq!(
            serving.number("dead_letter_max_len"),
            Some(1000),
            "behind {cut} bytes"
        );
    });
    // Each has a server and a host.
    let mut lives = lives.collect::<Vec<_>>().into_iter().peekable();
    while lives.peek().is_some() {
        join_all(lives.by_ref().take(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_host_never_takes_a_part_of_its_file() {
    let scene = Scene::new().await;
    let file = File::of(TEXT);
    let options = scene.host().flag("config", file.path.to_str().unwrap());
    let host = options.ready().await;
    let changed = TEXT.replace("7ms", "9ms");
    file.write("");
    let writing = write_slowly(file.path.clone(), 0, changed);
    let mut sent = 0;
    while !writing.is_finished() {
        drops(&scene.raw, "orders").await;
        sent += EACH as i64;
        scene.has("orders:dead", sent).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    host.logs(HELD).await;
    let log = host.log();
    let line = log.iter().find(|line| line.message() == HELD).unwrap();
    let changed = line.text("changed").unwrap();
    assert!(changed.starts_with("backoff.first=9ms ("), "{changed}");
    assert!(!changed.contains(','), "{changed}");
    let ended = host.drained().await;
    assert_eq!(ended.json()["discarded"], 0);
    let wrong = ended
        .log
        .iter()
        .filter(|line| line.message().starts_with("wrong rules"));
    assert_eq!(wrong.count(), 0);
}

#[tokio::test]
async fn no_version_of_the_file_runs_while_the_deployed_one_cannot_be_read() {
    let scene = crate::rollout::swap_scene::Scene::new(&scripted("file")).await;
    let deployed = scripted("deployed");
    scene.deploy(&deployed);
    scene.raw.ask("RENAME {orders}:versions kept").await;
    scene.raw.ask("SET {orders}:versions x").await;
    drops(&scene.raw, "orders").await;
    let host = scene.accepting().start();
    host.logs("the deployed version cannot be read: no message is read until")
        .await;
    says(&host, &["version-unreadable", "WRONGTYPE"]).await;
    assert_eq!(host.witness().total(), 0);
    scene.raw.ask("DEL {orders}:versions").await;
    scene.raw.ask("RENAME kept {orders}:versions").await;
    host.logs("the deployed version can be read again").await;
    eventually("all are dropped", async || {
        handlers(&scene.raw, "orders:dead").await == vec![digest(&deployed).to_string(); EACH]
    })
    .await;
    // A running host goes on with its version, and says so.
    scene.raw.ask("RENAME {orders}:versions kept").await;
    scene.raw.ask("SET {orders}:versions x").await;
    says(&host, &["version-unreadable"]).await;
    scene.raw.add("orders", "drop").await;
    eventually("it is dropped by the same version", async || {
        handlers(&scene.raw, "orders:dead").await == vec![digest(&deployed).to_string(); EACH + 1]
    })
    .await;
    host.drained().await;
}

#[tokio::test]
async fn no_command_stores_more_rules_than_hosts_read() {
    let scene = Scene::new().await;
    for n in 0..1000 {
        let field = format!("on_cap q{n}");
        let words = ["HSET", "hostler:policies", &field, "discard"].map(str::as_bytes);
        scene.raw.ask_words(&words).await;
    }
    let url = scene.server.url();
    let one_more = [
        "policy",
        "set",
        "--redis",
        &url,
        "--match",
        "other*",
        "on_cap=discard",
    ];
    let pause = ["pause", "--redis", &url, "--match", "other*"];
    for words in [&one_more[..], &pause] {
        let refused = run(words);
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.stderr.contains("1001 rules"), "{refused:?}");
    }
    // Another value for a rule that is there is no rule more.
    run([
        "policy",
        "set",
        "--redis",
        &url,
        "--match",
        "q7",
        "on_cap=dead-letter",
    ])
    .ok();
    assert_eq!(scene.raw.number("HLEN hostler:policies").await, 1000);
    // Those that another program has written are shown, with a word about them, and can be removed.
    let words = ["HSET", "hostler:policies", "on_cap more", "discard"].map(str::as_bytes);
    scene.raw.ask_words(&words).await;
    let shown = scene.policy("get", &["--match", "more"]).ok();
    assert!(shown.stderr.contains("1001 rules"), "{shown:?}");
    let removed = scene.policy("unset", &["--match", "more", "--all"]).ok();
    assert!(!removed.stderr.contains("1001 rules"), "{removed:?}");
}
