//! One attempt: a message goes in, an outcome comes out, within the limits.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::error::{LoadError, said};
use super::fault::{Circumstances, host_panic};
use super::host::Attempt;
use super::instance::{Live, Slot};
use super::load::Loaded;
use super::log::LogSink;
use super::meter::Meter;
use super::supervise::{End, drop_caught, supervise};
use super::world::{Answer, Answers, Headers, MessageParam};
use crate::delivery::batch::Pieces;
use crate::delivery::message::{Message, TRACEPARENT, TRACESTATE};
use crate::delivery::outcome::{Fault, Outcome};

/// What an attempt is about.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The message.
    pub message: &'a Message,
    /// Which start this is, 1-based.
    pub attempt: u32,
    /// After how many starts the message is given up; 0 = never.
    pub max_attempts: u32,
    /// Set when the host stops and would like an answer soon: what `delivery.is-cancelled` says.
    pub cancelled: &'a Arc<AtomicBool>,
    /// Where the lines go that the guest writes.
    pub logs: &'a LogSink,
}

/// What became of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// What it produced.
    pub outcome: Outcome,
    /// How long it took, making the instance included.
    pub duration: Duration,
    /// Bytes of linear memory that the instance had in the end, which is the most it ever had.
    pub memory_bytes: usize,
    /// Whether an instance was made for it (else one was reused).
    pub fresh: bool,
    /// Bytes of its stdout and stderr that were dropped, as over the limits.
    pub log_bytes_dropped: u64,
}

/// What became of a batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BatchReport {
    /// As many outcomes as the handler gave, or the fault of the call.
    pub answer: Result<Vec<Outcome>, Fault>,
    /// As in [`Report`], of the whole call.
    pub duration: Duration,
    /// As in [`Report`].
    pub memory_bytes: usize,
    /// As in [`Report`].
    pub fresh: bool,
    /// As in [`Report`], of the whole call.
    pub log_bytes_dropped: u64,
}

/// What a call came to.
struct Asked {
    answer: Result<Answers, Fault>,
    duration: Duration,
    memory_bytes: usize,
    fresh: bool,
    log_bytes_dropped: u64,
}

impl Loaded {
    /// Make one instance and throw it away: what can't start is found before the first message.
    pub(super) async fn trial(&self) -> Result<(), LoadError> {
        let meter = Arc::new(Meter::default());
        let deadline = Instant::now() + self.shared.limits.wall;
        let mut live = Live::new(self, &meter, Attempt::trial(deadline), Instant::now());
        live.store.set_epoch_deadline(1);
        let making = self.pre.instantiate_async(&mut live.store);
        let end = supervise(making, &meter, deadline).await;
        live.store.data_mut().finish();
        let instance = self.conclude(end, &live).map_err(LoadError::Start)?;
        self.export
            .function(&mut live.store, &instance)
            .map_err(|error| LoadError::WrongType {
                export: self.export.name(),
                detail: said(&error),
            })?;
        drop_caught(live).map_err(|payload| LoadError::Start(host_panic(&*payload)))
    }

    pub(super) async fn call(&self, slot: &mut Slot, call: Call<'_>) -> Report {
        let headers = Headers::new(call.message);
        let headers = headers.borrowed();
        let message = MessageParam::new(call.message, &headers, call.attempt, call.max_attempts);
        let asked = self.ask(slot, &call, std::slice::from_ref(&message)).await;
        let text_max = self.shared.limits.outcome_text;
        let outcome = match asked.answer {
            Ok(Answers::One(answer)) => answer.into_outcome(text_max),
            Ok(Answers::Batch(answers)) => alone(answers, text_max),
            Err(fault) => Outcome::Fault(fault),
        };
        Report {
            outcome,
            duration: asked.duration,
            memory_bytes: asked.memory_bytes,
            fresh: asked.fresh,
            log_bytes_dropped: asked.log_bytes_dropped,
        }
    }

    pub(super) async fn call_batch(&self, slot: &mut Slot, calls: &[Call<'_>]) -> BatchReport {
        let headers: Vec<_> = calls.iter().map(|c| Headers::new(c.message)).collect();
        let headers: Vec<_> = headers.iter().map(Headers::borrowed).collect();
        let messages: Vec<_> = calls
            .iter()
            .zip(&headers)
            .map(|(call, headers)| {
                MessageParam::new(call.message, headers, call.attempt, call.max_attempts)
            })
            .collect();
        let first = calls.first().expect("a batch has a message");
        let asked = self.ask(slot, first, &messages).await;
        let text_max = self.shared.limits.outcome_text;
        BatchReport {
            answer: asked.answer.map(|answers| answers.into_outcomes(text_max)),
            duration: asked.duration,
            memory_bytes: asked.memory_bytes,
            fresh: asked.fresh,
            log_bytes_dropped: asked.log_bytes_dropped,
        }
    }

    /// Call the handler with these messages, of which `first` is the first.
    async fn ask(&self, slot: &mut Slot, first: &Call<'_>, messages: &[MessageParam<'_>]) -> Asked {
        slot.take_turns().await;
        let started = Instant::now();
        let deadline = started + self.shared.limits.wall;
        let attempt = Attempt::new(first, messages.len(), deadline);
        let reusable = slot.reusable(self, started);
        let fresh = reusable.is_none();
        let mut live = match reusable {
            Some(mut live) => {
                live.store.data_mut().begin(attempt);
                live
            }
            None => Live::new(self, &slot.meter, attempt, started),
        };
        live.store.set_epoch_deadline(1);
        slot.meter.begin();
        let running = async {
            let handle = live.handle(self).await?;
            handle.call(&mut live.store, messages).await
        };
        let end = supervise(running, &slot.meter, deadline).await;
        let log_bytes_dropped = live.store.data_mut().finish();
        let memory_bytes = live.store.data().limiter.memory_bytes();
        let answered = self.conclude(end, &live);
        // After a fault nothing of the instance is used again.
        let closed = if answered.is_ok() && live.answered(messages.len(), memory_bytes, &self.reuse)
        {
            slot.keep(live);
            Ok(())
        } else {
            drop_caught(live)
        };
        let answer = match (answered, closed) {
            (_, Err(payload)) => Err(host_panic(&*payload)),
            (Err(fault), Ok(())) => Err(fault),
            (Ok(answers), Ok(())) => Ok(answers),
        };
        let duration = started.elapsed();
        slot.kept(duration);
        Asked {
            answer,
            duration,
            memory_bytes,
            fresh,
            log_bytes_dropped,
        }
    }

    /// What an end means.
    fn conclude<T>(&self, end: End<T>, live: &Live) -> Result<T, Fault> {
        let circumstances = Circumstances {
            limits: &self.shared.limits,
            denied: live.store.data().limiter.denied(),
            instantiated: live.is_made(),
        };
        match end {
            End::Returned(Ok(value)) => Ok(value),
            End::Returned(Err(error)) => Err(circumstances.fault(&error)),
            End::TimedOut => Err(circumstances.wall_timeout()),
            End::Panicked(payload) => Err(host_panic(&*payload)),
        }
    }
}

/// What a handler of batches said to one message: by the rule for any batch.
fn alone(answers: Vec<Answer>, text_max: usize) -> Outcome {
    let outcomes = Answers::Batch(answers).into_outcomes(text_max);
    Pieces::of(1)
        .judge(0..1, Ok(outcomes))
        .and_then(|mut outcomes| outcomes.pop())
        .expect("one message has one outcome")
}

impl Attempt {
    /// An attempt at a message, or at so many messages of which this is the first.
    fn new(call: &Call<'_>, messages: usize, deadline: Instant) -> Self {
        let headers = &call.message.headers;
        Self {
            message_id: Arc::clone(&call.message.id),
            number: call.attempt,
            messages,
            deadline,
            cancelled: Arc::clone(call.cancelled),
            traceparent: headers.find(TRACEPARENT).cloned(),
            tracestate: headers.find(TRACESTATE).cloned(),
            sink: call.logs.clone(),
        }
    }

    /// No message at all: an instance is made, and nothing else.
    fn trial(deadline: Instant) -> Self {
        Self {
            message_id: Arc::from(""),
            number: 0,
            messages: 0,
            deadline,
            cancelled: Arc::default(),
            traceparent: None,
            tracestate: None,
            sink: LogSink::Tracing,
        }
    }
}

// Named here, so that a change that makes the future unsendable fails where it is made.
#[expect(dead_code, reason = "checked by the compiler alone")]
fn call_is_send(loaded: &Loaded, slot: &mut Slot, call: Call<'_>) -> impl Send {
    loaded.call(slot, call)
}
