//! The span of each attempt: whether it is recorded, its place in the trace, and its attributes.
//!
//! Nothing is allocated for an attempt that is not recorded.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use crate::delivery::message::Message;
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::trace::{AttemptSpan, Steps, Trace, Traced};
use crate::telemetry::otlp::dropped::{self, Signal};
use crate::telemetry::otlp::value::now_ns;

/// The most messages of a batch that a span names.
const LINKS_MAX: usize = 128;

/// Records attempts. Clones share the queue to the collector.
#[derive(Clone, Debug)]
pub struct Tracer {
    spans: mpsc::Sender<Recorded>,
    sampler: Sampler,
    place: Arc<Place>,
}

/// What all spans of a host have in common.
#[derive(Debug)]
pub struct Place {
    /// The queue.
    pub queue: Arc<str>,
    /// The consumer group of a stream.
    pub group: Option<Arc<str>>,
    /// The name of the host in the queue.
    pub consumer: Arc<str>,
}

/// Which messages without a trace of their own are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampler {
    /// Of the 2^63 possible places of a trace.
    below: u64,
}

impl Sampler {
    /// This share, from 0 to 1.
    pub(super) fn new(share: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 2^63"
        )]
        let below = (share.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
        Self { below }
    }

    /// The rule of `traceidratio`: every host that knows the trace decides alike.
    fn has(self, trace_id: u128) -> bool {
        let [.., low] = [(trace_id >> 64) as u64, trace_id as u64];
        low >> 1 < self.below
    }
}

/// The trace of a message that came without one: the same for every attempt at it, on every host.
fn own_trace(message: &Message) -> u128 {
    let seed = xxh3_64(message.queue.as_bytes());
    xxh3_128_with_seed(message.id.as_bytes(), seed).max(1)
}

/// An attempt that has begun.
#[derive(Debug, Default)]
pub struct Begun(State);

#[derive(Debug, Default)]
enum State {
    #[default]
    AsMessage,
    Unrecorded(Trace),
    Recorded(Box<Recording>),
}

/// The span of an attempt that is recorded.
#[derive(Debug)]
pub struct Recording {
    span: Arc<AttemptSpan>,
    parent: Option<Trace>,
    links: Vec<Trace>,
    began: Instant,
    began_ns: u64,
}

impl Begun {
    fn record(trace: Trace, parent: Option<Trace>, links: Vec<Trace>) -> Self {
        Self(State::Recorded(Box::new(Recording {
            span: Arc::new(AttemptSpan::new(trace)),
            parent,
            links,
            began: Instant::now(),
            began_ns: now_ns(),
        })))
    }

    /// How the call is traced.
    pub fn traced(&self) -> Traced<'_> {
        match &self.0 {
            State::AsMessage => Traced::AsMessage,
            State::Unrecorded(trace) => Traced::Unrecorded(*trace),
            State::Recorded(recording) => Traced::Recorded(&recording.span),
        }
    }

    /// Its span, if it has one of its own.
    pub fn trace(&self) -> Option<Trace> {
        self.traced().trace()
    }

    /// Its span, if it is recorded.
    pub fn recorded(self) -> Option<Recording> {
        match self.0 {
            State::Recorded(recording) => Some(*recording),
            _ => None,
        }
    }
}

/// What an attempt was about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The message, or the first one of a batch.
    pub message: &'a Message,
    /// The number of the attempt at it.
    pub attempt: u32,
    /// The messages of the call.
    pub messages: usize,
    /// The digest of the handler.
    pub handler: &'a Arc<str>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub enum Ended<'a> {
    /// The handler answered, or faulted, about its one message.
    Answered(&'a Outcome),
    /// The handler answered about each message of a batch.
    Several,
    /// A batch faulted.
    Faulted(&'a Fault),
}

/// A span on its way to the collector.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) place: Arc<Place>,
    pub(super) trace: Trace,
    pub(super) parent: Option<Trace>,
    pub(super) links: Vec<Trace>,
    pub(super) began: Instant,
    pub(super) began_ns: u64,
    pub(super) ended: Instant,
    pub(super) message_id: Arc<str>,
    pub(super) body_bytes: usize,
    pub(super) attempt: u32,
    pub(super) messages: usize,
    pub(super) handler: Arc<str>,
    /// `None` = a batch, whose messages have one each.
    pub(super) outcome: Option<&'static str>,
    pub(super) fault: Option<(FaultKind, String)>,
    pub(super) steps: Steps,
}

impl Tracer {
    pub(super) fn new(spans: mpsc::Sender<Recorded>, sampler: Sampler, place: Place) -> Self {
        Self {
            spans,
            sampler,
            place: Arc::new(place),
        }
    }

    /// An attempt at this message begins. Its sender decides whether it is recorded; without a trace the
    /// sampler does.
    pub fn begin(&self, message: &Message) -> Begun {
        let span_id = fastrand::u64(1..);
        match Trace::of(&message.headers) {
            Some(parent) if parent.is_sampled() => {
                Begun::record(parent.with_span(span_id), Some(parent), Vec::new())
            }
            Some(_) => Begun::default(),
            // Nothing is recorded: then no message needs to say so.
            None if self.sampler.below == 0 => Begun::default(),
            None => {
                let trace_id = own_trace(message);
                let is_sampled = self.sampler.has(trace_id);
                let trace = Trace::new(trace_id, span_id, is_sampled);
                match is_sampled {
                    true => Begun::record(trace, None, Vec::new()),
                    false => Begun(State::Unrecorded(trace)),
                }
            }
        }
    }

    /// A call with these messages begins. Several messages have no common parent: their traces are links of a
    /// trace of its own, which is recorded if one of them is.
    pub fn begin_batch<'a>(
        &self,
        mut messages: impl ExactSizeIterator<Item = &'a Message>,
    ) -> Begun {
        if messages.len() == 1 {
            return messages
                .next()
                .map_or_else(Begun::default, |one| self.begin(one));
        }
        let links = messages.filter_map(|message| {
            let own = || {
                let id = Some(own_trace(message)).filter(|_| self.sampler.below > 0)?;
                self.sampler.has(id).then(|| Trace::new(id, low(id), true))
            };
            let trace = Trace::of(&message.headers);
            trace.map_or_else(own, |trace| Some(trace).filter(Trace::is_sampled))
        });
        let links: Vec<Trace> = links.take(LINKS_MAX).collect();
        if links.is_empty() {
            return Begun::default();
        }
        let trace = Trace::new(fastrand::u128(1..), fastrand::u64(1..), true);
        Begun::record(trace, None, links)
    }

    /// An attempt that is recorded has ended. It is dropped, and counted, if the queue to the collector is
    /// full.
    pub fn end(&self, recording: Recording, about: About<'_>, ended: Ended<'_>) {
        let fault = match ended {
            Ended::Faulted(fault) | Ended::Answered(Outcome::Fault(fault)) => Some(fault),
            _ => None,
        };
        let outcome = match ended {
            Ended::Answered(Outcome::Ack) => Some("ack"),
            Ended::Answered(Outcome::NackRequeue(_)) => Some("nack-requeue"),
            Ended::Answered(Outcome::Drop(_)) => Some("drop"),
            Ended::Answered(Outcome::Fault(_)) | Ended::Faulted(_) => Some("fault"),
            Ended::Several => None,
        };
        let recorded = Recorded {
            place: Arc::clone(&self.place),
            trace: *recording.span.trace(),
            parent: recording.parent,
            links: recording.links,
            began: recording.began,
            began_ns: recording.began_ns,
            ended: Instant::now(),
            message_id: Arc::clone(&about.message.id),
            body_bytes: about.message.body.len(),
            attempt: about.attempt,
            messages: about.messages,
            handler: Arc::clone(about.handler),
            outcome,
            fault: fault.map(|fault| (fault.kind, fault.detail.clone())),
            steps: recording.span.steps(),
        };
        if self.spans.try_send(recorded).is_err() {
            dropped::add(Signal::Traces, 1);
        }
    }
}

/// A number that is not zero, from the low half.
fn low(id: u128) -> u64 {
    (id as u64).max(1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::delivery::message::{Headers, TRACEPARENT};

    fn message(id: &str, traceparent: Option<&str>) -> Message {
        let mut headers = Headers::default();
        if let Some(traceparent) = traceparent {
            headers.push(TRACEPARENT, traceparent.to_owned());
        }
        Message {
            id: id.into(),
            queue: "orders".into(),
            body: Bytes::new(),
            headers,
            enqueued_ms: 0,
        }
    }

    fn tracer(share: f64, room: usize) -> (Tracer, mpsc::Receiver<Recorded>) {
        let (spans, received) = mpsc::channel(room);
        let place = Place {
            queue: "orders".into(),
            group: None,
            consumer: "host".into(),
        };
        (Tracer::new(spans, Sampler::new(share), place), received)
    }

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    #[test]
    fn the_sender_of_a_message_decides() {
        for share in [0.0, 1.0] {
            let (tracer, _received) = tracer(share, 1);
            let begun = tracer.begin(&message("1", Some(SAMPLED)));
            let trace = begun.trace().unwrap();
            assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_ne!(trace.span_id(), "00f067aa0ba902b7");
            let recording = begun.recorded().unwrap();
            assert_eq!(recording.parent, Trace::parse(SAMPLED.as_bytes()));
            let begun = tracer.begin(&message("1", Some(UNSAMPLED)));
            assert_eq!(begun.trace(), None);
            assert!(begun.recorded().is_none());
        }
    }

    #[test]
    fn a_share_of_the_messages_without_a_trace_is_recorded_each_time() {
        let (tracer, _received) = tracer(0.1, 1);
        let ids: Vec<String> = (0..10_000).map(|n| format!("{n}-0")).collect();
        let recorded = ids.iter().filter(|id| {
            let [first, again] = [0, 1].map(|_| tracer.begin(&message(id, None)));
            let traces = (first.trace().unwrap(), again.trace().unwrap());
            assert_eq!(traces.0.trace_id(), traces.1.trace_id());
            assert_ne!(traces.0.span_id(), traces.1.span_id());
            let is_recorded = first.recorded().is_some();
            assert_eq!(traces.0.is_sampled(), is_recorded);
            assert_eq!(again.recorded().is_some(), is_recorded);
            is_recorded
        });
        let recorded = recorded.count();
        assert!((850..1_150).contains(&recorded), "{recorded}");
    }

    #[test]
    fn nothing_and_everything_are_shares() {
        let (none, _received) = tracer(0.0, 1);
        assert!(none.begin(&message("1", None)).trace().is_none());
        let (all, _received) = tracer(1.0, 1);
        for n in 0..1_000 {
            assert!(
                all.begin(&message(&n.to_string(), None))
                    .recorded()
                    .is_some()
            );
        }
    }

    #[test]
    fn a_batch_links_the_traces_of_its_messages() {
        let (tracer, _received) = tracer(0.0, 1);
        let messages = [
            message("1", Some(SAMPLED)),
            message("2", Some(UNSAMPLED)),
            message("3", None),
        ];
        let recording = tracer.begin_batch(messages.iter()).recorded().unwrap();
        assert_eq!(recording.parent, None);
        assert_eq!(recording.links, [Trace::parse(SAMPLED.as_bytes()).unwrap()]);
        assert!(tracer.begin_batch(messages[1..].iter()).trace().is_none());
        let alone = tracer.begin_batch(messages[..1].iter()).recorded().unwrap();
        assert!(alone.parent.is_some() && alone.links.is_empty());
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (tracer, _received) = tracer(1.0, 1);
        let before = dropped::dropped(Signal::Traces);
        let message = message("1", None);
        let about = About {
            message: &message,
            attempt: 1,
            messages: 1,
            handler: &"sha256:0".into(),
        };
        for _ in 0..3 {
            let recording = tracer.begin(&message).recorded().unwrap();
            tracer.end(recording, about, Ended::Answered(&Outcome::Ack));
        }
        assert!(dropped::dropped(Signal::Traces) >= before + 2);
    }
}
