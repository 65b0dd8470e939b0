//! The sandbox as a [`Handler`]: where the loop and wasmtime's room meet.

use std::sync::Arc;

use crate::runtime::executor::{Call, Handler, Report};
use crate::sandbox::{self, LogSink, Sandbox};

/// A loaded component, called for each attempt.
#[derive(Debug)]
pub struct Sandboxed {
    sandbox: Sandbox,
    logs: LogSink,
}

impl Sandboxed {
    /// Run this component; its stdout and stderr become log events.
    pub fn new(sandbox: Sandbox) -> Self {
        Self {
            sandbox,
            logs: LogSink::Tracing,
        }
    }
}

impl Handler for Sandboxed {
    type Slot = sandbox::Slot;

    fn slot(&self) -> Self::Slot {
        self.sandbox.slot()
    }

    async fn run<'a>(&'a self, slot: &'a mut Self::Slot, call: Call<'a>) -> Report {
        let call = sandbox::Call {
            message: call.message,
            attempt: call.attempt,
            max_attempts: call.max_attempts,
            cancelled: call.cancelled,
            logs: &self.logs,
        };
        let report = self.sandbox.call(slot, call).await;
        Report {
            outcome: report.outcome,
            digest: Arc::clone(self.sandbox.digest()),
            log_bytes_dropped: report.log_bytes_dropped,
        }
    }

    fn digest(&self) -> Arc<str> {
        Arc::clone(self.sandbox.digest())
    }
}
