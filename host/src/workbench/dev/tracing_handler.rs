//! The handler of `hostler dev`: runs the sandbox, and reports every attempt.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{Event, Show};
use crate::rollout::versions::Versions;
use crate::runtime::{Call, Handler, Report};
use crate::sandbox::{self, Capture, LogSink};
use crate::workbench::attempt::Verdict;
use crate::workbench::text::{micros, short};

/// Runs the current version, and reports each attempt.
pub(super) struct TracingHandler {
    versions: Arc<Versions>,
    show: Show,
}

impl TracingHandler {
    pub(super) fn new(versions: Arc<Versions>, show: Show) -> Self {
        Self { versions, show }
    }
}

/// An attempt that has ended; as JSON, a line of `--json`.
#[derive(Debug, Serialize)]
pub struct Attempt<'a> {
    /// The id of the message.
    pub id: &'a str,
    /// Its queue.
    pub queue: &'a str,
    /// The number of the attempt.
    pub attempt: u32,
    /// The body of the message, cut after 60 characters.
    pub body: &'a str,
    /// The outcome.
    #[serde(flatten)]
    pub verdict: Verdict<'a>,
    /// How long it took.
    #[serde(rename = "duration_us", serialize_with = "as_micros")]
    pub duration: Duration,
    /// The digest of the handler.
    pub handler: &'a str,
    /// The lines that it wrote.
    pub logs: Vec<&'a str>,
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
        self.report(&call, &report, &capture);
        report
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
    fn report(&self, call: &Call<'_>, report: &Report, capture: &Capture) {
        let lines = capture.take();
        (self.show)(Event::Attempt(&Attempt {
            id: &call.message.id,
            queue: &call.message.queue,
            attempt: call.attempt,
            body: &short(&String::from_utf8_lossy(&call.message.body)),
            verdict: Verdict::new(&report.outcome),
            duration: report.duration,
            handler: &report.digest,
            logs: lines.iter().map(|line| line.text.as_str()).collect(),
        }));
    }
}

fn as_micros<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    micros(*duration).serialize(serializer)
}
