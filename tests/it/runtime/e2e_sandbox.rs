//! The sandbox in a host: panics of the host, instances that do not start, many waiting guests,
//! grants, traces, very large messages.

use hostler_tests::checker::DeadLetter;
use hostler_tests::guests::{HANDLE, exporting, guest};
use hostler_tests::host::Line;
use hostler_tests::redis::eventually;

use crate::rollout::swap_scene;
use crate::runtime::e2e_scene::Scene;

#[tokio::test]
async fn three_messages_that_make_the_host_panic_stop_the_queue() {
    let mut scene = Scene::new().await;
    let options = scene
        .host()
        .flag("handler", &guest("saboteur").display().to_string())
        .flags("backoff-first=5ms concurrency=1")
        .admin()
        .cap(3);
    let host = options.ready().await;
    // One message that fails often does not stop the queue.
    let first = scene.publish("host-panic").await;
    scene.publish("ack").await;
    let look = scene.emptied().await;
    let dead = look.dead_letters_of(&first)[0];
    assert_eq!(dead.reason(), "max-deliveries", "each panic was charged");
    let detail = dead.header("x-dead-letter-detail").unwrap();
    assert!(detail.contains("host-panic"), "{detail}");
    // Its three, and that of the other message.
    host.starts(4).await;
    assert_eq!(host.witness().attempts(&first), [1, 2, 3]);
    assert_eq!(host.get("/ready").0, 200);

    scene.publish("host-panic").await;
    let third = scene.publish("host-panic").await;
    host.logs("the host panics: stopped").await;
    let (status, reason) = host.get("/ready");
    assert_eq!(status, 503);
    assert!(
        reason.contains("3 messages made the host panic"),
        "{reason}"
    );
    assert!(reason.contains(&third), "{reason}");
    // The host starts no more messages, and loses none.
    let honest = scene.publish_all("ack", 5).await;
    let ended = host.drained().await;
    for id in &honest {
        assert!(ended.witness().attempts(id).is_empty(), "{id}");
    }
    scene.check(&[ended]).await;
    // Another host, with another version, handles the rest.
    let mended = scene.host().cap(9).finish().await;
    for id in honest {
        assert_eq!(mended.witness().attempts(&id), [1]);
    }
}

/// A handler whose instances do not start for a message that belongs to a trace.
pub(crate) fn moody() -> Vec<u8> {
    let items = format!(
        r#"(import "hostler:handler/delivery@1.0.0" (instance $delivery
            (export "trace-context" (func (result (tuple (option string) (option string)))))))
        (core module $base
            (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024))
        (core instance $base (instantiate $base))
        (alias core export $base "memory" (core memory $memory))
        (alias core export $base "realloc" (core func $realloc))
        (core func $trace (canon lower (func $delivery "trace-context")
            (memory $memory) (realloc $realloc)))
        (core module $main
            (import "base" "memory" (memory 1))
            (import "host" "trace" (func $trace (param i32)))
            (start $start)
            (func $start
                (call $trace (i32.const 64))
                (if (i32.load8_u (i32.const 64)) (then unreachable)))
            (func (export "handle") {} i32.const 0))
        (core instance $core (instantiate $main
            (with "base" (instance $base))
            (with "host" (instance (export "trace" (func $trace))))))
        (alias core export $core "handle" (core func $run))"#,
        HANDLE.core
    );
    exporting(&HANDLE, "1.0.0", &items)
}

#[tokio::test]
async fn instances_that_do_not_start_stop_the_queue_and_charge_no_message() {
    let scene = swap_scene::Scene::new(&moody()).await;
    let host = scene.host().cap(1).flag("concurrency", "2").ready().await;
    scene.publish((0..5).map(|i| i.to_string()));
    scene.emptied().await;
    let trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = async |count| {
        for _ in 0..count {
            let words: [&[u8]; 7] = [
                b"XADD",
                b"orders",
                b"*",
                b"_payload",
                b"echo",
                b"h:traceparent",
                trace,
            ];
            scene.raw.ask_words(&words).await;
        }
    };
    traced(3).await;
    let said = "no instance of the handler: stopped";
    // The host tries again. No try is charged: at a cap of one, a charge would be the last.
    host.logs_times(said, 2).await;
    let (status, reason) = host.get("/ready");
    assert_eq!(status, 503);
    let line = &swap_scene::said(&host, said)[0];
    let detail = line.text("detail").unwrap();
    assert!(
        detail.contains("trap") && detail.contains("unreachable"),
        "{detail}"
    );
    assert!(reason.contains("unreachable"), "{reason}");
    eventually("its messages went back", async || {
        host.metric("hostler_held") == 0
    })
    .await;
    // New messages wait.
    traced(50).await;
    assert_eq!(scene.raw.number("XLEN orders:dead").await, 0);
    let mended = std::fs::read(guest("scripted")).unwrap();
    scene.put(&mended);
    swap_scene::runs(&host, &mended).await;
    host.logs("the handler is run again").await;
    scene.emptied().await;
    assert_eq!(host.get("/ready").0, 200);
    // Each detail names the attempt.
    let dead = scene.dead().await;
    assert_eq!(dead.len(), 53);
    for dead in dead {
        assert_eq!(dead.reason(), "dropped");
        assert_eq!(dead.header("x-dead-letter-attempts"), Some("1"));
        let detail = dead.header("x-dead-letter-detail").unwrap();
        assert!(detail.contains(" attempt=1 "), "{detail}");
    }
    let ended = host.drain().await;
    let summary = ended.expect_code(0).json();
    assert_eq!(summary["acked"], 5);
    let unmade = summary["faults"]["instantiation"].as_u64().unwrap();
    assert_eq!(summary["attempts"], 58 + unmade);
}

#[tokio::test]
async fn many_guests_that_wait_need_no_cores() {
    const GUESTS: usize = 256;
    let mut scene = Scene::new().await;
    // Each waits for longer than the test takes, in a host with two threads.
    scene.publish_all("sleep:600000", GUESTS).await;
    let host = scene
        .host()
        .flag("concurrency", &GUESTS.to_string())
        .flag("timeout", "1h")
        .variable("TOKIO_WORKER_THREADS", "2");
    let host = host.ready().await;
    // Two at a time, no third one would start.
    host.starts(GUESTS).await;
    let ended = host.kill().await;
    let faults = ended.count(|line| line.message() == "the handler faulted");
    assert_eq!(faults, 0);
}

/// The lines about this message.
fn lines_of<'a>(log: &'a [Line], id: &str) -> Vec<&'a Line> {
    let of = |line: &&Line| line.text("message_id") == Some(id);
    log.iter().filter(of).collect()
}

#[tokio::test]
async fn every_line_about_an_attempt_names_the_handler_and_the_trace() {
    let mut scene = Scene::new().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let header = format!("00-{trace}-00f067aa0ba902b7-01");
    let traced = [("traceparent", &*header)];
    let id = scene.publish_with("text:hello+trap", &traced).await;
    let host = scene
        .host()
        .cap(2)
        .flag("log-level", "debug")
        .admin()
        .ready()
        .await;
    let look = scene.emptied().await;
    let dead = look.dead_letters_of(&id)[0];
    let digest = dead.header("x-dead-letter-handler").unwrap().to_owned();
    assert!(digest.starts_with("sha256:"), "{digest}");
    let detail = dead.header("x-dead-letter-detail").unwrap();
    assert!(
        detail.contains("unreachable") && detail.contains("script::"),
        "it names the function: {detail}"
    );
    let (_, metrics) = host.get("/metrics");
    assert!(metrics.contains(&digest), "metrics name the handler");
    let ended = host.drain().await;
    let lines = lines_of(&ended.log, &id);
    let guest: Vec<_> = lines
        .iter()
        .filter(|line| line.text("line") == Some("hello"))
        .collect();
    let faulted: Vec<_> = lines
        .iter()
        .filter(|line| line.message() == "the handler faulted")
        .collect();
    assert_eq!((guest.len(), faulted.len()), (2, 2));
    for (said, times) in [("requeued", 1), ("dead-lettered", 1)] {
        let found: Vec<_> = lines.iter().filter(|l| l.message() == said).collect();
        assert_eq!(found.len(), times, "{said}");
        if said == "dead-lettered" {
            assert_eq!(found[0].text("level"), Some("WARN"));
        }
        assert!(found.iter().all(|l| l.text("handler") == Some(&*digest)));
    }
    for line in guest {
        assert_eq!(line.text("handler"), Some(&*digest));
        assert_eq!(line.text("trace_id"), Some(trace));
        assert_eq!(line.text("span_id"), Some("00f067aa0ba902b7"));
    }
    for line in faulted {
        assert_eq!(line.text("handler"), Some(&*digest));
        assert_eq!(line.text("level"), Some("WARN"));
        assert_eq!(line.text("trace_id"), Some(trace));
        assert!(
            line.text("detail").unwrap().contains("script::"),
            "{line:?}"
        );
    }
}

#[tokio::test]
async fn a_dead_letter_and_the_log_say_what_the_guest_wrote_last() {
    let mut scene = Scene::new().await;
    let id = scene.publish("panic").await;
    let ended = scene.host().cap(1).until_empty().finish().await;
    let look = scene.look().await;
    let detail = look.dead_letters_of(&id)[0].header("x-dead-letter-detail");
    let expected = "trap: stderr: asked to panic, at ";
    assert!(detail.unwrap().starts_with(expected), "{detail:?}");
    assert!(detail.unwrap().contains("; wasm trap: "), "{detail:?}");
    let faulted = lines_of(&ended.log, &id)
        .into_iter()
        .find(|line| line.message() == "the handler faulted");
    let detail = faulted.unwrap().text("detail").unwrap();
    assert!(
        detail.starts_with("stderr: asked to panic, at "),
        "{detail}"
    );
    let url = scene.server.url();
    let peek = ["dlq", "peek", "--redis", &url, "orders:dead"];
    let shown = hostler_tests::command::run(peek).ok().stdout;
    assert!(shown.contains("asked to panic"), "{shown}");
}

#[tokio::test]
async fn a_handler_gets_its_values_from_the_file_and_no_log_shows_them() {
    let mut scene = Scene::new().await;
    let file = scene.server.dir().join("orders.toml");
    let secret = "s3cr3t-of-the-handler";
    let text = format!("[grant.config]\nregion = \"eu\"\ntoken = \"{secret}\"\nretries = 3\n");
    std::fs::write(&file, text).unwrap();
    let id = scene.publish("config:region").await;
    let number = scene.publish("config:retries").await;
    let host = scene
        .host()
        .flag("handler", &guest("configured").display().to_string())
        .dead_letter()
        .flag("log-level", "trace")
        .until_empty();
    // Without the grant the host refuses the import by its name.
    let refused = host.end().await;
    refused.expect_code(65);
    let stderr = refused.stderr();
    assert!(
        stderr.contains("wasi:config/store@0.2.0-rc.1 (needs the grant `config`)"),
        "{stderr}"
    );
    let ended = host
        .flag("config", &file.display().to_string())
        .finish()
        .await;
    let look = scene.look().await;
    for (id, value) in [(id, "eu"), (number, "3")] {
        let dead = look.dead_letters_of(&id)[0];
        assert_eq!(dead.header("x-dead-letter-detail"), Some(value));
    }
    assert!(!ended.stderr().contains(secret), "values are not logged");
}

#[tokio::test]
async fn a_message_with_very_many_headers_harms_no_neighbour() {
    very_many_headers(100_000).await;
}

mod long {
    #[tokio::test]
    async fn a_message_with_as_many_headers_as_a_command_carries_harms_no_neighbour() {
        super::very_many_headers(400_000).await;
    }
}

async fn very_many_headers(count: usize) {
    let mut scene = Scene::new().await;
    let before = scene.publish_all("ack", 20).await;
    let names: Vec<String> = (0..count).map(|i| format!("h:h{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*", b"_payload", b"drop:handled"];
    for name in &names {
        words.extend([name.as_bytes(), b"v"]);
    }
    scene.raw.ask_words(&words).await;
    let after = scene.publish_all("ack", 20).await;
    let host = scene.host().cap(1).until_empty();
    let ended = host.end().await;
    let summary = ended.expect_code(0).json();
    assert_eq!(summary["acked"], 40);
    let look = scene.look().await;
    for id in before.iter().chain(&after) {
        assert!(look.dead_letters_of(id).is_empty(), "{id} is a neighbour");
    }
    // The handler may have dropped it, or a limit may have ended it. Its dead letter has all headers.
    let dead = DeadLetter::all(&scene.raw, "orders:dead").await;
    assert_eq!(dead.len(), 1);
    let detail = dead[0].header("x-dead-letter-detail").unwrap();
    let is_limit = ["memory-limit", "cpu-timeout", "wall-timeout"]
        .iter()
        .any(|limit| detail.starts_with(limit));
    assert!(detail == "handled" || is_limit, "{detail}");
    for name in [&names[0], &names[count - 1]] {
        assert_eq!(dead[0].field(name.as_bytes()), Some(&b"v"[..]));
    }
}
