//! The sandbox as a [`Handler`]: where the loop and wasmtime's room meet.

use std::sync::Arc;
use std::time::Duration;

use crate::runtime::executor::{Call, Handler, Report};
use crate::runtime::versions::{Origin, Versions};
use crate::sandbox::{self, LogSink, Sandbox};

/// The handler in its versions: each attempt is called in the one that it picks at its start.
#[derive(Debug)]
pub struct Sandboxed {
    versions: Arc<Versions>,
    logs: LogSink,
}

impl Sandboxed {
    /// Run this component, and no other.
    pub fn new(sandbox: Sandbox) -> Self {
        Self::of(Arc::new(Versions::new(sandbox, Origin::File)))
    }

    /// Run what these versions say; stdout and stderr become log events.
    pub fn of(versions: Arc<Versions>) -> Self {
        Self {
            versions,
            logs: LogSink::Tracing,
        }
    }
}

impl Handler for Sandboxed {
    type Slot = sandbox::Slot;

    fn slot(&self) -> Self::Slot {
        sandbox::Slot::default()
    }

    async fn run<'a>(&'a self, slot: &'a mut Self::Slot, call: Call<'a>) -> Report {
        // Picked once: whatever changes meanwhile, this attempt ends on the version it began with.
        let sandbox = self.versions.pick(&call.message.id);
        let call = sandbox::Call {
            message: call.message,
            attempt: call.attempt,
            max_attempts: call.max_attempts,
            cancelled: call.cancelled,
            logs: &self.logs,
        };
        let report = sandbox.call(slot, call).await;
        Report {
            outcome: report.outcome,
            digest: Arc::clone(sandbox.digest()),
            log_bytes_dropped: report.log_bytes_dropped,
        }
    }

    fn patience(&self, slot: &Self::Slot) -> Option<Duration> {
        slot.patience()
    }

    fn rest(&self, slot: &mut Self::Slot) {
        slot.rest();
    }

    fn digest(&self) -> Arc<str> {
        self.versions.digest()
    }

    fn versions(&self) -> Option<&Arc<Versions>> {
        Some(&self.versions)
    }
}
