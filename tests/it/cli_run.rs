//! `run`, `publish`, `inspect`, `dlq peek` against a real server, by the built binary.

use harness::command::{Ended, Host, end, fed, hostler, run};
use harness::guests::guest;
use harness::redis::{RedisOptions, RedisServer};
use hostler_tests as harness;
use nix::sys::signal::Signal;
use serde_json::{Value as Json, json};
use std::io::{Read, Write};

fn scripted() -> String {
    guest("scripted").to_str().unwrap().to_owned()
}

fn publish(redis: &RedisServer, bodies: &[&str]) {
    let lines = bodies.join("\n");
    let url = redis.url();
    fed(
        ["publish", "--redis", &url, "--stream", "orders", "--lines"],
        lines.as_bytes(),
    )
    .ok();
}

fn serve(redis: &RedisServer, more: &[&str]) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--redis",
        &redis.url(),
        "--stream",
        "orders",
        "--group",
        "g",
        "--handler",
        &scripted(),
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.extend(more.iter().map(|s| (*s).to_owned()));
    arguments
}

fn run_until_empty(redis: &RedisServer, more: &[&str]) -> Ended {
    let mut host = Host::start(
        serve(redis, &["--until-empty", "--summary", "json"])
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied()),
    );
    host.end()
}

#[test]
fn a_batch_from_publish_to_the_dead_letters() {
    let redis = RedisServer::start();
    publish(
        &redis,
        &["ack", "nack:10,ack", "drop:unwanted", "trap", "nack:1"],
    );
    let dead = [
        "--dead-letter",
        "orders:dead",
        "--max-deliveries",
        "3",
        "--backoff-first",
        "5ms",
    ];
    let ended = run_until_empty(&redis, &dead).ok();
    assert_eq!(
        ended.stdout,
        "{\"attempts\":10,\"acked\":2,\"requeued\":5,\"discarded\":0,\
         \"dead_lettered\":{\"dropped\":1,\"max-deliveries\":2},\"faults\":{\"trap\":3},\
         \"orphans_recovered\":0,\"swaps\":0}\n"
    );

    let url = redis.url();
    let peek = run(["dlq", "peek", "--redis", &url, "orders:dead", "--json"])
        .ok()
        .json();
    assert_eq!(peek["total"], 3);
    assert_eq!(
        peek["by_reason"],
        json!({"dropped": 1, "max-deliveries": 2})
    );
    let entries = peek["entries"].as_array().unwrap();
    let dropped = entries.iter().find(|e| e["reason"] == "dropped").unwrap();
    assert_eq!(dropped["detail"], "unwanted");
    assert_eq!(dropped["body"], "drop:unwanted");
    assert_eq!(dropped["attempts"], 1);
    assert_eq!(dropped["source"], "orders");
    let text = run([
        "dlq",
        "peek",
        "--redis",
        &url,
        "orders:dead",
        "--limit",
        "1",
    ])
    .ok()
    .stdout;
    assert!(
        text.starts_with("orders:dead: 3 dead letters\n\nmax-deliveries  2  ###"),
        "{text}"
    );

    let queue = [
        "inspect", "--redis", &url, "--stream", "orders", "--group", "g",
    ];
    let report = run(queue
        .iter()
        .chain(&["--json", "--dead-letter", "orders:dead"]))
    .ok()
    .json();
    assert_eq!(report["length"], 5);
    assert_eq!(report["pending"], 0);
    assert_eq!(report["unread"], false);
    assert_eq!(report["dead_letters"], 3);
    let text = run(queue.iter().chain(&["--dead-letter", "orders:dead"]))
        .ok()
        .stdout;
    assert!(
        text.contains("dead letters  3 of 100000 in orders:dead (0 % full)"),
        "{text}"
    );
}

#[test]
fn publish_prints_ids_and_keeps_bytes_and_headers() {
    let redis = RedisServer::start();
    let url = redis.url();
    let to = ["publish", "--redis", &url, "--stream", "orders"];
    let with = |more: &[&str]| {
        to.iter()
            .chain(more)
            .map(|s| (*s).to_owned())
            .collect::<Vec<_>>()
    };
    let id = run(with(&[
        "--body",
        "hello",
        "--header",
        "tenant=a=b",
        "--json",
    ]))
    .ok()
    .json();
    assert!(id["id"].as_str().unwrap().contains('-'));
    let bytes = b"\x00\xffline\nline\n";
    fed(with(&["--body-file", "-"]), bytes).ok();
    let lines: Vec<u8> = (0..5000)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    let ids = fed(with(&["--lines"]), &lines).ok().stdout;
    assert_eq!(ids.lines().count(), 5000);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entries = runtime.block_on(async {
        let raw = redis.raw().await;
        assert_eq!(raw.number("XLEN orders").await, 5002);
        raw.ask("XRANGE orders - + COUNT 2").await
    });
    let text = format!("{entries:?}");
    for part in ["h:tenant", "a=b", "_payload", "hello"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let expected = redis_bytes(bytes);
    assert!(text.contains(&expected), "{expected} in {text}");
}

/// How a debug print shows these bytes.
fn redis_bytes(bytes: &[u8]) -> String {
    format!("{:?}", redis::Value::BulkString(bytes.to_vec()))
}

#[test]
fn a_stop_drains_and_a_second_one_ends_at_once() {
    let redis = RedisServer::start();
    publish(&redis, &["sleep:300"]);
    let mut host = Host::start(serve(&redis, &["--summary", "json"]));
    host.guest_line("start ");
    let ended = host.stop().ok();
    let summary: Json = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(summary["acked"], 1, "what had started has ended");

    publish(&redis, &["sleep:60000"]);
    let mut host = Host::start(serve(&redis, &["--timeout", "2m", "--summary", "json"]));
    host.guest_line("start ");
    host.signal(Signal::SIGINT);
    host.event("draining");
    host.signal(Signal::SIGTERM);
    assert_eq!(host.end().code, 143);
}

#[test]
fn a_drain_that_takes_too_long_is_told() {
    let redis = RedisServer::start();
    publish(&redis, &["sleep:60000"]);
    let late = ["--timeout", "2m", "--drain-timeout", "50ms"];
    let mut host = Host::start(serve(&redis, &late));
    host.guest_line("start ");
    assert_eq!(host.stop().code, 75);
}

#[test]
fn a_queue_that_does_not_become_empty_in_time_is_told() {
    let redis = RedisServer::start();
    publish(&redis, &["nack:60000"]);
    let ended = run_until_empty(&redis, &["--until-empty-timeout", "200ms"]);
    assert_eq!(ended.code, 75, "{ended:?}");
}

#[test]
fn no_server_is_told_at_once_or_after_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", dir.path().join("nobody.sock").display());
    let queue = [
        "--redis",
        &url,
        "--stream",
        "s",
        "--group",
        "g",
        "--handler",
        &scripted(),
    ];
    let ended = Host::start(queue).end();
    assert_eq!(ended.code, 69, "{ended:?}");
    let last: Vec<&str> = ended.stderr.lines().rev().take(2).collect();
    assert!(last[1].starts_with("error: redis at "), "{ended:?}");
    assert!(last[0].starts_with("hint: start it"), "{ended:?}");

    let mut waiting = Host::start(queue.iter().copied().chain(["--wait-redis", "30s"]));
    waiting.event("waiting for redis");
    // Nothing has been read: a stop while waiting has nothing to drain.
    assert_eq!(waiting.stop().code, 0);
}

#[test]
fn a_host_waits_for_its_server() {
    let mut redis = RedisServer::start();
    publish(&redis, &["ack"]);
    redis.kill();
    let mut host = Host::start(serve(&redis, &["--wait-redis", "30s"]));
    host.event("waiting for redis");
    redis.restart();
    host.until_ready();
    assert_eq!(host.stop().code, 0);
}

#[test]
fn what_redis_must_be_like_is_told() {
    let redis = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        redis.raw().await.ask("SET orders 1").await;
    });
    let ended = Host::start(serve(&redis, &[])).end();
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("error: the key `orders` holds a string, but the queue needs a stream"),
        "{ended:?}"
    );
}

#[test]
fn a_pinned_digest_is_kept_to() {
    let redis = RedisServer::start();
    let wrong = format!("sha256:{}", "0".repeat(64));
    let ended = Host::start(serve(&redis, &["--handler-digest", &wrong])).end();
    assert_eq!(ended.code, 65);
    assert!(
        ended.stderr.contains(&format!("accepts only {wrong}")),
        "{ended:?}"
    );
    let digest = run(["check", &scripted(), "--json"]).ok().json();
    let right = digest["digest"].as_str().unwrap();
    publish(&redis, &["ack"]);
    run_until_empty(&redis, &["--handler-digest", right]).ok();
}

#[test]
fn passwords_come_from_a_file_or_a_variable() {
    let redis = RedisOptions::default()
        .user("app on >hunter2 ~* &* +@all")
        .start();
    let url = redis.url() + "?user=app";
    let ask = ["dlq", "peek", "--redis", &url, "dead", "--json"];
    let mut by_variable = hostler(ask);
    let ended = end(by_variable.env("HOSTLER_REDIS_PASSWORD", "hunter2")).ok();
    assert_eq!(ended.json()["total"], 0);
    let file = redis.dir().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let file = file.to_str().unwrap();
    run(ask.iter().chain(&["--redis-password-file", file])).ok();

    let ended = end(hostler(ask).env("HOSTLER_REDIS_PASSWORD", "hunter3"));
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(!ended.stderr.contains("hunter3"), "{ended:?}");
}

#[test]
fn the_admin_server_says_what_the_summary_says() {
    let redis = RedisServer::start();
    publish(&redis, &["ack", "drop:x", "trap"]);
    let more = [
        "--admin",
        "127.0.0.1:0",
        "--max-deliveries",
        "1",
        "--dead-letter",
        "dead",
        "--summary",
        "json",
    ];
    let mut host = Host::start(serve(&redis, &more));
    let serving = host.event("serving /metrics, /live and /ready");
    let address = serving["address"].as_str().unwrap().to_owned();
    host.until_ready();
    let (status, ready) = get(&address, "/ready");
    let ready: Json = serde_json::from_str(&ready).unwrap();
    assert_eq!(
        (status, &ready["ready"], &ready["reasons"]),
        (200, &json!(true), &json!([]))
    );
    let handler = &ready["handler"];
    assert_eq!(handler["current"]["origin"], "file");
    assert!(handler["canary"].is_null() && handler["refused"].is_null());
    assert_eq!(get(&address, "/live"), (200, "{\"live\":true}".to_owned()));
    assert_eq!(get(&address, "/nothing").0, 404);
    let begun = std::time::Instant::now();
    let metrics = loop {
        let metrics = harness::host::without_queue(&get(&address, "/metrics").1);
        if metrics.contains("hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"} 1")
            && metrics.contains("reason=\"max-deliveries\"} 1")
            && metrics.contains("{disposition=\"dead-letter\",reason=\"dropped\"} 1")
        {
            break metrics;
        }
        assert!(begun.elapsed() < harness::redis::PATIENCE, "{metrics}");
    };
    assert!(
        metrics.contains("hostler_attempts_total{outcome=\"ack\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("hostler_faults_total{kind=\"trap\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("hostler_handler_seconds_count 3"),
        "{metrics}"
    );
    assert!(metrics.contains("hostler_ready 1"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let summary: Json = serde_json::from_str(&host.stop().ok().stdout).unwrap();
    assert_eq!(summary["attempts"], 3);
    assert_eq!(summary["acked"], 1);
    assert_eq!(
        summary["dead_lettered"],
        json!({"dropped": 1, "max-deliveries": 1})
    );
}

#[test]
fn an_admin_address_that_is_taken_is_told() {
    let redis = RedisServer::start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = Host::start(serve(&redis, &["--admin", &address])).end();
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(
        ended
            .stderr
            .contains(&format!("error: cannot serve on {address}: ")),
        "{ended:?}"
    );
}

/// Ask over HTTP: status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(harness::redis::PATIENCE))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[test]
fn a_benchmark_measures_both_and_leaves_nothing_behind() {
    let redis = RedisServer::start();
    let url = redis.url();
    let ack = guest("ack").to_str().unwrap().to_owned();
    let bench = [
        "bench",
        "--redis",
        &url,
        "--handler",
        &ack,
        "--messages",
        "2000",
        "--repeat",
        "1",
        "--rate",
        "200",
        "--concurrency",
        "4",
        "--body",
        "64B",
    ];
    let report = run(bench.iter().chain(&["--json"])).ok().json();
    assert_eq!(report["messages"], 2000);
    assert_eq!(report["body_bytes"], 64);
    assert_eq!(report["concurrency"], 4);
    assert_eq!(report["mode"], "fresh");
    for loop_of in ["floor", "sandbox"] {
        let figures = &report[loop_of];
        for figure in [
            "messages_per_second",
            "call_p50_us",
            "latency_p50_us",
            "latency_p999_us",
            "host_cpu_seconds",
            "peak_memory_bytes",
        ] {
            assert!(
                figures[figure].as_f64().unwrap() > 0.0,
                "{loop_of} {figure}: {report}"
            );
        }
        assert_eq!(figures["rounds"].as_array().unwrap().len(), 1);
    }
    assert!(report["ratio"].as_f64().unwrap() > 0.0);
    let text = run(bench.iter().chain(&["--mode", "reuse"])).ok().stdout;
    assert!(
        text.starts_with("2000 messages of 64B, concurrency 4, instances reused, 1 rounds"),
        "{text}"
    );
    assert!(text.contains("ratio to the floor"), "{text}");
    let refused = run(bench.iter().chain(&["--mode", "batch"]));
    assert_eq!(refused.code, 65, "{refused:?}");
    let batch = guest("batch").to_str().unwrap().to_owned();
    let body = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(body.path(), "ack").unwrap();
    let mut batches = bench;
    (batches[4], batches[13]) = (&batch, "--body-file");
    batches[14] = body.path().to_str().unwrap();
    let report = run(batches.iter().chain(&["--mode", "batch", "--json"]))
        .ok()
        .json();
    assert_eq!(report["mode"], "batch");
    assert!(report["sandbox"]["messages_per_second"].as_f64().unwrap() > 0.0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keys = runtime.block_on(async { redis.raw().await.number("DBSIZE").await });
    assert_eq!(keys, 0);
}

#[test]
fn every_kind_of_queue_can_be_measured() {
    let redis = RedisServer::start();
    let url = redis.url();
    let ack = guest("ack").to_str().unwrap().to_owned();
    for (flags, queue) in [
        (&["--list"][..], "list"),
        (&["--list", "--reliable"], "reliable-list"),
        (&["--list", "--reliable", "--recovery"], "recovered-list"),
        // More than may be ahead of the handler.
        (&["--channel", "--messages", "9000"], "channel"),
    ] {
        let mut bench = vec!["bench", "--redis", &url, "--handler", &ack];
        bench.extend(["--repeat", "1", "--rate", "100", "--json"]);
        if queue != "channel" {
            bench.extend(["--messages", "700"]);
        }
        bench.extend(flags);
        let report = run(bench).ok().json();
        assert_eq!(report["queue"], queue);
        for loop_of in ["floor", "sandbox"] {
            for figure in ["messages_per_second", "latency_p50_us"] {
                let figure = report[loop_of][figure].as_f64();
                assert!(figure.unwrap() > 0.0, "{report}");
            }
        }
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keys = runtime.block_on(async { redis.raw().await.number("DBSIZE").await });
    assert_eq!(keys, 0);
    let ended = run(["bench", "--redis", &url, "--handler", &ack, "--reliable"]);
    assert_eq!(ended.code, 64);
    assert!(ended.stderr.contains("--list"), "{}", ended.stderr);
}

#[test]
fn the_replay_is_measured_without_a_handler() {
    let redis = RedisServer::start();
    let url = redis.url();
    let bench = ["bench", "--redis", &url, "--replay", "700", "--repeat", "2"];
    let report = run(bench.iter().chain(&["--json"])).ok().json();
    assert_eq!(report["entries"], 700);
    assert_eq!(report["rounds"].as_array().unwrap().len(), 2);
    assert!(report["replays_per_second"].as_f64().unwrap() > 0.0);
    let text = run(bench).ok().stdout;
    let head = "700 dead letters of 100B, 2 rounds, ";
    assert!(text.starts_with(head), "{text}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keys = runtime.block_on(async { redis.raw().await.number("DBSIZE").await });
    assert_eq!(keys, 0);
}

#[test]
fn a_handler_that_refuses_cannot_be_measured() {
    let redis = RedisServer::start();
    let ended = run([
        "bench",
        "--redis",
        &redis.url(),
        "--handler",
        &scripted(),
        "--messages",
        "10",
        "--repeat",
        "1",
    ]);
    assert_eq!(ended.code, 65, "{ended:?}");
    assert!(
        ended.stderr.contains("error: the handler fails: trap"),
        "{ended:?}"
    );
}

#[test]
fn planted_secrets_are_nowhere() {
    let redis = RedisOptions::default()
        .tcp()
        .user("app on >hunter2 ~* &* +@all")
        .start();
    let url = format!("redis://app:hunter2@127.0.0.1:{}", redis.port());
    publish(&redis, &["ack", "drop:x"]);
    let handler = scripted();
    let arguments = [
        "--redis",
        &url,
        "--stream",
        "orders",
        "--group",
        "g",
        "--handler",
        &handler,
        "--dead-letter",
        "dead",
        "--admin",
        "127.0.0.1:0",
        "--log-level",
        "debug",
        "--min-idle",
        "200ms",
    ];
    let mut host = Host::start(arguments);
    let serving = host.event("serving /metrics, /live and /ready");
    let address = serving["address"].as_str().unwrap().to_owned();
    host.until_ready();
    let mut seen = get(&address, "/metrics").1;
    // Redis changes the password and throws everybody out: the errors of that are written as well.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let raw = redis.raw().await;
        raw.ask("ACL SETUSER app resetpass >hunter3").await;
        raw.ask("CLIENT KILL USER app").await;
    });
    host.event("redis is away");
    seen += &get(&address, "/ready").1;
    assert!(seen.contains("redis-"), "{seen}");
    runtime.block_on(async {
        redis.raw().await.ask("ACL SETUSER app >hunter2").await;
    });
    host.event("redis is back");
    let ended = host.stop().ok();
    seen += &ended.stderr;
    seen += &ended.stdout;
    for command in [
        &[
            "inspect", "--redis", &url, "--stream", "orders", "--group", "g",
        ][..],
        &["dlq", "peek", "--redis", &url, "dead"],
        &[
            "check",
            "--json",
            "--redis",
            &url,
            "--stream",
            "s",
            "--group",
            "g",
            "--handler",
            "h",
        ],
    ] {
        let ended = run(command).ok();
        seen += &ended.stdout;
        seen += &ended.stderr;
    }
    let secret = seen.lines().find(|line| line.contains("hunter2"));
    assert_eq!(secret, None);
}
