//! The trace that a message belongs to: W3C `traceparent`. And the span of an attempt, with its steps.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::message::{Headers, TRACEPARENT};

/// The most steps of an attempt that are kept.
const STEPS_MAX: usize = 64;

/// The ids of a valid `traceparent`. None of them is zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Trace {
    trace_id: u128,
    span_id: u64,
    is_sampled: bool,
}

impl Trace {
    /// The span with these ids, none of which is zero.
    pub fn new(trace_id: u128, span_id: u64, is_sampled: bool) -> Self {
        Self {
            trace_id,
            span_id,
            is_sampled,
        }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn with_span(&self, span_id: u64) -> Self {
        Self { span_id, ..*self }
    }

    /// The trace of a message with these headers.
    pub fn of(headers: &Headers) -> Option<Self> {
        Self::parse(headers.find(TRACEPARENT)?)
    }

    /// `00-<32 hexadecimal digits>-<16>-<2>`. Later versions may be longer; the same parts count.
    /// Any other text is not a trace.
    pub fn parse(traceparent: &[u8]) -> Option<Self> {
        let version = traceparent.get(..2)?;
        let later = version != b"00";
        let whole = traceparent.len() == 55 || (later && traceparent.get(55) == Some(&b'-'));
        let dashes = [2, 35, 52]
            .iter()
            .all(|at| traceparent.get(*at) == Some(&b'-'));
        let trace_id = hexadecimal(traceparent.get(3..35)?)?;
        let span_id = u64::try_from(hexadecimal(traceparent.get(36..52)?)?).ok()?;
        let flags = hexadecimal(traceparent.get(53..55)?)?;
        let valid = whole && dashes && version != b"ff" && hexadecimal(version).is_some();
        (valid && trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            is_sampled: flags & 1 == 1,
        })
    }

    /// Whether the sender of the message records this trace.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// The trace's id as a number.
    pub fn trace_number(&self) -> u128 {
        self.trace_id
    }

    /// The id of the span as a number.
    pub fn span_number(&self) -> u64 {
        self.span_id
    }

    /// The trace's id: 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// The id of the span in which the message was sent: 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span_id)
    }
}

/// `traceparent`.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", self.trace_id(), self.span_id())
    }
}

/// How an attempt is traced.
#[derive(Clone, Copy, Debug, Default)]
pub enum Traced<'a> {
    /// It is not recorded. Its requests and messages belong to the span of the message, if that has
    /// one.
    #[default]
    AsMessage,
    /// It is not recorded. Its requests and messages belong to this span.
    Unrecorded(Trace),
    /// It is recorded.
    Recorded(&'a Arc<AttemptSpan>),
}

impl Traced<'_> {
    /// The span of the attempt, if it has one.
    pub fn trace(&self) -> Option<Trace> {
        match self {
            Self::AsMessage => None,
            Self::Unrecorded(trace) => Some(*trace),
            Self::Recorded(span) => Some(span.trace),
        }
    }

    /// The span, if it is recorded.
    pub fn span(&self) -> Option<&Arc<AttemptSpan>> {
        match self {
            Self::Recorded(span) => Some(span),
            _ => None,
        }
    }
}

/// The span of an attempt that is recorded: its place in the trace, and what the attempt did.
#[derive(Debug)]
pub struct AttemptSpan {
    trace: Trace,
    steps: Arc<StepLog>,
}

/// Notes what an attempt does: for its span, and for its dead letter.
#[derive(Debug, Default)]
pub struct StepLog(Mutex<Steps>);

/// Where the steps of an attempt are noted. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The steps.
    pub steps: Arc<StepLog>,
    /// The span of the attempt, if it is recorded: each step has a span of its own in it.
    pub trace: Option<Trace>,
}

/// The last steps of an attempt, in the order of their begins.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// At most 64.
    pub kept: VecDeque<Step>,
    /// How many there were before those.
    pub dropped: u32,
}

/// Something that an attempt did, with a span of its own.
#[derive(Clone, Debug)]
pub struct Step {
    /// The id of its span.
    pub span_id: u64,
    /// What it was.
    pub kind: StepKind,
    /// When it began.
    pub began: Instant,
    /// When it ended; `None` = it goes on.
    pub ended: Option<Instant>,
    /// Why it failed: a word of a fixed set.
    pub error: Option<&'static str>,
    /// The bytes of the body of its answer that have come so far.
    pub received: Option<Arc<AtomicU64>>,
}

/// What an attempt did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StepKind {
    /// It sent an HTTP request, and waited for the status of the response.
    Http {
        /// The method, bounded.
        method: String,
        /// The URL without user, query and fragment, bounded.
        url: String,
        /// The server's name.
        host: String,
        /// The server's port.
        port: Option<u16>,
        /// The status.
        status: Option<u16>,
        /// The response is one that an earlier attempt has recorded: nothing was sent.
        is_replayed: bool,
    },
    /// It asked the key-value store.
    Store {
        /// What for.
        operation: &'static str,
        /// How many keys it named.
        keys: usize,
    },
    /// It asked for the addresses of a name.
    Lookup {
        /// The name, bounded.
        name: String,
    },
    /// It published a message with its acknowledgement.
    Publish {
        /// The name of the destination.
        to: Arc<str>,
        /// The size of the body in bytes.
        bytes: usize,
    },
}

impl AttemptSpan {
    /// A span without steps.
    pub fn new(trace: Trace) -> Self {
        Self {
            trace,
            steps: Arc::default(),
        }
    }

    /// Its place in the trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Where its steps are noted.
    pub fn recorder(&self) -> Recorder {
        Recorder {
            steps: Arc::clone(&self.steps),
            trace: Some(self.trace),
        }
    }

    /// The steps so far.
    pub fn steps(&self) -> Steps {
        self.steps.so_far()
    }
}

impl StepLog {
    /// A step begins. Beyond the bound the first one is counted only.
    pub fn begin(&self, step: Step) {
        let mut steps = self.lock();
        if steps.kept.len() == STEPS_MAX {
            steps.kept.pop_front();
            steps.dropped = steps.dropped.saturating_add(1);
        }
        steps.kept.push_back(step);
    }

    /// More is known of the step with this span, if it is still kept.
    pub fn change(&self, span_id: u64, change: impl FnOnce(&mut Step)) {
        let mut steps = self.lock();
        let mut last_first = steps.kept.iter_mut().rev();
        if let Some(step) = last_first.find(|step| step.span_id == span_id) {
            change(step);
        }
    }

    /// The steps so far.
    pub fn so_far(&self) -> Steps {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number that these lower-case hexadecimal digits write: at most 32 of them.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_has_two_ids() {
        let trace = Trace::parse(VALID.as_bytes()).unwrap();
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.span_id(), "00f067aa0ba902b7");
        let later = VALID.replacen("00", "cc", 1) + "-what-comes";
        assert_eq!(Trace::parse(later.as_bytes()), Some(trace));
        let mut headers = Headers::default();
        assert_eq!(Trace::of(&headers), None);
        headers.push("TraceParent", VALID);
        assert_eq!(Trace::of(&headers), Some(trace));
    }

    #[test]
    fn a_trace_is_written_as_it_is_read() {
        let trace = Trace::parse(VALID.as_bytes()).unwrap();
        assert!(trace.is_sampled());
        assert_eq!(trace.to_string(), VALID);
        let same = Trace::new(trace.trace_number(), trace.span_number(), true);
        assert_eq!(same, trace);
        assert_eq!(trace.with_span(0x2a).span_id(), "000000000000002a");
        for (flags, is_sampled) in [("00", false), ("02", false), ("03", true), ("ff", true)] {
            let text = VALID.replace("-01", &format!("-{flags}"));
            let trace = Trace::parse(text.as_bytes()).unwrap();
            assert_eq!(trace.is_sampled(), is_sampled, "{flags}");
        }
    }

    #[test]
    fn the_steps_of_an_attempt_are_bounded_and_the_rest_is_counted() {
        let log = StepLog::default();
        let now = Instant::now();
        for span_id in 0..100 {
            log.begin(Step {
                span_id,
                kind: StepKind::Store {
                    operation: "get",
                    keys: 1,
                },
                began: now,
                ended: None,
                error: None,
                received: None,
            });
        }
        log.change(99, |step| step.ended = Some(now));
        let steps = log.so_far();
        assert_eq!(steps.kept[63].ended, Some(now));
        assert_eq!((steps.kept.len(), steps.dropped), (STEPS_MAX, 36));
        assert_eq!(steps.kept[0].span_id, 36, "the last ones are kept");
    }

    #[test]
    fn an_invalid_traceparent_has_no_trace() {
        let wrong = [
            String::new(),
            VALID.to_uppercase(),
            format!("{VALID}-more"),
            format!(" {VALID}"),
            VALID.replacen("00", "ff", 1),
            VALID.replacen('-', "_", 1),
            VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            VALID.replace("01", "\n1"),
            VALID.replace("4bf", "\x1b[3"),
        ];
        for text in wrong {
            assert_eq!(Trace::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn ids_are_hexadecimal_digits(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            at in 0..55_usize,
            byte in any::<u8>(),
        ) {
            let mut changed = VALID.as_bytes().to_vec();
            changed[at] = byte;
            for text in [bytes, changed] {
                if let Some(trace) = Trace::parse(&text) {
                    let ids = format!("{}{}", trace.trace_id(), trace.span_id());
                    prop_assert_eq!(ids.len(), 48);
                    prop_assert!(ids.bytes().all(|b| b.is_ascii_hexdigit()));
                }
            }
        }
    }
}
