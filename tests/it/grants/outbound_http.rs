//! HTTP by grants: `hostler:handler/http` and `wasi:http`, with the limits, headers and secrets of rules.

use std::time::{Duration, Instant};

use hostler::delivery::outcome::Outcome;
use hostler::grants::Need;
use hostler::sandbox::{Limits, Sandbox, Settings};
use hostler_tests::guests::guest;
use hostler_tests::redis::eventually;
use hostler_tests::rig::Rig;
use hostler_tests::web::{SecureWeb, Web};

use crate::grants::outbound_scene::{reason, rig, rule, settings, try_settings, url, with_headers};

#[tokio::test]
async fn a_guest_calls_a_granted_server_and_reads_its_whole_response() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, ""));
    let fetch = format!("fetch:GET|{}", url(&web, "/ok?a=b"));
    assert_eq!(rig.reason(&fetch).await, "200 ok");
    assert_eq!(web.seen()[0].target(), "/ok?a=b");
    let host = format!("api.test:{}", web.port());
    assert_eq!(web.seen()[0].header("host"), Some(&*host));
    let post = format!("fetch:POST|{}|h=x-tenant=a|b=hello", url(&web, "/body"));
    assert_eq!(rig.reason(&post).await, "200 hello");
    assert_eq!(web.seen()[1].header("x-tenant"), Some("a"));
    for (path, said) in [("/status/404", "404 status"), ("/size/0", "200 ")] {
        assert_eq!(
            rig.reason(&format!("fetch:GET|{}", url(&web, path))).await,
            said
        );
    }
    let large = format!("fetch:GET|{}|len", url(&web, "/size/1048576"));
    assert_eq!(rig.reason(&large).await, "200 1048576");
    let header = format!("fetch:GET|{}|show=location", url(&web, "/to?/x"));
    assert_eq!(rig.reason(&header).await, r#"Some("/x")"#);
    // One connection served them all.
    assert_eq!(web.connections(), 1);
}

#[tokio::test]
async fn the_standard_interface_stands_behind_the_same_grant() {
    let web = Web::start().await;
    let mut rig = rig(&rule(
        &web,
        "methods = [\"GET\", \"POST\"]\npath = \"/body\"\n",
    ));
    let authority = format!("api.test:{}", web.port());
    let post = format!("wasi:POST|http|{authority}|/body|b=hello|h=x-a=1");
    assert_eq!(rig.reason(&post).await, "200 hello");
    assert_eq!(web.seen()[0].header("x-a"), Some("1"));
    for (request, said) in [
        (
            format!("wasi:GET|http|{authority}|/admin"),
            "HttpRequestDenied",
        ),
        (
            format!("wasi:DELETE|http|{authority}|/body"),
            "HttpRequestDenied",
        ),
        (
            "wasi:GET|http|127.0.0.1|/body".to_owned(),
            "HttpRequestDenied",
        ),
        (
            format!("wasi:GET|https|{authority}|/body"),
            "HttpRequestDenied",
        ),
        (
            format!("wasi:GET|http|{authority}|/body|h=host=evil"),
            "Forbidden",
        ),
        (
            format!("wasi:GET|http|{authority}|/body|h=connection=close"),
            "Forbidden",
        ),
    ] {
        let found = rig.reason(&request).await;
        assert!(found.contains(said), "{request}: {found}");
    }
    assert_eq!(web.seen().len(), 1);
}

#[tokio::test]
async fn only_what_a_rule_names_is_allowed() {
    let web = Web::start().await;
    let port = web.port();
    let mut rig = rig(&rule(&web, "path = \"/v1\"\nmethods = [\"GET\"]\n"));
    for denied in [
        format!("POST|{}", url(&web, "/v1")),
        format!("get|{}", url(&web, "/v1")),
        format!("CONNECT|{}", url(&web, "/v1")),
        format!("GET|{}", url(&web, "/")),
        format!("GET|{}", url(&web, "/v10")),
        format!("GET|{}", url(&web, "/v1/../admin")),
        format!("GET|{}", url(&web, "/v1/..%2fadmin")),
        format!("GET|https://api.test:{port}/v1"),
        "GET|http://api.test/v1".to_owned(),
        format!("GET|http://other.test:{port}/v1"),
        format!("GET|http://x.api.test:{port}/v1"),
        format!("GET|http://127.0.0.1:{port}/v1"),
        format!("GET|http://api.test.:{port}/v1"),
        "GET|nonsense".to_owned(),
    ] {
        let found = rig.reason(&format!("fetch:{denied}")).await;
        assert!(found.starts_with("Error::Denied"), "{denied}: {found}");
    }
    for segment in [
        "%c0%ae%c0%ae",
        "%u002e%u002e",
        "%ef%bc%8e%ef%bc%8e",
        "\u{ff0e}\u{ff0e}",
        "..%20",
        "..%00",
    ] {
        let path = url(&web, &format!("/v1/{segment}/admin"));
        let found = rig.reason(&format!("fetch:GET|{path}")).await;
        let said = "of the rule: GET ";
        assert!(
            found.starts_with("Error::Denied")
                && found.contains("servers may read the segment")
                && found.contains(said),
            "{found}"
        );
    }
    assert!(web.seen().is_empty(), "nothing was sent");
    assert_eq!(web.connections(), 0);
    assert_eq!(
        rig.reason(&format!("fetch:GET|{}", url(&web, "/v1/ok")))
            .await,
        "200 ok"
    );
}

#[tokio::test]
async fn a_rule_with_always_replaces_the_idempotency_keys_of_the_guest() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, "idempotency_key = \"always\"\n"));
    for (attempt, random) in [(1, "stripe-node-retry-6be9"), (2, "stripe-node-retry-f2b8")] {
        let request = format!("fetch:POST|{}|h=idempotency-key={random}", url(&web, "/ok"));
        let report = rig.call(&with_headers(&request, &[]), attempt).await;
        assert_eq!(reason(report.outcome), "200 ok");
    }
    let seen = web.seen();
    let keys: Vec<_> = seen.iter().map(|s| s.header("idempotency-key")).collect();
    assert_eq!(keys, [Some("orders/1-1#1"); 2]);
}

#[tokio::test]
async fn a_rule_adds_secrets_that_the_guest_never_sees_and_keys_that_differ() {
    let web = Web::start().await;
    let headers = "headers.authorization = \"Bearer ${secret:stripe}\"\n";
    let secret = "[grant.secret]\nstripe = { variable = \"STRIPE\" }\n\
                  needed = { variable = \"NEEDED\", expose = true }\n";
    let mut rig = rig(&format!("{}{secret}", rule(&web, headers)));
    let post = |n: usize| format!("POST|{}|b={n}|h=authorization=mine", url(&web, "/ok"));
    let twice = format!("send:{}+fetch:{}", post(1), post(2));
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for attempt in 1..=2 {
        let message = with_headers(&twice, &[("traceparent", traceparent)]);
        let report = rig.call(&message, attempt).await;
        // The script has one step, which repeats.
        assert_eq!(reason(report.outcome), "200 ok");
    }
    let seen = web.seen();
    let keys: Vec<_> = seen
        .iter()
        .map(|s| s.header("idempotency-key").unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "orders/1-1#1",
            "orders/1-1#2",
            "orders/1-1#1",
            "orders/1-1#2"
        ]
    );
    for seen in &seen {
        assert_eq!(
            seen.header("authorization"),
            Some("Bearer s3cr3t-of-stripe")
        );
        assert_eq!(seen.header("traceparent"), Some(traceparent));
        assert!(!seen.head.contains("mine"), "{}", seen.head);
    }
    // A suffix of the guest, and methods that change nothing.
    let named = format!("fetch:POST|{}|h=idempotency-key=charge", url(&web, "/ok"));
    rig.reason(&named).await;
    rig.reason(&format!("fetch:GET|{}", url(&web, "/ok"))).await;
    let seen = web.seen();
    assert_eq!(
        seen[4].header("idempotency-key"),
        Some("orders/1-1#=charge")
    );
    assert_eq!(seen[5].header("idempotency-key"), None);
    assert_eq!(
        seen[5].header("traceparent"),
        None,
        "the message has no trace"
    );
    // The secret is for headers only.
    let read = rig.reason("secret:stripe").await;
    assert_eq!(read, r#"Err("the secret `stripe` is not granted")"#);
    assert_eq!(rig.reason("secret:needed").await, r#"Ok("needed")"#);
    let shown = format!("{:?} {:?}", rig.sandbox, rig.lines());
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

#[tokio::test]
async fn tls_is_verified_with_the_certificate_of_the_rule_and_http_2_shares_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    let web = SecureWeb::start("api.test", &ca).await;
    let port = web.port();
    let granted = |host: &str, more: &str| {
        format!(
            "[[grant.http]]\nhost = \"{host}\"\nport = {port}\naddress = \"127.0.0.1\"\n{more}\n"
        )
    };
    let with_ca = format!("ca = \"{}\"", ca.display());
    let mut rig = rig(&granted("api.test", &with_ca));
    let fetch = format!("fetch:GET|https://api.test:{port}/x");
    assert_eq!(rig.reason(&fetch).await, "200 HTTP/2.0 GET /x");
    assert_eq!(rig.reason(&fetch).await, "200 HTTP/2.0 GET /x");
    assert_eq!(web.connections(), 1);
    // Another name, and an authority that is not trusted.
    for rule in [granted("other.test", &with_ca), granted("api.test", "")] {
        let mut rig = crate::grants::outbound_scene::rig(&rule);
        let host = if rule.contains("other") {
            "other"
        } else {
            "api"
        };
        let found = rig
            .reason(&format!("fetch:GET|https://{host}.test:{port}/x"))
            .await;
        assert!(found.starts_with("Error::Tls"), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_attempts_hold_no_core_and_end_at_the_limit_of_the_rule() {
    let web = Web::start().await;
    let rule = rule(&web, "timeout = \"4s\"\nconnections = 100\n");
    let toml = format!("concurrency = 64\ntimeout = \"60s\"\ncpu = \"1s\"\n{rule}");
    let first = rig(&toml);
    let waiting = format!("fetch:GET|{}", url(&web, "/never"));
    let began = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let mut rig = Rig::of(first.sandbox.clone());
        let body = waiting.clone();
        calls.spawn(async move { rig.reason(&body).await });
    }
    // Others go on meanwhile.
    eventually("all of them wait", async || web.seen().len() == 64).await;
    let mut other = Rig::of(first.sandbox.clone());
    assert_eq!(other.run("ack").await.outcome, Outcome::Ack);
    let ends = calls.join_all().await;
    // None of them used its CPU time, though each waited four times as long.
    assert!(ends.iter().all(|end| end == "Error::Timeout"), "{ends:?}");
    assert!(began.elapsed() >= Duration::from_secs(4));
    // The host gave up the connections with the requests.
    eventually("the requests are cancelled", async || web.open() == 0).await;
}

#[tokio::test]
async fn a_guest_can_wait_shorter_than_its_rule_but_not_longer() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, "timeout = \"300ms\"\n"));
    for wait in ["t=50", "t=60000", "len"] {
        let began = Instant::now();
        let fetch = format!("fetch:GET|{}|{wait}", url(&web, "/never"));
        assert_eq!(rig.reason(&fetch).await, "Error::Timeout");
        assert!(began.elapsed() < Duration::from_secs(20), "{wait}");
    }
}

#[tokio::test]
async fn requests_end_with_their_attempt() {
    let web = Web::start().await;
    let mut rig = rig(&format!("timeout = \"2s\"\n{}", rule(&web, "")));
    let fault = rig
        .fault(&format!("fetch:GET|{}", url(&web, "/never")))
        .await;
    assert_eq!(fault.kind.label(), "wall-timeout", "{fault}");
    eventually("the request is cancelled", async || web.open() == 0).await;
    let fetch = format!("fetch:GET|{}", url(&web, "/ok"));
    assert_eq!(rig.reason(&fetch).await, "200 ok");
}

#[tokio::test]
async fn an_ack_with_an_unfinished_request_is_a_fault_and_the_request_ends() {
    let web = Web::start().await;
    let granted = rule(&web, "in_flight = 2\ntimeout = \"50s\"\n");
    let mut settings = settings(&format!(
        "timeout = \"55s\"\n{granted}[grant.secret]\nneeded = {{ variable = \"NEEDED\", expose = true }}\n"
    ));
    settings.reuse = 100;
    let mut rig = Rig::guest("outbound", &settings);
    let authority = format!("api.test:{}", web.port());
    for _ in 0..5 {
        let leak = format!("wasi-leak:2|http|{authority}|/never");
        let fault = rig.fault(&leak).await;
        assert!(
            fault
                .detail
                .contains("a request that it sent is unfinished"),
            "{fault}"
        );
        let began = Instant::now();
        let fetch = format!("fetch:GET|{}", url(&web, "/ok"));
        assert_eq!(rig.reason(&fetch).await, "200 ok");
        assert!(
            began.elapsed() < Duration::from_secs(45),
            "it waited for the leaked ones"
        );
    }
    // An answer that loses nothing.
    let nack = format!("wasi-leak:1|http|{authority}|/never+nack:0");
    assert!(matches!(
        rig.run(&nack).await.outcome,
        Outcome::NackRequeue(_)
    ));
}

#[tokio::test]
async fn connections_and_requests_of_a_rule_are_bounded() {
    let web = Web::start().await;
    let first = rig(&format!(
        "concurrency = 32\n{}",
        rule(&web, "connections = 3\nin_flight = 5\n")
    ));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..32 {
        let mut rig = Rig::of(first.sandbox.clone());
        let body = format!("fetch:GET|{}", url(&web, &format!("/ok?{n}")));
        calls.spawn(async move { rig.reason(&body).await });
    }
    let ends = calls.join_all().await;
    assert!(ends.iter().all(|end| end == "200 ok"), "{ends:?}");
    assert!(
        (1..=3).contains(&web.connections()),
        "{}",
        web.connections()
    );
}

#[tokio::test]
async fn idle_connections_to_one_server_do_not_block_another_one() {
    // Two names below one domain: two authorities of one rule, with room for one connection.
    let web = Web::start().await;
    let port = web.port();
    let mut rig = rig(&format!(
        "[[grant.http]]\nscheme = \"http\"\nhost = \"*.test\"\nport = {port}\naddress = \"127.0.0.1\"\n\
         connections = 1\ntimeout = \"10s\"\n"
    ));
    for host in ["a", "b", "a", "c"] {
        let fetch = format!("fetch:GET|http://{host}.test:{port}/ok");
        assert_eq!(rig.reason(&fetch).await, "200 ok", "{host}");
    }
    assert_eq!(web.connections(), 4);
}

#[tokio::test]
async fn a_component_without_the_grants_is_refused_with_the_toml_that_gives_them() {
    let error = Sandbox::load(&guest("outbound"), &Settings::default()).unwrap_err();
    let text = error.to_string();
    for part in [
        "hostler:handler/http@1.2.0 (needs the grant `http`)",
        "hostler:handler/secrets@1.2.0 (needs the grant `secret`)",
        "wasi:http/outgoing-handler@0.2",
        "[[grant.http]]\nhost = \"api.example.com\"",
        "[grant.secret]\nname = { file = \"/run/secrets/name\", expose = true }",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The refusal has a configuration that grants it.
    let (_, toml) = text.split_once("write in the file of the queue:").unwrap();
    let settings = settings(toml);
    let sandbox = Sandbox::load(&guest("outbound"), &settings).unwrap();
    let imports = &sandbox.describe().imports;
    let need = |name: &str| {
        imports
            .iter()
            .find(|i| i.name.starts_with(name))
            .unwrap()
            .need
            .clone()
    };
    assert_eq!(need("hostler:handler/http"), Need::Grant("http"));
    assert_eq!(need("wasi:http/types"), Need::Grant("http"));
    assert_eq!(need("hostler:handler/secrets"), Need::Grant("secret"));
    assert_eq!(need("wasi:logging/logging"), Need::Nothing);
}

#[tokio::test]
async fn a_handler_of_batches_may_not_have_keys_of_single_messages() {
    use hostler_tests::guests::{HANDLE_BATCH, exporting};
    let types = r#"(type $name (tuple string (list u8)))
        (type $request (record (field "method" string) (field "url" string)
            (field "headers" (list $name)) (field "body" (option (list u8)))
            (field "timeout-ms" (option u32))))
        (type $response (record (field "status" u16) (field "headers" (list $name))
            (field "body" (list u8))))
        (type $error (variant (case "denied" string) (case "dns" string) (case "connect" string)
            (case "tls" string) (case "timeout") (case "too-large" u64) (case "protocol" string)))"#;
    let exports = r#"(export "request" (type $r (eq $request)))
        (export "response" (type $a (eq $response)))
        (export "error" (type $e (eq $error)))
        (export "fetch" (func (param "request" $r) (result (result $a (error $e)))))"#;
    let items = format!(
        r#"(import "hostler:handler/http@1.2.0" (instance {types} {exports}))
        (core module $m (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
            (func (export "handle-batch") {} i32.const 0))
        (core instance $core (instantiate $m))
        (alias core export $core "handle-batch" (core func $run))
        (alias core export $core "memory" (core memory $memory))
        (alias core export $core "realloc" (core func $realloc))"#,
        HANDLE_BATCH.core
    );
    let bytes = exporting(&HANDLE_BATCH, "1.1.0", &items);
    let granted = |more: &str| settings(&format!("[[grant.http]]\nhost = \"api.test\"\n{more}"));
    let refused = Sandbox::load_bytes(&bytes, &granted(""))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("takes batches, but the rule `api.test`"),
        "{refused}"
    );
    Sandbox::load_bytes(&bytes, &granted("idempotency_key = false")).unwrap();
}

#[test]
fn every_problem_of_every_rule_is_reported_at_its_line() {
    let toml = "redis = \"redis://db\"\n\
        [[grant.http]]\nhots = \"api.test\"\n\
        [[grant.http]]\nhost = \"https://api.test\"\nport = 99999\n\
        [[grant.http]]\nhost = \"a.test\"\nheaders.authorization = \"Bearer ${secret:none}\"\n\
        [[grant.http]]\nhost = \"b.test\"\nscheme = \"http\"\nca = \"x.pem\"\nmethods = [\"GET IT\"]\n\
        [[grant.http]]\nhost = \"c.test\"\npath = \"v1\"\naddress = \"300.1.1.1\"\n\
        [[grant.tcp]]\nhost = \"db.test\"\n\
        [grant.secret]\nstripe = \"s3cr3t\"\nother = { file = \"a\", variable = \"B\" }\n";
    let problems = try_settings(toml).unwrap_err();
    for part in [
        "orders.toml:2: `grant.http`: rule 1: `host` is missing",
        "orders.toml:2: `grant.http`: rule 1: unknown key `hots`: did you mean `host`?",
        "orders.toml:4: `grant.http`: rule 2: `host`: `https://api.test` is not a host",
        "orders.toml:4: `grant.http`: rule 2: `port`: `99999` is not a port",
        "orders.toml:10: `grant.http`: rule 4: `ca` means nothing",
        "orders.toml:10: `grant.http`: rule 4: `methods`: `GET IT` is not a method",
        "orders.toml:15: `grant.http`: rule 5: `path`: `v1` is not a path",
        "orders.toml:15: `grant.http`: rule 5: `address`: `300.1.1.1` is not an address",
        "orders.toml:19: `grant.tcp`: rule 1: `port` is missing",
        "`grant.secret`: `stripe` is not a table",
        "`grant.secret`: `other`: needs either `file` or `variable`",
    ] {
        assert!(
            problems.contains(part),
            "{part}:\n{}",
            problems.replace("; ", "\n")
        );
    }
    assert!(!problems.contains("s3cr3t"), "{problems}");
    let missing = "[[grant.http]]\nhost = \"a.test\"\nheaders.x = \"${secret:none}\"\n";
    let problems = try_settings(missing).unwrap_err();
    assert!(problems.contains("names the secret `none`"), "{problems}");
    let plain = "[[grant.http]]\nhost = \"a.test\"\nscheme = \"http\"\nheaders.x = \"${secret:s}\"\n\
        [grant.secret]\ns = { variable = \"STRIPE\" }\n";
    let problems = try_settings(plain).unwrap_err();
    assert!(problems.contains("without encryption"), "{problems}");
}

#[tokio::test]
async fn standard_log_events_have_a_level_and_the_limits_of_stdout() {
    let mut rig = rig("");
    rig.run("log:warn|disk is nearly full+log:info|a\u{1b}[31mred")
        .await;
    let lines = rig.lines();
    assert_eq!(lines[0], "warn: checkout: disk is nearly full");
    assert!(
        lines[1].starts_with("info: checkout: a\\u{1b}[31mred"),
        "{lines:?}"
    );
    let small = Settings {
        limits: Limits {
            log_attempt: 128,
            ..Limits::default()
        },
        ..settings(
            "[[grant.http]]\nhost = \"a.test\"\n[grant.secret]\nneeded = { variable = \"NEEDED\", expose = true }\n",
        )
    };
    let mut rig = Rig::guest("outbound", &small);
    let report = rig.run("log:info|one+log:info|two+log:info|three").await;
    assert!(report.log_bytes_dropped > 0);
}

#[tokio::test]
async fn a_secret_of_a_file_is_read_again_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stripe");
    std::fs::write(&path, "one\n").unwrap();
    let mut rig = rig(&format!(
        "[grant.secret]\nstripe = {{ file = \"{}\", expose = true }}\n",
        path.display()
    ));
    assert_eq!(rig.reason("secret:stripe").await, r#"Ok("one")"#);
    let next = dir.path().join("next");
    std::fs::write(&next, "two\n").unwrap();
    std::fs::rename(&next, &path).unwrap();
    let mut last = String::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while last != r#"Ok("two")"# {
        assert!(Instant::now() < deadline, "{last}");
        last = rig.reason("secret:stripe").await;
    }
}

#[test]
fn both_versions_of_the_standard_configuration_are_granted() {
    use hostler_tests::guests::handler_beside;
    for version in ["0.2.0-rc.1", "0.2.0-draft-2024-09-27"] {
        let component = handler_beside(&format!(
            r#"(import "wasi:config/store@{version}" (instance
                (type $error (variant (case "upstream" string) (case "io" string)))
                (export "error" (type $e (eq $error)))
                (export "get" (func (param "key" string)
                    (result (result (option string) (error $e)))))))"#
        ));
        let refused = Sandbox::load_bytes(&component, &Settings::default()).unwrap_err();
        assert!(
            refused.to_string().contains("needs the grant `config`"),
            "{refused}"
        );
        Sandbox::load_bytes(&component, &settings("[grant.config]\na = \"b\"\n")).unwrap();
    }
}

mod measured {
    use super::*;
    use crate::grants::outbound_scene::{grown, resident};

    /// How long messages take that do nothing, one after the other: the 99th percentile.
    async fn honest_p99(sandbox: &Sandbox) -> Duration {
        let mut rig = Rig::of(sandbox.clone());
        let mut took = Vec::new();
        for _ in 0..500 {
            let began = Instant::now();
            assert_eq!(rig.run("ack").await.outcome, Outcome::Ack);
            took.push(began.elapsed());
        }
        took.sort_unstable();
        took[took.len() * 99 / 100]
    }

    /// Attempts that wait for a server that never answers.
    async fn waiting(sandbox: &Sandbox, web: &Web, count: usize) -> tokio::task::JoinSet<()> {
        let mut calls = tokio::task::JoinSet::new();
        let body = format!("text:waits+fetch:GET|{}", url(web, "/never"));
        let begun = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
        for _ in 0..count {
            let mut rig = Rig::of(sandbox.clone());
            let (body, begun) = (body.clone(), std::sync::Arc::clone(&begun));
            calls.spawn(async move {
                let lines = rig.capture.clone();
                let running = rig.run(&body);
                let watch = async {
                    while lines.take().is_empty() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    _ = running => {}
                    () = watch => {}
                }
            });
        }
        let all = async || begun.load(std::sync::atomic::Ordering::Relaxed) == count;
        eventually("all attempts wait", all).await;
        calls
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn responses_in_parts_of_one_byte_take_the_memory_of_their_bytes() {
        let web = Web::start().await;
        let toml = "concurrency = 16\ntimeout = \"50s\"\ncpu = \"50s\"\n".to_owned()
            + &rule(&web, "timeout = \"50s\"\n");
        let sandbox = rig(&toml).sandbox;
        let body = format!("fetch:GET|{}|len", url(&web, "/bits/200000"));
        let whole = "200 200704";
        assert_eq!(Rig::of(sandbox.clone()).reason(&body).await, whole);
        let all = (0..4).map(|_| {
            let (mut rig, body) = (Rig::of(sandbox.clone()), body.clone());
            tokio::spawn(async move { rig.reason(&body).await })
        });
        let (most, ends) = grown(futures_util::future::join_all(all)).await;
        assert!(
            ends.iter().all(|end| end.as_ref().unwrap() == whole),
            "{ends:?}"
        );
        // In the host, up to twice the bytes; in the guest, the bytes twice; an instance and its stacks. A part that keeps
        // the buffer it came in takes forty bytes for one: 32 MiB.
        println!("{} KiB more for 4 responses of 196 KiB", most >> 10);
        assert!(most < 16 << 20, "{most} bytes more");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn fields_take_at_most_as_much_memory_as_the_guest() {
        let web = Web::start().await;
        let toml = "timeout = \"50s\"\ncpu = \"50s\"\n".to_owned() + &rule(&web, "");
        let mut rig = rig(&toml);
        // As many as fit into each: short ones cost most.
        let mut fitting = Vec::new();
        for headers in [1_000, 500, 250, 125, 60, 30, 15] {
            let one = rig.run(&format!("hold:fields|1|{headers}")).await.outcome;
            if one == Outcome::Ack {
                fitting.push(headers);
            }
        }
        println!("{fitting:?} headers fit into one");
        assert!(!fitting.is_empty());
        for headers in fitting.into_iter().take(1) {
            let body = format!("hold:fields|900|{headers}+sleep:100");
            let (most, report) = grown(rig.run(&body)).await;
            println!("{headers}: {} KiB more, {:?}", most >> 10, rig.lines());
            assert_eq!(report.outcome, Outcome::Ack);
            assert!(most < 80 << 20, "{most} bytes more");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_hundred_waiting_attempts_do_not_slow_the_others() {
        let web = Web::start().await;
        let toml = "concurrency = 210\ntimeout = \"60s\"\n".to_owned()
            + &rule(
                &web,
                "timeout = \"60s\"\nconnections = 300\nin_flight = 300\n",
            );
        let sandbox = rig(&toml).sandbox;
        let alone = honest_p99(&sandbox).await;
        let mut calls = waiting(&sandbox, &web, 200).await;
        let beside = honest_p99(&sandbox).await;
        println!("p99 of honest attempts: {alone:?} alone, {beside:?} beside 200 that wait");
        assert!(
            beside < alone * 5 + Duration::from_millis(20),
            "{alone:?} {beside:?}"
        );
        calls.shutdown().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn thousands_of_waiting_attempts_take_bounded_memory() {
        const ATTEMPTS: usize = 2_000;
        let web = Web::start().await;
        let toml = format!("concurrency = {}\ntimeout = \"60s\"\n", ATTEMPTS + 1)
            + &rule(
                &web,
                "timeout = \"60s\"\nconnections = 50\nin_flight = 10000\n",
            );
        let sandbox = rig(&toml).sandbox;
        let before = resident();
        let mut calls = waiting(&sandbox, &web, ATTEMPTS).await;
        let each = resident().saturating_sub(before) / ATTEMPTS as u64;
        println!("{} KiB for each of {ATTEMPTS} waiting attempts", each >> 10);
        assert!(each < 2 << 20, "{each} bytes for each");
        calls.shutdown().await;
    }
}
