//! What handlers write to stdout and stderr: bounded lines, each a log event.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::limits::Limits;
use crate::delivery::text::printable;
use crate::delivery::trace::Trace;

/// What a short line counts against the limits: its event is larger than its text.
const LINE_COST_MIN: usize = 64;

/// Bytes that a guest may write at once.
const WRITE_MAX: usize = 16 << 10;

/// Which of its two outputs a guest wrote to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error: also where a Rust guest's panic message goes.
    Stderr,
}

impl Stream {
    /// Its name in log events and in `invoke --json`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One line that a guest wrote: UTF-8 (lossy), control characters escaped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogLine {
    /// Where it was written to.
    pub stream: Stream,
    /// The line, without its end.
    pub text: String,
}

/// Where the lines of guests go.
#[derive(Clone, Debug, Default)]
pub enum LogSink {
    /// Events of `tracing` with the target `guest`, level info, and the fields `stream`, `line`,
    /// `message_id`, `attempt` and `handler`; of a message with a trace also `trace_id` and
    /// `span_id`, of a call with several messages (`message_id` is the first one's) `batch`, their
    /// number.
    #[default]
    Tracing,
    /// Kept, for a caller that wants to show them.
    Capture(Capture),
}

/// Lines kept for the caller.
#[derive(Clone, Debug, Default)]
pub struct Capture(Arc<Mutex<Vec<LogLine>>>);

impl Capture {
    /// Take what has been written since the last time.
    pub fn take(&self) -> Vec<LogLine> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, line: LogLine) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    }
}

/// What all attempts together may write.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    state: Mutex<RateState>,
}

#[derive(Debug)]
struct RateState {
    /// Bytes that may be written now: at most one second's worth.
    credit: f64,
    at: Instant,
    /// Bytes dropped since the last note about it, and when that was.
    dropped: u64,
    noted: Option<Instant>,
}

impl Rate {
    pub(super) fn new(limits: &Limits) -> Self {
        let per_second = limits.log_rate as f64;
        Self {
            per_second,
            state: Mutex::new(RateState {
                credit: per_second,
                at: Instant::now(),
                dropped: 0,
                noted: None,
            }),
        }
    }

    fn take(&self, cost: usize) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let earned = now.duration_since(state.at).as_secs_f64() * self.per_second;
        state.credit = (state.credit + earned).min(self.per_second);
        state.at = now;
        let cost = cost as f64;
        let granted = state.credit >= cost;
        if granted {
            state.credit -= cost;
        }
        granted
    }

    /// Count what was dropped; tells how much to note in the log, at most once a second.
    fn note_dropped(&self, bytes: u64) -> Option<u64> {
        let mut state = self.lock();
        state.dropped += bytes;
        let now = Instant::now();
        let due = state
            .noted
            .is_none_or(|noted| now.duration_since(noted) >= Duration::from_secs(1));
        due.then(|| {
            state.noted = Some(now);
            std::mem::take(&mut state.dropped)
        })
    }

    fn lock(&self) -> MutexGuard<'_, RateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose lines these are.
#[derive(Clone, Debug)]
pub(super) struct Author {
    pub(super) message_id: Arc<str>,
    pub(super) attempt: u32,
    /// Messages of the call; `message_id` and `attempt` are the first one's.
    pub(super) messages: usize,
    /// The message's trace.
    pub(super) trace: Option<Trace>,
    pub(super) handler: Arc<str>,
    pub(super) sink: LogSink,
}

/// What one attempt writes.
#[derive(Debug)]
pub(super) struct Journal {
    author: Author,
    rate: Arc<Rate>,
    line_max: usize,
    /// Bytes that this attempt may still write.
    left: usize,
    dropped: u64,
    stdout: Partial,
    stderr: Partial,
}

/// A line that has no end yet.
#[derive(Debug, Default)]
struct Partial {
    bytes: Vec<u8>,
    cut: bool,
}

impl Journal {
    pub(super) fn new(author: Author, limits: &Limits, rate: Arc<Rate>) -> Self {
        Self {
            author,
            rate,
            line_max: limits.log_line,
            left: limits.log_attempt,
            dropped: 0,
            stdout: Partial::default(),
            stderr: Partial::default(),
        }
    }

    /// The next attempt of the same instance.
    pub(super) fn begin(&mut self, author: Author, limits: &Limits) {
        self.author = author;
        self.left = limits.log_attempt;
        self.dropped = 0;
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let mut lines = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = lines.next() {
            self.extend(stream, part);
            if lines.peek().is_some() {
                self.end_line(stream);
            }
        }
    }

    fn extend(&mut self, stream: Stream, part: &[u8]) {
        let line_max = self.line_max;
        let partial = self.partial(stream);
        let room = line_max.saturating_sub(partial.bytes.len());
        let kept = part.get(..room).unwrap_or(part);
        partial.bytes.extend_from_slice(kept);
        let lost = part.len() - kept.len();
        partial.cut |= lost > 0;
        self.dropped += lost as u64;
    }

    fn end_line(&mut self, stream: Stream) {
        let partial = self.partial(stream);
        let bytes = std::mem::take(&mut partial.bytes);
        let cut = std::mem::take(&mut partial.cut);
        let cost = bytes.len().max(LINE_COST_MIN);
        if bytes.is_empty() {
            // Says nothing, so it is not told, and costs nobody's share of the log.
        } else if cost > self.left || !self.rate.take(cost) {
            self.dropped += bytes.len() as u64;
        } else {
            self.left -= cost;
            self.emit(stream, &bytes, cut);
        }
        // The buffer is kept for the next line.
        let mut bytes = bytes;
        bytes.clear();
        self.partial(stream).bytes = bytes;
    }

    /// The attempt is over: lines without an end are lines too. Returns the bytes dropped.
    pub(super) fn finish(&mut self) -> u64 {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !self.partial(stream).bytes.is_empty() {
                self.end_line(stream);
            }
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0
            && let Some(bytes) = self.rate.note_dropped(dropped)
        {
            tracing::warn!(
                target: "guest",
                bytes,
                handler = %self.author.handler,
                "guest output over its limits was dropped",
            );
        }
        dropped
    }

    fn partial(&mut self, stream: Stream) -> &mut Partial {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn emit(&self, stream: Stream, line: &[u8], cut: bool) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut text = printable(&String::from_utf8_lossy(line));
        if cut {
            text.push_str(" [cut]");
        }
        match &self.author.sink {
            LogSink::Tracing => tracing::info!(
                target: "guest",
                stream = stream.label(),
                line = %text,
                message_id = %printable(&self.author.message_id),
                attempt = self.author.attempt,
                batch = (self.author.messages > 1).then_some(self.author.messages),
                handler = %self.author.handler,
                trace_id = self.author.trace.as_ref().map(Trace::trace_id),
                span_id = self.author.trace.as_ref().map(Trace::span_id),
            ),
            LogSink::Capture(capture) => capture.push(LogLine { stream, text }),
        }
    }
}

/// What the guest sees of its journal: an output that is always ready.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) stream: Stream,
    pub(super) journal: Arc<Mutex<Journal>>,
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only WASI 0.3 asks for this, and it is not linked.
        Box::new(tokio::io::sink())
    }
}

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.journal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_MAX)
    }
}

/// A header or id as text: borrowed where it is UTF-8 already.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
