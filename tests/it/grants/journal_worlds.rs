//! Recorded calls of handlers that were written for other hosts, and of programs: each makes its requests by `wasi:http`,
//! and its library has no knowledge of a journal.

use hostler_tests::guests::guest;
use hostler_tests::redis::eventually;

use crate::grants::journal::Journaled;

/// Messages whose second call finds a server that is away, and a host that is killed meanwhile.
async fn repeats_no_recorded_call(name: &str) {
    const MESSAGES: usize = 4;
    let mut all = Journaled::new("").await;
    all.web.away(true);
    let port = all.web.port();
    let call = |path: &str, body: &str| format!("call:POST|http|api.test:{port}|{path}|b={body}");
    for n in 0..MESSAGES {
        let calls = [
            call("/ok", &format!("{n}-first")),
            call("/gate", &format!("{n}-gate")),
            call("/ok", &format!("{n}-last")),
        ];
        all.scene.publish(&calls.join("+")).await;
    }
    let options = all
        .host()
        .cap(1_000)
        .flag("handler", &guest(name).display().to_string())
        .flags("breaker=off backoff-max=50ms");
    for _ in 0..2 {
        let before = all.counts();
        let host = options.ready().await;
        eventually(
            "each message has come to the server that is away",
            async || {
                let counts = all.counts();
                let of = |body: &str| counts.get(body).copied().unwrap_or(0);
                let was = |body: &str| before.get(body).copied().unwrap_or(0);
                (0..MESSAGES).all(|n| {
                    let body = format!("{n}-gate");
                    of(&body) >= was(&body) + 2
                })
            },
        )
        .await;
        host.kill().await;
    }
    all.web.away(false);
    let host = options.ready().await;
    all.scene.emptied().await;
    for (body, times) in all.counts() {
        match body.ends_with("-gate") {
            true => assert!(times > 4, "{body}: {times}"),
            false => assert_eq!(times, 1, "{body}"),
        }
    }
    assert_eq!(all.counts().len(), 3 * MESSAGES);
    assert!(host.metric("hostler_journal_replayed_total") > 0);
    all.is_gone().await;
    host.drained().await;
}

#[tokio::test]
async fn a_handler_for_spin_repeats_no_recorded_call() {
    repeats_no_recorded_call("calling_spin").await;
}

#[tokio::test]
async fn a_handler_for_wasmcloud_repeats_no_recorded_call() {
    repeats_no_recorded_call("calling_wasmcloud").await;
}

#[tokio::test]
async fn a_program_repeats_no_recorded_call() {
    repeats_no_recorded_call("calling-program").await;
}
