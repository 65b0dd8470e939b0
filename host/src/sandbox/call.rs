//! One attempt: calls the handler with a message, within the limits, and returns the outcome.

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use super::cancelled::Cancelled;
use super::fault::{ErrorContext, backtrace, host_panic, quoting};
use super::headers::Headers;
use super::host::{Acting, Attempt, Shared};
use super::instance::{Live, Slot};
use super::loaded::Loaded;
use super::log::LogSink;
use super::recorded;
use super::supervise::{End, drop_caught, supervise};
use super::world::MessageParam;
use super::worlds::Answer;
use super::worlds::run::ANSWER;
use crate::delivery::batch::Pieces;
use crate::delivery::effect::Effects;
use crate::delivery::evidence::{Calls, Evidence};
use crate::delivery::hold::HoldRoom;
use crate::delivery::message::{Message, TRACEPARENT, TRACESTATE};
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::recording::{Ended, Head, Tape, Track};
use crate::delivery::text::truncated;
use crate::delivery::trace::{Recorder, Trace, Traced};
use crate::grants::context::AskedHold;
use crate::grants::journal::session::Session;

/// The detail of the fault of a guest that loses a request.
const LEFT_REQUEST: &str = "the handler acked, and a request that it sent is unfinished: wait for its response, or drop it";

/// The input of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The message.
    pub message: &'a Message,
    /// The number of this start, from 1.
    pub attempt: u32,
    /// The delivery limit of the message, in starts; 0 = none.
    pub max_attempts: u32,
    /// Set when the host stops; the guest reads it with `delivery.is-cancelled`.
    pub cancelled: &'a Arc<Cancelled>,
    /// The destination of the guest's output.
    pub logs: &'a LogSink,
    /// How the call is traced. All messages of a call have the same span.
    pub trace: Traced<'a>,
    /// When the attempt began: its time limit counts from here. All messages of a call have the same time.
    pub began: Instant,
    /// The journal of the message, if it has one.
    pub journal: Option<&'a Arc<Session>>,
    /// How long the message may be held.
    pub room: HoldRoom,
}

/// The result of an attempt at one message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The outcome. A mistake of the guest is an outcome too, not an error.
    pub outcome: Outcome,
    /// The digest of the handler that ran.
    pub digest: Arc<str>,
    /// The duration, making the instance included.
    pub duration: Duration,
    /// Bytes of linear memory of the instance at the end; memory never shrinks.
    pub memory_bytes: usize,
    /// Whether it was the first call of the instance; false = one was reused.
    pub fresh: bool,
    /// Bytes of stdout and stderr that exceeded the limits and were dropped. Those of a call count once.
    pub log_bytes_dropped: u64,
    /// The effects of an attempt that acks, if it has any.
    pub effects: Option<Arc<Effects>>,
    /// How many effects an attempt held that did not ack: they never happen.
    pub discarded: usize,
    /// The hold of an attempt that wants its message again, if it has asked for one: how long, or why it was
    /// refused.
    pub hold: Option<Result<Duration, String>>,
    /// The evidence of an attempt that did not ack.
    pub evidence: Option<Arc<Evidence>>,
    /// What the handler wrote about its failure on stderr, if it wants the message again: bounded and printable.
    pub told: Option<Arc<str>>,
    /// The span of the attempt; `None` = it has none of its own.
    pub trace: Option<Trace>,
}

impl Report {
    /// This outcome of the handler with this digest, and nothing else.
    pub fn new(outcome: Outcome, digest: Arc<str>, duration: Duration) -> Self {
        Self {
            outcome,
            digest,
            duration,
            memory_bytes: 0,
            fresh: false,
            log_bytes_dropped: 0,
            effects: None,
            discarded: 0,
            hold: None,
            evidence: None,
            told: None,
            trace: None,
        }
    }
}

/// The result of a call with several messages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BatchReport {
    /// The outcomes that the handler returned, or the fault of the call.
    pub answer: Result<Vec<Outcome>, Fault>,
    /// The rest, as for one message.
    all: Report,
    /// The effects of each message, if they may have any.
    effects: Vec<Arc<Effects>>,
}

impl BatchReport {
    /// The call faulted in the host, before the handler answered.
    pub fn faulted(fault: Fault, digest: Arc<str>) -> Self {
        Self {
            all: Report::new(Outcome::Fault(fault.clone()), digest, Duration::ZERO),
            answer: Err(fault),
            effects: Vec::new(),
        }
    }

    /// The report on the message at this place of the call, which has this outcome. Only an ack has effects.
    pub fn on(&mut self, place: usize, outcome: Outcome) -> Report {
        let effects = self.effects.get(place);
        let hold = match outcome {
            Outcome::NackRequeue(_) => effects.and_then(|all| all.held().cloned()),
            _ => None,
        };
        let effects = effects.filter(|all| !all.is_empty());
        let acts = outcome == Outcome::Ack;
        let held = effects.map_or(0, |all| {
            let replies = usize::from(all.reply().is_some());
            all.publications().len() + all.written().len() + replies
        });
        Report {
            effects: effects.filter(|_| acts).map(Arc::clone),
            discarded: if acts { 0 } else { held },
            hold,
            evidence: self.all.evidence.clone().filter(|_| !acts),
            log_bytes_dropped: self.take_dropped(),
            outcome,
            ..self.all.clone()
        }
    }

    /// The outcomes, or the fault of the call.
    pub fn take_answer(&mut self) -> Result<Vec<Outcome>, Fault> {
        std::mem::replace(&mut self.answer, Ok(Vec::new()))
    }

    /// Bytes of the output of the call that were dropped, and that no report has counted.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.all.log_bytes_dropped)
    }

    /// Whether it was the first call of the instance.
    pub fn fresh(&self) -> bool {
        self.all.fresh
    }

    /// Bytes of linear memory of the instance at the end.
    pub fn memory_bytes(&self) -> usize {
        self.all.memory_bytes
    }
}

impl Loaded {
    pub(super) async fn call(
        &self,
        slot: &mut Slot,
        call: Call<'_>,
        track: Option<&Arc<Track>>,
    ) -> Report {
        let headers = Headers::new(call.message);
        let headers = headers.borrowed();
        let message = MessageParam::new(call.message, &headers, call.attempt, call.max_attempts);
        let mut report = self
            .call_handler(
                slot,
                slice::from_ref(&call),
                slice::from_ref(&message),
                track,
            )
            .await;
        // A batch handler may return a wrong number of outcomes.
        let outcomes = Pieces::of(1).judge(0..1, report.take_answer());
        let outcome = outcomes
            .and_then(|mut outcomes| outcomes.pop())
            .expect("one message has one outcome");
        report.on(0, outcome)
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
        self.call_handler(slot, calls, &messages, None).await
    }

    /// Call the handler with these messages.
    async fn call_handler(
        &self,
        slot: &mut Slot,
        calls: &[Call<'_>],
        messages: &[MessageParam<'_>],
        played: Option<&Arc<Track>>,
    ) -> BatchReport {
        let first = calls.first().expect("a call has a message");
        let started = match slot.yield_if_due().await {
            true => Instant::now(),
            // Each look at the clock is a part of a short call that can be measured.
            false => first.began,
        };
        let deadline = started + self.shared.limits.wall;
        let attempt = Attempt::new(calls, deadline, &self.shared);
        let recorded = || self.shared.record(calls, &attempt, started);
        let track = played.cloned().or_else(recorded);
        if let Some(track) = &track {
            self.shared.hide_secrets(track, deadline).await;
        }
        let attempt = Attempt { track, ..attempt };
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
        let end = {
            // It is large: pinned, it is not moved.
            let running = pin!(Some(async {
                let handle = live.handle().await?;
                handle.call(&mut live.store, messages).await
            }));
            supervise(running, &slot.meter, &self.shared.pace, deadline).await
        };
        let log_bytes_dropped = live.store.data_mut().finish();
        let mut acting = std::mem::take(&mut live.store.data_mut().attempt.acting);
        let refused = live.store.data().attempt.hold.as_ref();
        let refused = refused.and_then(|hold| hold.asked());
        for Acting { effects, room, .. } in &mut acting {
            if let Some(hold) = refused {
                effects.hold_unless_held(*room, hold);
            }
        }
        let is_held = |acting: &Acting| matches!(acting.effects.held(), Some(Ok(_)));
        let is_held = refused.is_some() && matches!(&acting[..], [one] if is_held(one));
        let memory_bytes = live.store.data().limiter.memory_bytes();
        let trapped_in = match &end {
            End::Returned(Err(error)) => backtrace(error),
            _ => None,
        };
        let is_acked = |answer: &Answer| matches!(answer, Answer::Ack);
        let answered = self.conclude(end, &live).and_then(|answers| {
            // The request ends with the attempt, and its result is lost to the guest.
            let loses = answers.iter().any(is_acked) && live.store.data_mut().leaves_request();
            match loses {
                true => Err(Fault::new(FaultKind::BadOutcome, LEFT_REQUEST)),
                false => Ok(answers),
            }
        });
        let tape = match live.store.data().attempt.track.as_deref() {
            Some(Track::Records(tape)) => Some(tape),
            Some(Track::Plays(_)) | None => None,
        };
        let evidence = match &answered {
            Ok(answers) if answers.iter().all(is_acked) => {
                // The instance may stay.
                if let Some(tape) = tape {
                    tape.clear();
                }
                None
            }
            _ => {
                let recorder = live.store.data().attempt.recorder.as_ref();
                let calls = recorder.filter(|_| self.shared.records_calls);
                let calls =
                    calls.map(|calls| Calls::of(&calls.steps.so_far(), started, Instant::now()));
                let text_max = self.shared.limits.outcome_text;
                let ended = || ended(&answered, text_max);
                let recording = tape.and_then(|tape| tape.finish(&ended(), fresh));
                let evidence = Evidence {
                    log: self.end_of_log(&live, trapped_in),
                    calls: calls.and_then(Calls::write),
                    recording: recording.map(Arc::new),
                };
                evidence.some().map(Arc::new)
            }
        };
        // Many handlers leave the errors of their calls to the language, which ends the attempt with a trap or an exit.
        let gave_up =
            |fault: &Fault| is_held && matches!(fault.kind, FaultKind::Trap | FaultKind::GuestExit);
        let told = match answered.as_deref() {
            Ok([Answer::NackRequeue(_)]) => live.store.data().failure(),
            Err(fault) if gave_up(fault) => live.store.data().failure(),
            // Of a batch, nothing says which message it is about.
            _ => None,
        };
        // The line that gives the answer of a program says no more than that.
        let told = told.filter(|(text, _)| !text.starts_with(ANSWER));
        // An instance is dropped after a fault.
        let stays =
            answered.is_ok() && live.record_answers(messages.len(), memory_bytes, &self.reuse);
        let (closed, ended) = match stays {
            true => (Ok(()), slot.keep(live)),
            false => (drop_caught(live), Instant::now()),
        };
        let answer = match (answered, closed) {
            (_, Err(payload)) => Err(host_panic(&*payload)),
            (Err(fault), Ok(())) if gave_up(&fault) => Ok(vec![Answer::NackRequeue(None)]),
            (Err(fault), Ok(())) => Err(fault),
            (Ok(answers), Ok(())) => Ok(answers),
        };
        let duration = ended.saturating_duration_since(started);
        slot.add_busy_time(duration);
        let text_max = self.shared.limits.outcome_text;
        let outcome = |answer: Answer| answer.into_outcome(text_max);
        BatchReport {
            answer: answer.map(|answers| answers.into_iter().map(outcome).collect()),
            all: Report {
                memory_bytes,
                fresh,
                log_bytes_dropped,
                evidence,
                told: told.map(|(text, _)| text.into()),
                trace: first.trace.trace(),
                ..Report::new(Outcome::Ack, Arc::clone(&self.shared.digest), duration)
            },
            effects: acting.into_iter().map(|a| Arc::new(a.effects)).collect(),
        }
    }

    /// What a failed attempt wrote last, and the functions that it trapped in. These have half of the room at
    /// most.
    fn end_of_log(&self, live: &Live, trapped_in: Option<String>) -> Option<Box<str>> {
        let max = self.shared.limits.log_tail;
        let mut functions = trapped_in.unwrap_or_default();
        if functions.len() > max / 2 {
            let kept = truncated(&functions, max / 2);
            let end = kept.rfind('\n').unwrap_or_default();
            functions.truncate(end);
        }
        let room = match functions.len() {
            0 => max,
            length => max - length - 1,
        };
        let mut log = live.store.data().log_tail(room);
        if !log.is_empty() && !functions.is_empty() {
            log.push('\n');
        }
        log.push_str(&functions);
        (!log.is_empty()).then(|| log.into())
    }

    /// The value or the fault of an attempt.
    fn conclude<T>(&self, end: End<T>, live: &Live) -> Result<T, Fault> {
        let host = live.store.data();
        let is_error = matches!(end, End::Returned(Err(_)));
        let told = is_error.then(|| host.failure()).flatten();
        let context = ErrorContext {
            limits: &self.shared.limits,
            denied: host.limiter.denied(),
            instantiated: live.is_made(),
            names_functions: told.as_ref().is_some_and(|(_, names)| *names),
        };
        let concluded = context.conclude(end);
        concluded.map_err(|fault| quoting(fault, told.as_ref().map(|(text, _)| text.as_str())))
    }
}

impl Attempt {
    /// An attempt at the messages of these calls.
    fn new(calls: &[Call<'_>], deadline: Instant, shared: &Shared) -> Self {
        let call = calls.first().expect("a call has a message");
        let headers = &call.message.headers;
        let recorder = || shared.records_calls.then(Recorder::default);
        let http = shared.grants.provided.http.as_ref();
        let hold = http
            .filter(|http| http.adapts())
            .map(|_| Arc::<AskedHold>::default());
        let may_act = shared.acts
            || hold.is_some()
            || shared.grants.publish.is_some()
            || shared.grants.key_value.is_some();
        let acting = |call: &Call<'_>| Acting {
            message: call.message.clone(),
            effects: Effects::new(&shared.budget),
            room: call.room,
        };
        Self {
            message_id: Arc::clone(&call.message.id),
            queue: Arc::clone(&call.message.queue),
            number: call.attempt,
            messages: calls.len(),
            deadline,
            cancelled: Arc::clone(call.cancelled),
            trace: call.trace.trace(),
            recorder: (call.trace.span()).map_or_else(recorder, |span| Some(span.recorder())),
            traceparent: headers.find(TRACEPARENT).cloned(),
            tracestate: headers.find(TRACESTATE).cloned(),
            sink: call.logs.clone(),
            input: (shared.program.as_ref()).map(|_| (call.message.clone(), call.max_attempts)),
            journal: match calls {
                [call] => call.journal.cloned(),
                _ => None,
            },
            acting: match may_act {
                true => calls.iter().map(acting).collect(),
                false => Vec::new(),
            },
            hold,
            track: None,
        }
    }
}

impl Shared {
    /// Where the answers to an attempt at these messages are recorded, if they are.
    fn record(&self, calls: &[Call<'_>], attempt: &Attempt, began: Instant) -> Option<Arc<Track>> {
        let budget = self.recordings.as_ref()?;
        let call = calls.first()?;
        let head = Head {
            handler: self.digest.to_string(),
            settings: self.settings.to_string(),
            id: attempt.message_id.to_string(),
            queue: attempt.queue.to_string(),
            enqueued_ms: call.message.enqueued_ms,
            headers: Head::headers(&call.message.headers),
            attempt: call.attempt,
            max_attempts: call.max_attempts,
            messages: calls.len(),
            seed: recorded::seed(),
        };
        let tape = Tape::new(head, began, budget);
        Some(Arc::new(Track::Records(tape)))
    }

    /// No secret that is granted enters a recording.
    async fn hide_secrets(&self, track: &Track, deadline: Instant) {
        let (Track::Records(tape), Some(secrets)) = (track, &self.grants.provided.secrets) else {
            return;
        };
        // A file system may hang.
        match timeout_at(deadline.into(), secrets.all()).await {
            Ok(all) => {
                let pairs = all.into_iter();
                let pairs = pairs.map(|(name, value)| (name, value.reveal().to_owned()));
                tape.hide(&pairs.collect::<Vec<_>>());
            }
            Err(_) => tape.stop(),
        }
    }
}

/// How a call ended: of several answers, the first one that is no ack.
fn ended(answered: &Result<Vec<Answer>, Fault>, text_max: usize) -> Ended {
    match answered {
        Err(fault) => Ended::from(&Outcome::Fault(fault.clone())),
        Ok(answers) => {
            let mut others = answers
                .iter()
                .filter(|answer| !matches!(answer, Answer::Ack));
            let answer = others.next().cloned().unwrap_or(Answer::Ack);
            Ended::from(&answer.into_outcome(text_max))
        }
    }
}

// A change that makes the future not `Send` fails to compile here.
#[expect(dead_code, reason = "checked by the compiler alone")]
fn call_is_send(loaded: &Loaded, slot: &mut Slot, call: Call<'_>) -> impl Send {
    loaded.call(slot, call, None)
}
