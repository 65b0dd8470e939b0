//! Telemetry to a collector that takes the real protocol: spans, metrics, log lines; which attempts are
//! recorded; a collector that does not answer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hostler_tests::collector::{Collector, attribute, hexadecimal};
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{eventually, free_port};
use hostler_tests::web::Web;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::net::TcpListener;

use crate::grants::outbound_scene::{rule, url};
use crate::scene;

type Scene = scene::Scene<()>;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PRODUCER: &str = "00f067aa0ba902b7";

/// `traceparent` of a producer that records its trace, or does not.
fn traceparent(is_sampled: bool) -> String {
    format!("00-{TRACE}-{PRODUCER}-{:02x}", u8::from(is_sampled))
}

fn host(scene: &Scene, collector: &Collector) -> HostOptions {
    HostOptions::new(&scene.server)
        .cap(3)
        .flag("otlp-endpoint", collector.url())
        .flag("backoff-first", "1ms")
}

/// Add a message with these headers. Returns its id.
async fn add(scene: &Scene, body: &str, headers: &[(&str, &str)]) -> String {
    let names: Vec<String> = headers
        .iter()
        .map(|(name, _)| format!("h:{name}"))
        .collect();
    let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*", b"_payload", body.as_bytes()];
    for (name, (_, value)) in names.iter().zip(headers) {
        words.extend([name.as_bytes(), value.as_bytes()]);
    }
    let id = scene.raw.ask_words(&words).await;
    redis::from_redis_value(id).unwrap()
}

/// The spans of `wanted` attempts, in the order of their begin.
async fn attempts(collector: &Collector, wanted: usize) -> Vec<Span> {
    eventually(&format!("{wanted} attempts are recorded"), async || {
        collector.attempts().len() >= wanted
    })
    .await;
    collector.attempts()
}

fn of(span: &Span, key: &str) -> String {
    attribute(&span.attributes, key)
}

fn ids(span: &Span) -> (String, String, String) {
    let ids = [&span.trace_id, &span.span_id, &span.parent_span_id];
    let [trace, span, parent] = ids.map(|id| hexadecimal(id));
    (trace, span, parent)
}

fn is_error(span: &Span) -> bool {
    let status = span.status.as_ref();
    status.is_some_and(|status| status.code() == StatusCode::Error)
}

async fn an_attempt_is_a_span_in_the_trace_of_its_message(protocol: &str) {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    let id = add(
        &scene,
        "text:hello+ack",
        &[("traceparent", &traceparent(true))],
    )
    .await;
    let options = host(&scene, &collector)
        .flag("otlp-protocol", protocol)
        .flag("otlp-service-name", "billing")
        .flag("otlp-sample", "0%");
    let ended = options.finish().await;
    let [span] = &attempts(&collector, 1).await[..] else {
        panic!("one attempt has one span");
    };
    let (trace, own, parent) = ids(span);
    assert_eq!((trace.as_str(), parent.as_str()), (TRACE, PRODUCER));
    assert_eq!(own.len(), 16);
    assert_ne!(own, PRODUCER);
    assert_eq!(span.name, "process orders");
    assert_eq!(span.kind(), SpanKind::Consumer);
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    assert!(!is_error(span));
    let serving = ended.log.iter().find(|line| line.message() == "serving");
    let serving = serving.unwrap();
    for (key, value) in [
        ("messaging.system", "redis"),
        ("messaging.operation.type", "process"),
        ("messaging.operation.name", "process"),
        ("messaging.destination.name", "orders"),
        ("messaging.consumer.group.name", "workers"),
        ("messaging.client.id", serving.text("consumer").unwrap()),
        ("messaging.message.id", &id),
        ("messaging.message.body.size", "14"),
        ("hostler.attempt", "1"),
        ("hostler.outcome", "ack"),
        ("hostler.handler", serving.text("handler").unwrap()),
    ] {
        assert_eq!(of(span, key), value, "{key}");
    }
    let received = collector.received();
    let resource = &received.resources[0].attributes;
    for (key, value) in [
        ("service.name", "billing"),
        ("hostler.queue", "orders"),
        ("hostler.group", "workers"),
    ] {
        assert_eq!(attribute(resource, key), value, "{key}");
    }
    for key in ["service.instance.id", "service.version", "host.name"] {
        assert!(!attribute(resource, key).is_empty(), "{key}");
    }
    // The line of the handler is in the same span: on stderr, and at the collector.
    let line = ended.log.iter().find(|l| l.text("line") == Some("hello"));
    let line = line.unwrap();
    assert_eq!(line.text("trace_id"), Some(TRACE));
    assert_eq!(line.text("span_id"), Some(&*own));
    let hello = line_of(&received.lines, "hello");
    assert_eq!(hexadecimal(&hello.trace_id), TRACE);
    assert_eq!(hexadecimal(&hello.span_id), own);
}

/// The record with this text.
fn line_of(lines: &[(String, LogRecord)], text: &str) -> LogRecord {
    let mut found = lines.iter().filter(|(_, line)| text_of(line) == text);
    let (_, line) = found
        .next()
        .unwrap_or_else(|| panic!("no line `{text}`: {lines:#?}"));
    line.clone()
}

fn text_of(line: &LogRecord) -> String {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    match line.body.clone().and_then(|body| body.value) {
        Some(Value::StringValue(text)) => text,
        _ => String::new(),
    }
}

#[tokio::test]
async fn an_attempt_is_a_span_in_the_trace_of_its_message_by_grpc() {
    an_attempt_is_a_span_in_the_trace_of_its_message("grpc").await;
}

#[tokio::test]
async fn an_attempt_is_a_span_in_the_trace_of_its_message_by_http() {
    an_attempt_is_a_span_in_the_trace_of_its_message("http").await;
}

#[tokio::test]
async fn each_attempt_has_a_span_in_one_trace_and_a_fault_is_an_error() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    add(&scene, "nack,trap,drop:no", &[]).await;
    let options = host(&scene, &collector).flag("otlp-sample", "100%");
    let ended = options.finish().await;
    let spans = attempts(&collector, 3).await;
    assert_eq!(spans.len(), 3);
    let outcomes: Vec<String> = spans.iter().map(|s| of(s, "hostler.outcome")).collect();
    assert_eq!(outcomes, ["nack-requeue", "fault", "drop"]);
    let numbers: Vec<String> = spans.iter().map(|s| of(s, "hostler.attempt")).collect();
    assert_eq!(numbers, ["1", "2", "3"]);
    let traces: BTreeSet<String> = spans.iter().map(|span| ids(span).0).collect();
    assert_eq!(traces.len(), 1, "{traces:?}");
    assert!(spans.iter().all(|span| span.parent_span_id.is_empty()));
    let errors: Vec<bool> = spans.iter().map(is_error).collect();
    assert_eq!(errors, [false, true, false]);
    assert_eq!(of(&spans[1], "error.type"), "trap");
    let detail = &spans[1].status.as_ref().unwrap().message;
    assert!(detail.contains("unreachable"), "{detail}");
    // The lines of the host about an attempt are in its span, and so are those of the handler. The dead letter
    // is of the last.
    for (message, span) in [("the handler faulted", 1), ("dead-lettered", 2)] {
        let line = ended.log.iter().find(|line| line.message() == message);
        let line = line.unwrap();
        let (trace, own, _) = ids(&spans[span]);
        assert_eq!(line.text("trace_id"), Some(&*trace), "{message}");
        assert_eq!(line.text("span_id"), Some(&*own), "{message}");
        assert_eq!(line.text("level"), Some("WARN"), "{message}");
        let received = collector.received();
        let record = line_of(&received.lines, message);
        assert_eq!(hexadecimal(&record.span_id), own, "{message}");
        assert_eq!(record.severity_text, "WARN");
    }
}

#[tokio::test]
async fn what_an_attempt_does_has_spans_of_its_own() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    let web = Web::start().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    let needed = "[grant.secret]\nneeded = { variable = \"NEEDED\", expose = true }\n";
    std::fs::write(&config, format!("{}{needed}", rule(&web, ""))).unwrap();
    let outbound = host(&scene, &collector)
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .variable("NEEDED", "needed");
    let traceparent = traceparent(true);
    let headers = [("traceparent", traceparent.as_str()), ("tracestate", "a=b")];
    let get = |path: &str| format!("send:GET|{}", url(&web, path));
    let body = format!("{}+{}", get("/ok?token=hidden"), get("/status/503"));
    add(&scene, &body, &headers).await;
    outbound.finish().await;
    let spans = attempts(&collector, 1).await;
    let own = ids(&spans[0]).1;
    let all = collector.spans();
    let clients: Vec<&Span> = all
        .iter()
        .filter(|s| s.kind() == SpanKind::Client)
        .collect();
    assert_eq!(clients.len(), 2, "{all:#?}");
    let statuses = ["200", "503"];
    for ((client, seen), status) in clients.iter().zip(web.seen()).zip(statuses) {
        let (trace, id, parent) = ids(client);
        assert_eq!((trace.as_str(), &parent), (TRACE, &own));
        assert_eq!(client.name, "GET");
        assert_eq!(of(client, "http.response.status_code"), status);
        assert_eq!(of(client, "server.address"), "api.test");
        assert_eq!(of(client, "server.port"), web.port().to_string());
        assert_eq!(is_error(client), status == "503");
        // The server continues the trace there.
        let passed = format!("00-{TRACE}-{id}-01");
        assert_eq!(seen.header("traceparent"), Some(&*passed));
        assert_eq!(seen.header("tracestate"), Some("a=b"));
    }
    assert_eq!(of(clients[0], "url.full"), url(&web, "/ok"));
    assert!(
        !format!("{all:?}").contains("hidden"),
        "queries are left out"
    );
}

#[tokio::test]
async fn the_span_of_a_call_says_that_its_answer_was_recorded() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    let web = Web::start().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    let needed = "[grant.secret]\nneeded = { variable = \"NEEDED\", expose = true }\n";
    let granted = format!("{}{needed}", rule(&web, "journal = true\n"));
    std::fs::write(&config, granted).unwrap();
    let outbound = host(&scene, &collector)
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .variable("NEEDED", "needed");
    let charge = format!("send:POST|{}|b=charge", url(&web, "/ok"));
    let traceparent = traceparent(true);
    let headers = [("traceparent", traceparent.as_str())];
    add(&scene, &format!("{charge}+nack,{charge}+ack"), &headers).await;
    outbound.finish().await;
    attempts(&collector, 2).await;
    let mut replayed = Vec::new();
    for span in collector.spans() {
        if span.kind() == SpanKind::Client {
            let is_replayed = (span.attributes.iter()).any(|a| a.key == "hostler.replayed");
            replayed.push((of(&span, "http.response.status_code"), is_replayed));
        }
    }
    replayed.sort();
    let wanted = [("200".to_owned(), false), ("200".to_owned(), true)];
    assert_eq!(replayed, wanted);
    assert_eq!(web.requests(), 1);
}

#[tokio::test]
async fn what_is_published_continues_the_trace_of_its_attempt() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    let keyed = host(&scene, &collector)
        .flag("handler", &guest("keyed").display().to_string())
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag("grant-key-value", r#"{"prefix":"{orders}:kv:"}"#)
        .flag("otlp-sample", "0%");
    let traceparent = traceparent(true);
    let body = "find:a+publish:invoices:lost+nack,find:a+publish:invoices:kept";
    add(&scene, body, &[("traceparent", &traceparent)]).await;
    keyed.finish().await;
    let spans = attempts(&collector, 2).await;
    let all = collector.spans();
    let children = |span: &Span, kind: SpanKind| -> Vec<Span> {
        let children = all.iter().filter(|s| s.parent_span_id == span.span_id);
        children.filter(|s| s.kind() == kind).cloned().collect()
    };
    for span in &spans {
        let reads = children(span, SpanKind::Client);
        assert_eq!(reads.len(), 1, "{reads:?}");
        assert_eq!(reads[0].name, "get");
        assert_eq!(of(&reads[0], "db.system.name"), "redis");
    }
    // Only what the ack published has happened.
    assert!(children(&spans[0], SpanKind::Producer).is_empty());
    let published = children(&spans[1], SpanKind::Producer);
    let [published] = &published[..] else {
        panic!("one message is published: {all:#?}");
    };
    assert_eq!(published.name, "publish invoices");
    assert_eq!(of(published, "messaging.destination.name"), "invoices");
    let entries = hostler_tests::checker::DeadLetter::all(&scene.raw, "invoices").await;
    let [entry] = &entries[..] else {
        panic!("one message");
    };
    let passed = format!("00-{TRACE}-{}-01", ids(published).1);
    assert_eq!(entry.header("traceparent"), Some(&*passed));
}

#[tokio::test]
async fn the_producer_decides_and_a_share_of_the_rest_is_recorded() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    let (sampled, unsampled) = (traceparent(true), traceparent(false));
    // Nothing without a trace is recorded.
    add(&scene, "ack", &[]).await;
    add(&scene, "ack", &[("traceparent", &unsampled)]).await;
    let wanted = add(&scene, "ack", &[("traceparent", &sampled)]).await;
    let none = host(&scene, &collector).flag("otlp-sample", "0%");
    none.finish().await;
    let of_messages = || -> BTreeSet<String> {
        let attempts = collector.attempts();
        let id = |span: &Span| of(span, "messaging.message.id");
        attempts.iter().map(id).collect()
    };
    assert_eq!(of_messages(), BTreeSet::from([wanted]));
    // Everything else is.
    let without = add(&scene, "ack", &[]).await;
    add(&scene, "ack", &[("traceparent", &unsampled)]).await;
    let all = host(&scene, &collector).flag("otlp-sample", "100%");
    all.finish().await;
    let recorded = of_messages();
    assert_eq!(recorded.len(), 2, "{recorded:?}");
    assert!(recorded.contains(&without));
    // Half of it is: each message in all of its attempts, or in none.
    for _ in 0..200 {
        add(&scene, "nack,ack", &[]).await;
    }
    let half = host(&scene, &collector).flag("otlp-sample", "50%");
    half.finish().await;
    let share = of_messages().len() - 2;
    assert!((60..140).contains(&share), "{share}");
    assert_eq!(collector.attempts().len(), 2 + 2 * share);
}

#[tokio::test]
async fn a_batch_is_one_span_with_a_link_to_each_trace() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    let batch = host(&scene, &collector)
        .flag("handler", &guest("batch").display().to_string())
        .flags("batch-size=4 concurrency=1 otlp-sample=0%");
    let (sampled, unsampled) = (traceparent(true), traceparent(false));
    add(&scene, "ack", &[("traceparent", &sampled)]).await;
    add(&scene, "ack", &[("traceparent", &unsampled)]).await;
    add(&scene, "ack", &[]).await;
    batch.finish().await;
    let [span] = &attempts(&collector, 1).await[..] else {
        panic!("one call has one span");
    };
    assert_eq!(of(span, "messaging.batch.message_count"), "3");
    assert!(span.parent_span_id.is_empty());
    assert_ne!(ids(span).0, TRACE);
    let [link] = &span.links[..] else {
        panic!("one message has a trace that is recorded: {span:?}");
    };
    let linked = (hexadecimal(&link.trace_id), hexadecimal(&link.span_id));
    assert_eq!(linked, (TRACE.to_owned(), PRODUCER.to_owned()));
}

#[tokio::test]
async fn metrics_and_log_lines_arrive_and_headers_are_sent_and_not_shown() {
    let scene = Scene::new().await;
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    let collector = Collector::secure(&ca).await;
    let headers = dir.path().join("headers");
    std::fs::write(&headers, "x-key: pl4nted-s3cr3t\n\nx-tenant: acme\n").unwrap();
    for _ in 0..5 {
        add(&scene, "text:hello+ack", &[]).await;
    }
    for protocol in ["grpc", "http"] {
        add(&scene, "trap", &[]).await;
        let options = host(&scene, &collector)
            .cap(1)
            .flag("otlp-protocol", protocol)
            .flag("otlp-ca", &ca.display().to_string())
            .flag("otlp-headers-file", &headers.display().to_string());
        let ended = options.finish().await;
        assert!(!ended.stderr().contains("pl4nted"), "{}", ended.stderr());
    }
    let received = collector.received();
    for sent in &received.headers {
        assert_eq!(sent["x-key"], "pl4nted-s3cr3t");
        assert_eq!(sent["x-tenant"], "acme");
        assert!(sent["user-agent"].to_str().unwrap().contains("hostler/"));
    }
    let shown = format!(
        "{:?}{:?}{:?}",
        received.spans, received.lines, received.metrics
    );
    assert!(!shown.contains("pl4nted"));
    // The metrics are those of the last host: one message faulted.
    let faults = received.metrics.iter().find(|m| m.name == "hostler.faults");
    let Some(Data::Sum(faults)) = faults.and_then(|faults| faults.data.clone()) else {
        panic!("no counter of faults");
    };
    let point = |kind: &str| {
        let mut points = faults.data_points.iter();
        let found = points.find(|point| attribute(&point.attributes, "kind") == kind);
        found.unwrap().clone()
    };
    use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
    assert_eq!(point("trap").value, Some(Value::AsInt(1)));
    assert_eq!(attribute(&point("trap").attributes, "queue"), "orders");
    let hellos = received.lines.iter().filter(|(scope, line)| {
        let stream = attribute(&line.attributes, "stream");
        scope == "guest" && text_of(line) == "hello" && stream == "stdout"
    });
    assert_eq!(hellos.count(), 5);
    let serving = line_of(&received.lines, "serving");
    assert_eq!(attribute(&serving.attributes, "queue"), "orders");
    assert_eq!(serving.severity_text, "INFO");
}

#[tokio::test]
async fn only_what_is_asked_for_is_sent() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    add(&scene, "ack", &[]).await;
    let options = host(&scene, &collector).flags("otlp-signals=logs otlp-sample=100%");
    options.finish().await;
    let received = collector.received();
    assert!(!received.lines.is_empty());
    assert!(received.spans.is_empty() && received.metrics.is_empty());
}

/// That a host with this collector handles messages, counts what it drops, and ends in time.
async fn without_an_answer(endpoint: &str) {
    let scene = Scene::new().await;
    let options = HostOptions::new(&scene.server)
        .flag("handler", &guest("ack").display().to_string())
        .flag("otlp-endpoint", endpoint)
        .flags("otlp-sample=100% otlp-metrics-every=1s reuse=1000 retention=acked")
        .admin();
    let host = options.ready().await;
    // More than its queue holds, so that the first is dropped at once.
    for _ in 0..50 {
        let entry = "XADD orders * _payload ack";
        let script = format!(
            "for i = 1, 100 do redis.call('{}') end",
            entry.replace(' ', "','")
        );
        scene
            .raw
            .ask_words(&[b"EVAL", script.as_bytes(), b"0"])
            .await;
    }
    handled(&scene).await;
    eventually("spans are dropped and counted", async || {
        host.metric("hostler_telemetry_dropped_total{signal=\"traces\"}") > 0
    })
    .await;
    add(&scene, "ack", &[]).await;
    handled(&scene).await;
    let begun = Instant::now();
    let ended = host.drained().await;
    let took = begun.elapsed();
    // Not for as long as it would take to try all of them.
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(ended.json()["acked"], 5_001);
}

/// Wait until every message is acknowledged. It asks Redis: a scrape in each turn would keep the host busy.
async fn handled(scene: &Scene) {
    eventually("all messages are handled", async || {
        scene.raw.number("XLEN orders").await == 0
    })
    .await;
}

#[tokio::test]
async fn a_dead_collector_stops_nothing() {
    without_an_answer(&format!("http://127.0.0.1:{}", free_port())).await;
}

#[tokio::test]
async fn a_collector_that_hangs_stops_nothing() {
    // It takes connections, and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let accepting = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    without_an_answer(&endpoint).await;
    accepting.abort();
}

#[tokio::test]
async fn settings_without_a_collector_and_wrong_ones_are_refused() {
    let scene = Scene::new().await;
    let dir = tempfile::tempdir().unwrap();
    let headers = dir.path().join("headers");
    std::fs::write(&headers, "pl4nted without a colon\n").unwrap();
    let headers = headers.display().to_string();
    for (flags, says) in [
        (vec![("otlp-sample", "1%")], "otlp.endpoint"),
        (vec![("otlp-endpoint", "localhost:4317")], "http"),
        (
            vec![("otlp-endpoint", "http://me:pl4nted@localhost")],
            "otlp.headers_file",
        ),
        (
            vec![
                ("otlp-endpoint", "http://localhost"),
                ("otlp-signals", "traces, spans"),
            ],
            "`spans` is not one of `traces`, `metrics`, `logs`",
        ),
        (
            vec![
                ("otlp-endpoint", "http://localhost"),
                ("otlp-headers-file", &headers),
            ],
            "has no header in line 1",
        ),
    ] {
        let options = HostOptions::new(&scene.server);
        let options = flags
            .iter()
            .fold(options, |options, (name, value)| options.flag(name, value));
        let ended = options.end().await;
        ended.expect_code(64);
        let stderr = ended.stderr();
        assert!(stderr.contains(says), "{says}: {stderr}");
        assert!(!stderr.contains("pl4nted"), "{stderr}");
    }
}
