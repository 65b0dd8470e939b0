//! The sandbox as a [`Handler`].

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tracing::warn;

use crate::delivery::batch::Pieces;
use crate::delivery::outcome::Fault;
use crate::delivery::trace::Trace;
use crate::rollout::versions::{Origin, Versions, View};
use crate::runtime::handler::{Batching, Call, Handler, Report, Verdicts, host_panic, panicked};
use crate::sandbox::{self, BatchReport, Sandbox, World};
use crate::telemetry::otlp::tracer::{About, Begun, Ended, Tracer};

/// The handler with its versions. Each attempt picks its version at its start.
#[derive(Debug)]
pub struct Sandboxed {
    versions: Arc<Versions>,
    batching: Batching,
    /// Records the attempts; `None` = they are not recorded.
    tracer: Option<Tracer>,
}

/// A slot, and the versions as it sees them.
#[derive(Debug, Default)]
pub struct Slot {
    slot: sandbox::Slot,
    view: View,
}

impl Sandboxed {
    /// Run only this component.
    pub fn new(sandbox: Sandbox) -> Self {
        Self::of(Arc::new(Versions::new(sandbox, Origin::File)))
    }

    /// Run these versions; stdout and stderr become log events.
    pub fn of(versions: Arc<Versions>) -> Self {
        Self {
            versions,
            batching: Batching {
                size: 1,
                wait: Duration::ZERO,
                bytes: 0,
            },
            tracer: None,
        }
    }

    /// Record the attempts with this.
    pub fn traced_by(self, tracer: Option<Tracer>) -> Self {
        Self { tracer, ..self }
    }

    /// Gather messages like this for a handler that takes several.
    pub fn gathering(self, batching: Batching) -> Self {
        Self { batching, ..self }
    }

    /// Run a message on one version. A panic of the host is caught here, because only here its version is
    /// known.
    async fn run_on(
        &self,
        (sandbox, digest): (&Sandbox, &Arc<str>),
        slot: &mut sandbox::Slot,
        call: Call<'_>,
    ) -> Report {
        let begun = match &self.tracer {
            Some(tracer) => tracer.begin(call.message),
            None => Begun::default(),
        };
        let traced = Call {
            trace: begun.traced(),
            ..call
        };
        let ran = {
            // It is large: pinned, it is not moved.
            let run = pin!(sandbox.call(slot, traced));
            AssertUnwindSafe(run).catch_unwind().await
        };
        let report = match ran {
            Ok(report) => report,
            Err(_) => {
                // The state of the slot may be half-changed.
                *slot = sandbox::Slot::default();
                Report {
                    trace: begun.trace(),
                    ..panicked(Arc::clone(digest), call.began)
                }
            }
        };
        if let (Some(tracer), Some(recorded)) = (&self.tracer, begun.recorded()) {
            let about = About {
                message: call.message,
                attempt: call.attempt,
                messages: 1,
                handler: &report.digest,
            };
            tracer.end(recorded, about, Ended::Answered(&report.outcome));
        }
        report
    }

    /// Run a batch on one version. If it faults, it runs again in smaller pieces.
    async fn run_pieces<'a>(
        &self,
        sandbox: &Sandbox,
        slot: &mut sandbox::Slot,
        calls: &[(usize, Call<'a>)],
        verdicts: &mut Verdicts,
    ) {
        let digest = sandbox.digest();
        let mut pieces = Pieces::of(calls.len());
        while let Some(piece) = pieces.next_piece() {
            let messages = calls[piece.clone()].iter().map(|(_, call)| call.message);
            let begun = match &self.tracer {
                Some(tracer) => tracer.begin_batch(messages),
                None => Begun::default(),
            };
            let began = Instant::now();
            let traced = |(_, call): &(usize, Call<'a>)| Call {
                trace: begun.traced(),
                began,
                ..*call
            };
            let asked: Vec<_> = calls[piece.clone()].iter().map(traced).collect();
            let call = AssertUnwindSafe(sandbox.call_batch(slot, &asked));
            let mut report = match call.catch_unwind().await {
                Ok(report) => report,
                Err(_) => {
                    // The state of the slot may be half-changed.
                    *slot = sandbox::Slot::default();
                    BatchReport::faulted(host_panic(), Arc::clone(digest))
                }
            };
            let fault = report.answer.as_ref().err().cloned();
            let trace = begun.trace();
            if let (Some(tracer), Some(recorded)) = (&self.tracer, begun.recorded()) {
                let (_, first) = calls[piece.start];
                let about = About {
                    message: first.message,
                    attempt: first.attempt,
                    messages: piece.len(),
                    handler: digest,
                };
                let ended = fault.as_ref().map_or(Ended::Several, Ended::Faulted);
                tracer.end(recorded, about, ended);
            }
            // Of the whole batch so far: its messages have waited for each other.
            let took = calls[piece.start].1.began.elapsed();
            match pieces.judge(piece.clone(), report.take_answer()) {
                Some(outcomes) => {
                    for (nth, outcome) in outcomes.into_iter().enumerate() {
                        let (place, _) = calls[piece.start + nth];
                        let report = Report {
                            duration: took,
                            trace,
                            ..report.on(nth, outcome)
                        };
                        verdicts.give(place, report);
                    }
                }
                None => {
                    verdicts.split(report.take_dropped());
                    let messages = piece.len();
                    let trace_id = trace.as_ref().map(Trace::trace_id);
                    let span_id = trace.as_ref().map(Trace::span_id);
                    match fault {
                        Some(Fault { kind, detail }) => {
                            let kind = kind.label();
                            warn!(messages, kind, detail, handler = %digest, trace_id, span_id, "a batch faulted: in halves again");
                        }
                        None => {
                            warn!(messages, handler = %digest, trace_id, span_id, "a batch was miscounted: in halves again")
                        }
                    }
                }
            }
        }
    }
}

impl Handler for Sandboxed {
    type Slot = Slot;

    fn slot(&self) -> Self::Slot {
        Slot::default()
    }

    async fn run<'a>(&'a self, slot: &'a mut Self::Slot, call: Call<'a>) -> Report {
        // Picked once: the attempt ends on the version on which it began.
        let version = self.versions.pick_from(&mut slot.view, &call.message.id);
        self.run_on(version, &mut slot.slot, call).await
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
        // A batch never mixes versions: a canary gets its messages in calls of its own.
        let mut groups: Vec<(Sandbox, Vec<(usize, Call<'a>)>)> = Vec::new();
        for (place, call) in calls.iter().enumerate() {
            let sandbox = self.versions.pick(&call.message.id);
            let member = (place, *call);
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
                World::Batch => {
                    let slot = &mut slot.slot;
                    self.run_pieces(&sandbox, slot, &group, verdicts).await;
                }
                World::Message => {
                    for (place, call) in group {
                        let version = (&sandbox, sandbox.digest());
                        let began = Instant::now();
                        let call = Call { began, ..call };
                        let report = self.run_on(version, &mut slot.slot, call).await;
                        verdicts.give(place, report);
                    }
                }
            }
        }
    }

    fn idle_timeout(&self, slot: &Self::Slot) -> Option<Duration> {
        slot.slot.idle_timeout()
    }

    fn on_idle(&self, slot: &mut Self::Slot) {
        slot.slot.on_idle();
    }

    fn on_wait(&self, slot: &mut Self::Slot) {
        slot.view = View::default();
    }

    fn digest(&self) -> Arc<str> {
        self.versions.digest()
    }

    fn versions(&self) -> Option<&Arc<Versions>> {
        Some(&self.versions)
    }
}
