//! The sandbox as a [`Handler`]: where the loop and wasmtime's room meet.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::info;

use crate::delivery::batch::Pieces;
use crate::delivery::outcome::{Fault, Outcome};
use crate::rollout::versions::{Origin, Versions};
use crate::runtime::executor::{Call, Handler, Report, panicked};
use crate::runtime::gather::{Batching, Verdicts};
use crate::sandbox::{self, LogSink, Sandbox, World};

/// The handler in its versions: each attempt is called in the one that it picks at its start.
#[derive(Debug)]
pub struct Sandboxed {
    versions: Arc<Versions>,
    logs: LogSink,
    batching: Batching,
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
            batching: Batching {
                size: 1,
                wait: Duration::ZERO,
                bytes: 0,
            },
        }
    }

    /// Gather messages like this for a handler that takes several.
    pub fn gathering(self, batching: Batching) -> Self {
        Self { batching, ..self }
    }

    fn call<'a>(&'a self, call: &Call<'a>) -> sandbox::Call<'a> {
        sandbox::Call {
            message: call.message,
            attempt: call.attempt,
            max_attempts: call.max_attempts,
            cancelled: call.cancelled,
            logs: &self.logs,
        }
    }

    /// Run a message on one version. A panic of the host is caught here, where it is known which one
    /// it was.
    async fn run_on(&self, sandbox: &Sandbox, slot: &mut sandbox::Slot, call: &Call<'_>) -> Report {
        let ran = AssertUnwindSafe(sandbox.call(slot, self.call(call)));
        let (outcome, log_bytes_dropped) = match ran.catch_unwind().await {
            Ok(report) => (report.outcome, report.log_bytes_dropped),
            Err(_) => {
                // Whatever the slot kept may be half-changed.
                *slot = sandbox::Slot::default();
                (Outcome::Fault(panicked()), 0)
            }
        };
        Report {
            outcome,
            digest: Arc::clone(sandbox.digest()),
            log_bytes_dropped,
        }
    }

    /// Run a batch on one version: whole, and in ever smaller pieces if it faults.
    async fn run_pieces(
        &self,
        sandbox: &Sandbox,
        slot: &mut sandbox::Slot,
        calls: &[(usize, sandbox::Call<'_>)],
        verdicts: &mut Verdicts,
    ) {
        let digest = sandbox.digest();
        let mut pieces = Pieces::of(calls.len());
        while let Some(piece) = pieces.next_piece() {
            let asked: Vec<_> = calls[piece.clone()].iter().map(|(_, call)| *call).collect();
            let call = AssertUnwindSafe(sandbox.call_batch(slot, &asked));
            let (answer, mut log_bytes_dropped) = match call.catch_unwind().await {
                Ok(report) => (report.answer, report.log_bytes_dropped),
                Err(_) => {
                    // Whatever the slot kept may be half-changed.
                    *slot = sandbox::Slot::default();
                    (Err(panicked()), 0)
                }
            };
            let fault = answer.as_ref().err().cloned();
            match pieces.judge(piece.clone(), answer) {
                Some(outcomes) => {
                    for ((place, _), outcome) in calls[piece].iter().zip(outcomes) {
                        let report = Report {
                            outcome,
                            digest: Arc::clone(digest),
                            // Of the whole call: counted once.
                            log_bytes_dropped: std::mem::take(&mut log_bytes_dropped),
                        };
                        verdicts.tell(*place, report).await;
                    }
                }
                None => {
                    verdicts.split(log_bytes_dropped);
                    let messages = piece.len();
                    match fault {
                        Some(Fault { kind, detail }) => {
                            let kind = kind.label();
                            info!(messages, kind, detail, %digest, "a batch faulted: in halves again");
                        }
                        None => info!(messages, %digest, "a batch was miscounted: in halves again"),
                    }
                }
            }
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
        self.run_on(&sandbox, slot, &call).await
    }

    fn batching(&self) -> Option<Batching> {
        self.versions.takes_batches().then_some(self.batching)
    }

    async fn run_batch<'a>(
        &'a self,
        slot: &'a mut Self::Slot,
        calls: &'a [Call<'a>],
        verdicts: &'a mut Verdicts,
    ) {
        // A batch never mixes versions: what a canary gets goes in calls of its own.
        let mut groups: Vec<(Sandbox, Vec<(usize, sandbox::Call<'_>)>)> = Vec::new();
        for (place, call) in calls.iter().enumerate() {
            let sandbox = self.versions.pick(&call.message.id);
            let member = (place, self.call(call));
            match groups
                .iter_mut()
                .find(|(s, _)| s.digest() == sandbox.digest())
            {
                Some((_, group)) => group.push(member),
                None => groups.push((sandbox, vec![member])),
            }
        }
        for (sandbox, group) in groups {
            match sandbox.describe().world {
                World::Batch => self.run_pieces(&sandbox, slot, &group, verdicts).await,
                World::Message => {
                    for (place, _) in group {
                        let report = self.run_on(&sandbox, slot, &calls[place]).await;
                        verdicts.tell(place, report).await;
                    }
                }
            }
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
