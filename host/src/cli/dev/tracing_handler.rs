//! The handler of `hostler dev`: runs the sandbox, and prints every attempt on stdout.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::cli::invoke::Verdict;
use crate::cli::output;
use crate::cli::text::{micros, one_line, short};
use crate::rollout::versions::Versions;
use crate::runtime::{Call, Handler, Report};
use crate::sandbox::{self, Capture, LogSink};

/// Runs the current version, and prints each attempt.
pub(super) struct TracingHandler {
    versions: Arc<Versions>,
    json: bool,
}

impl TracingHandler {
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
    #[serde(flatten)]
    verdict: Verdict<'a>,
    duration_us: u64,
    handler: &'a str,
    logs: Vec<&'a str>,
}

impl Handler for TracingHandler {
    type Slot = sandbox::Slot;

    fn slot(&self) -> Self::Slot {
        sandbox::Slot::default()
    }

    async fn run<'a>(&'a self, slot: &'a mut Self::Slot, call: Call<'a>) -> Report {
        let sandbox = self.versions.pick(&call.message.id);
        let capture = Capture::default();
        let logs = &LogSink::Capture(capture.clone());
        let report = sandbox.call(slot, Call { logs, ..call }).await;
        self.print(&call, &report, &capture, sandbox.digest());
        Report::of(report, Arc::clone(sandbox.digest()), None)
    }

    fn idle_timeout(&self, slot: &Self::Slot) -> Option<Duration> {
        slot.idle_timeout()
    }

    fn on_idle(&self, slot: &mut Self::Slot) {
        slot.on_idle();
    }

    fn digest(&self) -> Arc<str> {
        self.versions.digest()
    }

    fn versions(&self) -> Option<&Arc<Versions>> {
        Some(&self.versions)
    }
}

impl TracingHandler {
    fn print(&self, call: &Call<'_>, report: &sandbox::Report, capture: &Capture, digest: &str) {
        let verdict = Verdict::new(&report.outcome);
        let lines = capture.take();
        let body = short(&String::from_utf8_lossy(&call.message.body));
        let attempt = Attempt {
            id: &call.message.id,
            queue: &call.message.queue,
            attempt: call.attempt,
            body: &body,
            verdict,
            duration_us: micros(report.duration),
            handler: digest,
            logs: lines.iter().map(|line| line.text.as_str()).collect(),
        };
        let printed = output::either(self.json, &attempt, |attempt| {
            let mut text = format!(
                "{}  attempt {}  {body}\n  {}  ({:.1?})",
                one_line(attempt.id),
                attempt.attempt,
                one_line(&verdict.to_string()),
                report.duration
            );
            text.extend(attempt.logs.iter().map(|line| format!("\n  | {line}")));
            text
        });
        // stdout cannot be written: the handler runs on.
        if let Err(failure) = printed {
            tracing::warn!("{}", failure.what);
        }
    }
}
