//! Turns the stdout and stderr of handlers into bounded lines, one log event each.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::limits::Limits;
use crate::delivery::text::{printable, truncate_utf8};
use crate::delivery::trace::Trace;

/// The least number of bytes that a line counts: its event is larger than its text.
const LINE_COST_MIN: usize = 64;

/// Bytes of one write by a guest.
const WRITE_MAX: usize = 16 << 10;

/// An output of a guest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error. A Rust guest writes its panic message to it.
    Stderr,
    /// `wasi:logging`: events with a level.
    Log,
}

impl Stream {
    /// The name in log events and in `invoke --json`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Log => "log",
        }
    }
}

/// The level of an event of `wasi:logging`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Critical,
}

impl Level {
    const fn label(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

/// A line of a guest: UTF-8 (lossy), with control characters escaped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogLine {
    /// The output.
    pub stream: Stream,
    /// The line, without line end.
    pub text: String,
}

/// The destination of a guest's lines.
#[derive(Clone, Debug, Default)]
pub enum LogSink {
    /// Events of `tracing` with the target `guest`, level info, and the fields `stream`, `line`,
    /// `message_id`, `attempt` and `handler`. A message with a trace adds `trace_id` and `span_id`. A
    /// call with several messages adds `batch`, their number; `message_id` is that of the first one.
    #[default]
    Tracing,
    /// Lines are kept for the caller.
    Capture(Capture),
}

/// Lines kept for the caller.
#[derive(Clone, Debug, Default)]
pub struct Capture(Arc<Mutex<Vec<LogLine>>>);

impl Capture {
    /// Take the lines written since the last call.
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

/// The rate limit of all attempts together.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    state: Mutex<RateState>,
}

#[derive(Debug)]
struct RateState {
    /// Bytes that may be written now, at most those of one second.
    credit: f64,
    at: Instant,
    /// Bytes dropped since the last log event about them, and the time of that event.
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

    /// Count dropped bytes. Returns the number to log, at most once a second.
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

/// The attempt that writes the lines.
#[derive(Clone, Debug)]
pub(super) struct LogContext {
    pub(super) message_id: Arc<str>,
    pub(super) attempt: u32,
    /// Messages in the call; `message_id` and `attempt` belong to the first one.
    pub(super) messages: usize,
    /// The message's trace.
    pub(super) trace: Option<Trace>,
    pub(super) handler: Arc<str>,
    pub(super) sink: LogSink,
}

/// The output of an attempt.
#[derive(Debug)]
pub(super) struct GuestLog {
    context: LogContext,
    rate: Arc<Rate>,
    line_max: usize,
    /// Bytes that the attempt may still write.
    left: usize,
    dropped: u64,
    stdout: PartialLine,
    stderr: PartialLine,
}

/// An unfinished line.
#[derive(Debug, Default)]
struct PartialLine {
    bytes: Vec<u8>,
    cut: bool,
}

impl GuestLog {
    pub(super) fn new(context: LogContext, limits: &Limits, rate: Arc<Rate>) -> Self {
        Self {
            context,
            rate,
            line_max: limits.log_line,
            left: limits.log_attempt,
            dropped: 0,
            stdout: PartialLine::default(),
            stderr: PartialLine::default(),
        }
    }

    /// Start the next attempt on the same instance.
    pub(super) fn begin(&mut self, context: LogContext, limits: &Limits) {
        self.context = context;
        self.left = limits.log_attempt;
        self.dropped = 0;
    }

    /// Log an event, as one line: it counts against the same limits.
    pub(super) fn event(&mut self, level: Level, context: &str, text: &str) {
        let mut line = match context.is_empty() {
            true => text.to_owned(),
            false => format!("{context}: {text}"),
        };
        let whole = line.len();
        truncate_utf8(&mut line, self.line_max);
        let lost = whole - line.len();
        self.dropped += lost as u64;
        let cost = line.len().max(LINE_COST_MIN);
        if cost > self.left || !self.rate.take(cost) {
            self.dropped += line.len() as u64;
        } else {
            self.left -= cost;
            self.emit(Stream::Log, Some(level), line.as_bytes(), lost > 0);
        }
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
            // An empty line is not logged and costs nothing.
        } else if cost > self.left || !self.rate.take(cost) {
            self.dropped += bytes.len() as u64;
        } else {
            self.left -= cost;
            self.emit(stream, None, &bytes, cut);
        }
        // The buffer is kept for the next line.
        let mut bytes = bytes;
        bytes.clear();
        self.partial(stream).bytes = bytes;
    }

    /// End the attempt: log its unfinished lines. Returns the bytes dropped.
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
                handler = %self.context.handler,
                "guest output over the limits was dropped",
            );
        }
        dropped
    }

    fn partial(&mut self, stream: Stream) -> &mut PartialLine {
        match stream {
            Stream::Stdout => &mut self.stdout,
            // An event is never unfinished.
            Stream::Stderr | Stream::Log => &mut self.stderr,
        }
    }

    fn emit(&self, stream: Stream, level: Option<Level>, line: &[u8], cut: bool) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut text = printable(&String::from_utf8_lossy(line));
        if cut {
            text.push_str(" [cut]");
        }
        match &self.context.sink {
            LogSink::Tracing => {
                macro_rules! event {
                    ($macro:ident) => {
                        tracing::$macro!(
                            target: "guest",
                            stream = stream.label(),
                            line = %text,
                            message_id = %printable(&self.context.message_id),
                            attempt = self.context.attempt,
                            batch = (self.context.messages > 1).then_some(self.context.messages),
                            handler = %self.context.handler,
                            trace_id = self.context.trace.as_ref().map(Trace::trace_id),
                            span_id = self.context.trace.as_ref().map(Trace::span_id),
                        )
                    };
                }
                match level {
                    Some(Level::Trace) => event!(trace),
                    Some(Level::Debug) => event!(debug),
                    None | Some(Level::Info) => event!(info),
                    Some(Level::Warn) => event!(warn),
                    Some(Level::Error | Level::Critical) => event!(error),
                }
            }
            LogSink::Capture(capture) => {
                if let Some(level) = level {
                    text = format!("{}: {text}", level.label());
                }
                capture.push(LogLine { stream, text });
            }
        }
    }
}

/// The guest's stdout or stderr. It is always ready.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) stream: Stream,
    pub(super) log: Arc<Mutex<GuestLog>>,
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
        self.log
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

/// A header or id as text: borrowed if it is UTF-8.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
