//! The handler of `hostler dev`: runs that of a host, and reports every attempt.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};

use super::{Event, Show};
use crate::delivery::outcome::Outcome;
use crate::delivery::signature::signature;
use crate::rollout::versions::Versions;
use crate::runtime::sandboxed::{Sandboxed, Slot};
use crate::runtime::{Call, Handler, Report};
use crate::sandbox::{Capture, LogSink};
use crate::workbench::attempt::Verdict;
use crate::workbench::text::{micros, short};

/// The most causes of faults that are counted.
const CAUSES_MAX: usize = 1_000;

/// Runs the handler of a host, and reports each attempt.
pub(super) struct TracingHandler {
    handler: Sandboxed,
    show: Show,
    /// How often a fault had each cause.
    causes: Mutex<HashMap<String, u64>>,
}

impl TracingHandler {
    pub(super) fn new(handler: Sandboxed, show: Show) -> Self {
        Self {
            handler,
            show,
            causes: Mutex::default(),
        }
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
    /// How many attempts have faulted for the same cause, with this one; 0 = it is no fault.
    #[serde(skip)]
    pub same_cause: u64,
    /// How long it took.
    #[serde(rename = "duration_us", serialize_with = "as_micros")]
    pub duration: Duration,
    /// The digest of the handler.
    pub handler: &'a str,
    /// The lines that it wrote.
    pub logs: Vec<&'a str>,
}

// No batches: each message is reported by itself.
impl Handler for TracingHandler {
    type Slot = Slot;

    fn slot(&self) -> Self::Slot {
        self.handler.slot()
    }

    async fn run<'a>(&'a self, slot: &'a mut Self::Slot, call: Call<'a>) -> Report {
        let capture = Capture::default();
        let logs = &LogSink::Capture(capture.clone());
        let report = self.handler.run(slot, Call { logs, ..call }).await;
        self.report(&call, &report, &capture);
        report
    }

    fn idle_timeout(&self, slot: &Self::Slot) -> Option<Duration> {
        self.handler.idle_timeout(slot)
    }

    fn on_idle(&self, slot: &mut Self::Slot) {
        self.handler.on_idle(slot);
    }

    fn on_wait(&self, slot: &mut Self::Slot) {
        self.handler.on_wait(slot);
    }

    fn digest(&self) -> Arc<str> {
        self.handler.digest()
    }

    fn versions(&self) -> Option<&Arc<Versions>> {
        self.handler.versions()
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
            verdict: Verdict::of(report),
            same_cause: self.same_cause(&report.outcome),
            duration: report.duration,
            handler: &report.digest,
            logs: lines.iter().map(|line| line.text.as_str()).collect(),
        }));
    }
}

impl TracingHandler {
    /// How often a fault had the cause of this one.
    fn same_cause(&self, outcome: &Outcome) -> u64 {
        let Outcome::Fault(fault) = outcome else {
            return 0;
        };
        let detail = format!("{}: {}", fault.kind.label(), fault.detail);
        let mut causes = self.causes.lock();
        if causes.len() >= CAUSES_MAX {
            causes.clear();
        }
        let times = causes.entry(signature("", &detail)).or_default();
        *times += 1;
        *times
    }
}

fn as_micros<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    micros(*duration).serialize(serializer)
}
