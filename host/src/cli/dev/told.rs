//! The handler of `hostler dev`: the sandbox, and every attempt told on stdout.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::cli::dlq::{line, shown};
use crate::cli::invoke::Verdict;
use crate::cli::output;
use crate::rollout::versions::Versions;
use crate::runtime::{Call, Handler, Report};
use crate::sandbox::{self, Capture, LogSink};

/// Runs the current version, and tells what came of it.
pub(super) struct Told {
    versions: Arc<Versions>,
    json: bool,
}

impl Told {
    pub(super) fn new(versions: Arc<Versions>, json: bool) -> Self {
        Self { versions, json }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct Attempt<'a> {
    id: &'a str,
    queue: &'a str,
    attempt: u32,
    body: &'a str,
    outcome: &'a str,
    delay_ms: Option<u64>,
    reason: Option<&'a str>,
    fault: Option<&'a str>,
    duration_us: u64,
    handler: &'a str,
    logs: Vec<&'a str>,
}

impl Handler for Told {
    type Slot = sandbox::Slot;

    fn slot(&self) -> Self::Slot {
        sandbox::Slot::default()
    }

    async fn run<'a>(&'a self, slot: &'a mut Self::Slot, call: Call<'a>) -> Report {
        let sandbox = self.versions.pick(&call.message.id);
        let capture = Capture::default();
        let report = sandbox
            .call(
                slot,
                sandbox::Call {
                    message: call.message,
                    attempt: call.attempt,
                    max_attempts: call.max_attempts,
                    cancelled: call.cancelled,
                    logs: &LogSink::Capture(capture.clone()),
                },
            )
            .await;
        self.tell(&call, &report, &capture, sandbox.digest());
        Report {
            outcome: report.outcome,
            digest: Arc::clone(sandbox.digest()),
            log_bytes_dropped: report.log_bytes_dropped,
        }
    }

    fn patience(&self, slot: &Self::Slot) -> Option<Duration> {
        slot.idle_timeout()
    }

    fn rest(&self, slot: &mut Self::Slot) {
        slot.on_idle();
    }

    fn digest(&self) -> Arc<str> {
        self.versions.digest()
    }

    fn versions(&self) -> Option<&Arc<Versions>> {
        Some(&self.versions)
    }
}

impl Told {
    fn tell(&self, call: &Call<'_>, report: &sandbox::Report, capture: &Capture, digest: &str) {
        let verdict = Verdict::new(&report.outcome);
        let lines = capture.take();
        let body = shown(&String::from_utf8_lossy(&call.message.body));
        let told = if self.json {
            output::json(&Attempt {
                id: &call.message.id,
                queue: &call.message.queue,
                attempt: call.attempt,
                body: &body,
                outcome: verdict.outcome,
                delay_ms: verdict
                    .delay
                    .map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
                reason: verdict.reason,
                fault: verdict.fault,
                duration_us: u64::try_from(report.duration.as_micros()).unwrap_or(u64::MAX),
                handler: digest,
                logs: lines.iter().map(|line| line.text.as_str()).collect(),
            })
        } else {
            let mut text = format!(
                "{}  attempt {}  {body}\n  {}  ({:.1?})",
                line(&call.message.id),
                call.attempt,
                line(&verdict.to_string()),
                report.duration
            );
            for line in &lines {
                text.push_str(&format!("\n  | {}", line.text));
            }
            output::line(&text)
        };
        // Whoever read it has gone: the handler runs on.
        if let Err(failure) = told {
            tracing::warn!("{}", failure.what);
        }
    }
}
