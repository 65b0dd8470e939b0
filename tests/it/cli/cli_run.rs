//! `run`, `publish`, `inspect`, `dlq peek` and `bench` against a real server, by the built binary.

use hostler_tests::command::{Ended, Host, end, fed, hostler, run_line};
use hostler_tests::guests::guest;
use hostler_tests::host::without_queue;
use hostler_tests::redis::{PATIENCE, RedisOptions, RedisServer};
use serde_json::{Value as Json, json};
use std::io::{Read, Write};

fn scripted() -> String {
    guest("scripted").display().to_string()
}

fn publish(redis: &RedisServer, bodies: &[&str]) {
    let line = format!("publish --redis {} --stream orders --lines", redis.url());
    fed(line.split(' '), bodies.join("\n").as_bytes()).ok();
}

/// A host of the group `g` of `orders`, with these flags.
fn start(redis: &RedisServer, flags: &str) -> Host {
    let (url, handler) = (redis.url(), scripted());
    let line = format!("--redis {url} --stream orders --group g --handler {handler} {flags}");
    Host::start(line.split_whitespace())
}

fn run_until_empty(redis: &RedisServer, flags: &str) -> Ended {
    start(redis, &format!("--until-empty --summary json {flags}")).end()
}

/// A request to the server of a test, without a runtime in the test.
fn ask(redis: &RedisServer, command: &str) -> redis::Value {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { redis.raw().await.ask(command).await })
}

#[track_caller]
fn assert_no_keys(redis: &RedisServer) {
    assert_eq!(ask(redis, "DBSIZE"), redis::Value::Int(0));
}

/// It ended with this code, and with this text on stderr.
#[track_caller]
fn refused(ended: &Ended, code: i32, text: &str) {
    assert_eq!(ended.code, code, "{ended:?}");
    assert!(ended.stderr.contains(text), "{text} in {ended:?}");
}

#[test]
fn a_batch_goes_from_publish_to_the_dead_letters() {
    let redis = RedisServer::start();
    let bodies = ["ack", "nack:10,ack", "drop:unwanted", "trap", "nack:1"];
    publish(&redis, &bodies);
    let dead = "--dead-letter orders:dead --max-deliveries 3 --backoff-first 5ms";
    let ended = run_until_empty(&redis, dead).ok();
    assert_eq!(
        ended.stdout,
        "{\"attempts\":10,\"acked\":2,\"requeued\":5,\"discarded\":0,\
         \"dead_lettered\":{\"dropped\":1,\"max-deliveries\":2},\"faults\":{\"trap\":3},\
         \"orphans_recovered\":0,\"swaps\":0}\n"
    );

    let peek = format!("dlq peek --redis {} orders:dead", redis.url());
    let found = run_line(&format!("{peek} --json")).ok().json();
    assert_eq!(found["total"], 3);
    let by_reason = json!({"dropped": 1, "max-deliveries": 2});
    assert_eq!(found["by_reason"], by_reason);
    let entries = found["entries"].as_array().unwrap();
    let dropped = entries.iter().find(|e| e["reason"] == "dropped").unwrap();
    assert_eq!(dropped["detail"], "unwanted");
    assert_eq!(dropped["body"], "drop:unwanted");
    assert_eq!(dropped["attempts"], 1);
    assert_eq!(dropped["source"], "orders");
    let text = run_line(&format!("{peek} --limit 1")).ok().stdout;
    let begin = "orders:dead: 3 dead letters\n\nmax-deliveries  2  ###";
    assert!(text.starts_with(begin), "{text}");

    let url = redis.url();
    let queue = format!("--redis {url} --stream orders --group g --dead-letter orders:dead");
    let report = run_line(&format!("inspect {queue} --json")).ok().json();
    assert_eq!(report["length"], 5);
    assert_eq!(report["pending"], 0);
    assert_eq!(report["unread"], false);
    assert_eq!(report["dead_letters"], 3);
    let text = run_line(&format!("inspect {queue}")).ok().stdout;
    let row = "dead letters  3 of 100000 in orders:dead (0 % full)";
    assert!(text.contains(row), "{text}");
}

#[test]
fn publish_prints_ids_and_keeps_bytes_and_headers() {
    let redis = RedisServer::start();
    let to = format!("publish --redis {} --stream orders", redis.url());
    let id = run_line(&format!("{to} --body hello --header tenant=a=b --json"));
    assert!(id.ok().json()["id"].as_str().unwrap().contains('-'));
    let bytes = b"\x00\xffline\nline\n";
    fed(format!("{to} --body-file -").split(' '), bytes).ok();
    let lines: String = (0..5000).map(|n| format!("{n}\n")).collect();
    let ids = fed(format!("{to} --lines").split(' '), lines.as_bytes());
    assert_eq!(ids.ok().stdout.lines().count(), 5000);

    assert_eq!(ask(&redis, "XLEN orders"), redis::Value::Int(5002));
    let text = format!("{:?}", ask(&redis, "XRANGE orders - + COUNT 2"));
    // As a debug print shows these bytes.
    let bytes = format!("{:?}", redis::Value::BulkString(bytes.to_vec()));
    for part in ["h:tenant", "a=b", "_payload", "hello", &bytes] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_missing_server_is_an_error_or_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nobody.sock");
    let (socket, handler) = (socket.display(), scripted());
    let queue = format!("--redis unix://{socket} --stream s --group g --handler {handler}");
    let ended = Host::start(queue.split(' ')).end();
    assert_eq!(ended.code, 69, "{ended:?}");
    let last: Vec<&str> = ended.stderr.lines().rev().take(2).collect();
    assert!(last[1].starts_with("error: redis at "), "{ended:?}");
    assert!(last[0].starts_with("hint: start it"), "{ended:?}");

    let mut waiting = Host::start(queue.split(' ').chain(["--wait-redis", "30s"]));
    waiting.event("waiting for redis");
    // The host has read nothing yet, so there is nothing to drain.
    assert_eq!(waiting.stop().code, 0);
}

#[test]
fn a_host_runs_only_the_handler_with_the_pinned_digest() {
    let redis = RedisServer::start();
    let wrong = format!("sha256:{}", "0".repeat(64));
    let ended = start(&redis, &format!("--handler-digest {wrong}")).end();
    refused(&ended, 65, &format!("accepts only {wrong}"));
    let check = run_line(&format!("check {} --json", scripted()))
        .ok()
        .json();
    let right = check["digest"].as_str().unwrap();
    publish(&redis, &["ack"]);
    run_until_empty(&redis, &format!("--handler-digest {right}")).ok();
}

#[test]
fn passwords_come_from_a_file_or_a_variable() {
    let redis = RedisOptions::default()
        .user("app on >hunter2 ~* &* +@all")
        .start();
    let peek = format!("dlq peek --redis {}?user=app dead --json", redis.url());
    let with = |password| {
        let mut command = hostler(peek.split(' '));
        end(command.env("HOSTLER_REDIS_PASSWORD", password))
    };
    ask(&redis, "XADD dead * a 1");
    assert_eq!(with("hunter2").ok().json()["total"], 1);
    let file = redis.dir().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let file = file.display();
    run_line(&format!("{peek} --redis-password-file {file}")).ok();

    let ended = with("hunter3");
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(!ended.stderr.contains("hunter3"), "{ended:?}");
}

#[test]
fn a_port_without_tls_is_asked_about() {
    let redis = RedisOptions::default().tcp().start();
    let url = format!("rediss://127.0.0.1:{}", redis.port());
    for command in ["dlq peek dead", "run --stream s --group g --handler"] {
        let handler = if command.starts_with("run") {
            scripted()
        } else {
            String::new()
        };
        let ended = run_line(&format!("{command} {handler} --redis {url}"));
        refused(&ended, 69, "does this port speak TLS?");
    }
}

#[test]
fn the_admin_server_and_the_summary_agree() {
    let redis = RedisServer::start();
    publish(&redis, &["ack", "drop:x", "trap"]);
    let flags = "--admin 127.0.0.1:0 --max-deliveries 1 --dead-letter dead --summary json";
    let mut host = start(&redis, flags);
    let serving = host.event("serving /metrics, /live and /ready");
    let address = serving["address"].as_str().unwrap().to_owned();
    host.until_ready();
    let (status, ready) = get(&address, "/ready");
    let ready: Json = serde_json::from_str(&ready).unwrap();
    let shown = (status, &ready["ready"], &ready["reasons"]);
    assert_eq!(shown, (200, &json!(true), &json!([])));
    let handler = &ready["handler"];
    assert_eq!(handler["current"]["origin"], "file");
    assert!(handler["canary"].is_null() && handler["refused"].is_null());
    assert_eq!(get(&address, "/live"), (200, "{\"live\":true}".to_owned()));
    assert_eq!(get(&address, "/nothing").0, 404);
    let begun = std::time::Instant::now();
    let metrics = loop {
        let metrics = without_queue(&get(&address, "/metrics").1);
        let settled = [
            "hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"} 1",
            "reason=\"max-deliveries\"} 1",
            "{disposition=\"dead-letter\",reason=\"dropped\"} 1",
        ];
        if settled.iter().all(|line| metrics.contains(line)) {
            break metrics;
        }
        assert!(begun.elapsed() < PATIENCE, "{metrics}");
    };
    for line in [
        "hostler_attempts_total{outcome=\"ack\"} 1",
        "hostler_faults_total{kind=\"trap\"} 1",
        "hostler_handler_seconds_count 3",
        "hostler_ready 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let summary: Json = serde_json::from_str(&host.stop().ok().stdout).unwrap();
    assert_eq!(summary["attempts"], 3);
    assert_eq!(summary["acked"], 1);
    let dead = json!({"dropped": 1, "max-deliveries": 1});
    assert_eq!(summary["dead_lettered"], dead);
}

#[test]
fn an_admin_address_in_use_is_refused() {
    let redis = RedisServer::start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let ended = start(&redis, &format!("--admin {address}")).end();
    refused(&ended, 64, &format!("error: cannot serve on {address}: "));
}

#[test]
fn probes_are_answered_while_others_hold_half_sent_requests() {
    let redis = RedisServer::start();
    let mut host = start(&redis, "--admin 127.0.0.1:0");
    let serving = host.event("serving /metrics, /live and /ready");
    let address = serving["address"].as_str().unwrap().to_owned();
    host.until_ready();
    let half_sent = || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /live HTTP/1.1\r\nhost:").unwrap();
        stream
    };
    // More than there is room for, and none of them ever ends.
    let held: Vec<_> = std::iter::repeat_with(half_sent).take(200).collect();
    let begun = std::time::Instant::now();
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(get(&address, path).0, 200, "{path}");
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    drop(held);
    host.stop().ok();
}

/// Ask over HTTP: status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[test]
fn a_benchmark_measures_both_loops_and_leaves_no_keys() {
    let redis = RedisServer::start();
    let base = format!(
        "bench --redis {} --messages 2000 --repeat 1 --rate 200 --concurrency 4",
        redis.url()
    );
    let ack = guest("ack");
    let bench = format!("{base} --handler {} --body 64B", ack.display());
    let report = run_line(&format!("{bench} --json")).ok().json();
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
            let value = figures[figure].as_f64().unwrap();
            assert!(value > 0.0, "{loop_of} {figure}: {report}");
        }
        assert_eq!(figures["rounds"].as_array().unwrap().len(), 1);
    }
    let rate = |loop_of: &str| report[loop_of]["messages_per_second"].as_f64().unwrap();
    let difference = report["ratio"].as_f64().unwrap() - rate("sandbox") / rate("floor");
    assert!(difference.abs() < 0.001, "{report}");
    let text = run_line(&format!("{bench} --mode reuse")).ok().stdout;
    let begin = "2000 messages of 64B, concurrency 4, instances reused, 1 rounds";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("ratio to the floor"), "{text}");
    let refused = run_line(&format!("{bench} --mode batch"));
    assert_eq!(refused.code, 65, "{refused:?}");
    let (batch, body) = (guest("batch"), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(body.path(), "ack").unwrap();
    let (batch, body) = (batch.display(), body.path().display());
    let batches = format!("{base} --handler {batch} --body-file {body} --mode batch --json");
    let report = run_line(&batches).ok().json();
    assert_eq!(report["mode"], "batch");
    assert!(report["sandbox"]["messages_per_second"].as_f64().unwrap() > 0.0);
    assert_no_keys(&redis);
}

#[test]
fn every_kind_of_queue_can_be_measured() {
    let redis = RedisServer::start();
    let (url, ack) = (redis.url(), guest("ack"));
    let bench = format!("bench --redis {url} --handler {}", ack.display());
    for (flags, queue) in [
        ("--list --messages 700", "list"),
        ("--list --reliable --messages 700", "reliable-list"),
        (
            "--list --reliable --recovery --messages 700",
            "recovered-list",
        ),
        // More than may be ahead of the handler.
        ("--channel --messages 9000", "channel"),
    ] {
        let line = format!("{bench} --repeat 1 --rate 100 --json {flags}");
        let report = run_line(&line).ok().json();
        assert_eq!(report["queue"], queue);
        for loop_of in ["floor", "sandbox"] {
            for figure in ["messages_per_second", "latency_p50_us"] {
                let figure = report[loop_of][figure].as_f64();
                assert!(figure.unwrap() > 0.0, "{report}");
            }
        }
    }
    assert_no_keys(&redis);
    refused(&run_line(&format!("{bench} --reliable")), 64, "--list");
}

#[tokio::test]
async fn a_stream_can_be_measured_with_a_retention() {
    let redis = RedisServer::start();
    let (url, ack) = (redis.url(), guest("ack"));
    let bench = format!("bench --redis {url} --handler {}", ack.display());
    for (flags, trims) in [("", false), ("--retention acked", true)] {
        let raw = redis.raw().await;
        raw.ask("CONFIG RESETSTAT").await;
        let line = format!("{bench} --messages 3000 --repeat 1 --rate 0 --json {flags}");
        let report = run_line(&line).ok().json();
        assert_eq!(report["messages"], 3000);
        let commands = raw.text("INFO commandstats").await;
        assert_eq!(commands.contains("cmdstat_xtrim:"), trims, "{commands}");
    }
    assert_eq!(redis.raw().await.number("DBSIZE").await, 0);
    let refusal = run_line(&format!("{bench} --list --retention acked"));
    refused(&refusal, 64, "--retention");
}

#[test]
fn a_replay_can_be_measured_without_a_handler() {
    let redis = RedisServer::start();
    let bench = format!("bench --redis {} --replay 700 --repeat 2", redis.url());
    let report = run_line(&format!("{bench} --json")).ok().json();
    assert_eq!(report["entries"], 700);
    assert_eq!(report["rounds"].as_array().unwrap().len(), 2);
    assert!(report["replays_per_second"].as_f64().unwrap() > 0.0);
    let text = run_line(&bench).ok().stdout;
    let head = "700 dead letters of 100B, 2 rounds, ";
    assert!(text.starts_with(head), "{text}");
    assert_no_keys(&redis);
}

#[test]
fn a_handler_that_faults_cannot_be_measured() {
    let redis = RedisServer::start();
    let (url, handler) = (redis.url(), scripted());
    let bench = format!("bench --redis {url} --handler {handler} --messages 10 --repeat 1");
    refused(&run_line(&bench), 65, "error: the handler fails: trap");
}
