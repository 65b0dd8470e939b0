//! Turns the stdout and stderr of handlers into bounded lines, one log event each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime::component::{ComponentType, Lift};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::limits::Limits;
use super::stderr_forms::{RUST_NOTE, Told};
use crate::delivery::declared::declared;
use crate::delivery::text::{printable, truncate_utf8, truncated};
use crate::delivery::trace::Trace;

/// The least number of bytes that a line counts in its attempt.
const LINE_COST_MIN: usize = 64;

/// Bytes of a line's event without the line and the id: time, level, target, names of fields, digest, trace.
const EVENT_COST: usize = 352;

/// The mark of a line that was cut.
const CUT: &str = " [cut]";

/// Bytes of one write by a guest.
const WRITE_MAX: usize = 16 << 10;

/// Bytes of the last line on stderr that a fault quotes.
const LAST_LINE_MAX: usize = 256;

/// The most lines that the end of a log keeps.
const TAIL_LINES_MAX: usize = 200;

declared! {
    /// An output of a guest.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Stream (/// The name in log events and in `invoke --json`.
                     label -> &'static str) {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error. A Rust guest writes its panic message to it.
        Stderr = "stderr",
        /// `wasi:logging`: events with a level.
        Log = "log",
    }
}

/// `logging.level` of `wasi:logging`.
#[derive(Clone, Copy, ComponentType, Debug, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the derived code makes them")]
pub(crate) enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
    #[component(name = "critical")]
    Critical,
}

/// The names of the levels, in their order.
const LEVELS: [&str; 6] = ["trace", "debug", "info", "warn", "error", "critical"];

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
        std::mem::take(&mut self.0.lock())
    }
}

/// The rate limit of all attempts together.
#[derive(Debug)]
pub(crate) struct Rate {
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
    pub(crate) fn new(limits: &Limits) -> Self {
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
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
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
}

/// The attempt that writes the lines.
#[derive(Clone, Debug)]
pub(crate) struct LogContext {
    pub(crate) message_id: Arc<str>,
    pub(crate) attempt: u32,
    /// Messages in the call; `message_id` and `attempt` belong to the first one.
    pub(crate) messages: usize,
    /// The message's trace.
    pub(crate) trace: Option<Trace>,
    pub(crate) handler: Arc<str>,
    pub(crate) sink: LogSink,
}

/// Bytes of a text without control characters inside a JSON string.
fn json_bytes(text: &str) -> usize {
    let escaped = text
        .bytes()
        .filter(|byte| matches!(byte, b'"' | b'\\' | b'\t'));
    text.len() + escaped.count()
}

/// The output of an attempt.
#[derive(Debug)]
pub(crate) struct GuestLog {
    context: LogContext,
    rate: Arc<Rate>,
    line_max: usize,
    /// Bytes that the attempt may still write.
    left: usize,
    dropped: u64,
    stdout: PartialLine,
    stderr: PartialLine,
    last_line: Vec<u8>,
    told: Told,
    tail: Tail,
    /// Where stdout is kept, and not logged.
    kept: Option<Kept>,
}

/// What an attempt has written to stdout.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The bytes, at most `max`.
    pub(crate) bytes: Vec<u8>,
    max: usize,
    /// It wrote more than `max` bytes.
    pub(crate) is_cut: bool,
}

/// The last lines of an attempt, of all its outputs, as they are logged.
#[derive(Debug)]
struct Tail {
    lines: VecDeque<String>,
    /// The bytes of the lines, with their ends.
    bytes: usize,
    max: usize,
}

impl Tail {
    fn new(max: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            bytes: 0,
            max,
        }
    }

    fn push(&mut self, mut line: String) {
        if self.max == 0 || line.as_bytes().starts_with(RUST_NOTE) {
            return;
        }
        truncate_utf8(&mut line, self.max - 1);
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > self.max || self.lines.len() > TAIL_LINES_MAX {
            let Some(oldest) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= oldest.len() + 1;
        }
    }

    fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }

    /// The newest lines, as many as have `max` bytes together.
    fn text(&self, max: usize) -> String {
        let (mut bytes, mut skipped) = (self.bytes, 0);
        for line in &self.lines {
            if bytes <= max {
                break;
            }
            bytes -= line.len() + 1;
            skipped += 1;
        }
        let lines = self.lines.iter().skip(skipped);
        lines.map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// An unfinished line.
#[derive(Debug, Default)]
struct PartialLine {
    bytes: Vec<u8>,
    cut: bool,
}

impl GuestLog {
    pub(crate) fn new(context: LogContext, limits: &Limits, rate: Arc<Rate>) -> Self {
        Self {
            context,
            rate,
            line_max: limits.log_line,
            left: limits.log_attempt,
            dropped: 0,
            stdout: PartialLine::default(),
            stderr: PartialLine::default(),
            last_line: Vec::new(),
            told: Told::default(),
            tail: Tail::new(limits.log_tail),
            kept: None,
        }
    }

    /// Keep at most `max` bytes of stdout, instead of a log of its lines.
    pub(crate) fn keep_stdout(&mut self, max: usize) {
        self.kept = Some(Kept {
            bytes: Vec::new(),
            max,
            is_cut: false,
        });
    }

    /// What is kept of stdout.
    pub(crate) fn take_stdout(&mut self) -> Option<Kept> {
        self.kept.take()
    }

    /// Start the next attempt on the same instance.
    pub(crate) fn begin(&mut self, context: LogContext, limits: &Limits) {
        self.context = context;
        self.left = limits.log_attempt;
        self.dropped = 0;
        self.last_line.clear();
        self.told = Told::default();
        self.tail.clear();
    }

    /// The last line that this attempt wrote to stderr, with the indented lines below it: an
    /// assertion or a stack follows the message that it belongs to. It is kept even where the limits
    /// drop the line from the log.
    pub(crate) fn last_line(&self) -> Option<String> {
        let text = printable(&String::from_utf8_lossy(&self.last_line));
        (!text.is_empty()).then(|| truncated(&text, LAST_LINE_MAX).to_owned())
    }

    /// The last lines that this attempt wrote, of at most `max` bytes together, those among them that the
    /// limits have dropped from the log.
    pub(crate) fn tail(&self, max: usize) -> String {
        self.tail.text(max)
    }

    /// What this attempt wrote about its failure on stderr, and whether that names functions of the guest: what the
    /// runtime of its language wrote, or else the last line.
    pub(crate) fn failure(&self) -> Option<(String, bool)> {
        match self.told.text() {
            Some(text) => Some((text, self.told.has_functions())),
            None => self.last_line().map(|line| (line, false)),
        }
    }

    fn remember(&mut self, line: &[u8]) {
        self.told.read(line);
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(RUST_NOTE) {
            return;
        }
        let is_indented = text.len() < line.trim_ascii_end().len();
        if !is_indented {
            self.last_line.clear();
        } else if !self.last_line.is_empty() {
            self.last_line.push(b' ');
        }
        let room = LAST_LINE_MAX.saturating_sub(self.last_line.len());
        self.last_line.extend(text.iter().take(room));
    }

    /// Log an event, as one line: it counts against the same limits.
    pub(crate) fn event(&mut self, level: Level, context: &str, text: &str) {
        // Cut before anything is done with it: a guest may log as much as it may pass to the host.
        let (context, kept) = (
            truncated(context, self.line_max),
            truncated(text, self.line_max),
        );
        self.dropped += (text.len() - kept.len()) as u64;
        let line = match context.is_empty() {
            true => kept.to_owned(),
            false => format!("{context}: {kept}"),
        };
        self.line(Stream::Log, Some(level), printable(&line), false, None);
    }

    /// Log a line, within the limits. `is_cut`: it was longer. `written`: the bytes that are dropped with it; `None`
    /// = its own.
    fn line(
        &mut self,
        stream: Stream,
        level: Option<Level>,
        mut text: String,
        mut is_cut: bool,
        written: Option<usize>,
    ) {
        // Escaped text is longer than the text that the guest wrote.
        if text.len() > self.line_max {
            self.dropped += (text.len() - self.line_max) as u64;
            truncate_utf8(&mut text, self.line_max);
            is_cut = true;
        }
        if is_cut {
            text.push_str(CUT);
        }
        let cost = text.len().max(LINE_COST_MIN);
        let id = printable(&self.context.message_id);
        let event = EVENT_COST + json_bytes(&text) + json_bytes(&id);
        if cost <= self.left && self.rate.take(event) {
            self.left -= cost;
            self.emit(stream, level, &text);
        } else {
            self.dropped += written.unwrap_or(text.len()) as u64;
        }
        self.tail.push(text);
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Stdout
            && let Some(kept) = &mut self.kept
        {
            let room = kept.max - kept.bytes.len();
            kept.is_cut |= bytes.len() > room;
            kept.bytes.extend(bytes.iter().take(room));
            return;
        }
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
        let mut bytes = std::mem::take(&mut partial.bytes);
        let is_cut = std::mem::take(&mut partial.cut);
        if stream == Stream::Stderr {
            self.remember(&bytes);
        }
        // An empty line is not logged and costs nothing.
        if !bytes.is_empty() {
            let line = bytes.strip_suffix(b"\r").unwrap_or(&bytes);
            let text = printable(&String::from_utf8_lossy(line));
            self.line(stream, None, text, is_cut, Some(bytes.len()));
        }
        // The buffer is kept for the next line.
        bytes.clear();
        self.partial(stream).bytes = bytes;
    }

    /// Log the unfinished lines.
    pub(crate) fn end_lines(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !self.partial(stream).bytes.is_empty() {
                self.end_line(stream);
            }
        }
    }

    /// End the attempt: log its unfinished lines. Returns the bytes dropped.
    pub(crate) fn finish(&mut self) -> u64 {
        self.end_lines();
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

    fn emit(&self, stream: Stream, level: Option<Level>, text: &str) {
        match &self.context.sink {
            LogSink::Tracing => {
                macro_rules! event {
                    ($macro:ident) => {
                        tracing::$macro!(
                            target: "guest",
                            stream = stream.label(),
                            line = %text,
                            message_id = printable(&self.context.message_id),
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
                let text = match level {
                    Some(level) => format!("{}: {text}", LEVELS[level as usize]),
                    None => text.to_owned(),
                };
                capture.0.lock().push(LogLine { stream, text });
            }
        }
    }
}

/// The guest's stdout or stderr. It is always ready.
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) stream: Stream,
    pub(crate) log: Arc<Mutex<GuestLog>>,
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
        self.log.lock().write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(limits: &Limits) -> GuestLog {
        let context = LogContext {
            message_id: "1-1".into(),
            attempt: 1,
            messages: 1,
            trace: None,
            handler: "sha256:0".into(),
            sink: LogSink::Capture(Capture::default()),
        };
        GuestLog::new(context, limits, Arc::new(Rate::new(limits)))
    }

    fn last_line(text: &str) -> Option<String> {
        let mut log = log(&Limits::default());
        log.write(Stream::Stdout, b"not this\n");
        log.write(Stream::Stderr, text.as_bytes());
        log.write(Stream::Stdout, b"nor this\n");
        log.finish();
        log.last_line()
    }

    #[test]
    fn the_last_line_on_stderr_is_kept_with_what_is_indented_below_it() {
        for (text, line) in [
            ("one\ntwo\n", Some("two")),
            ("one\nunfinished", Some("unfinished")),
            ("one\n\n \n", Some("one")),
            (
                "at x:\nsum is wrong\n  left: 1\n right: 2\n",
                Some("sum is wrong left: 1 right: 2"),
            ),
            (
                "boom\r\nnote: run with `RUST_BACKTRACE=1` environment variable\n",
                Some("boom"),
            ),
            ("  indented\n", Some("indented")),
            ("a\u{1b}[31m\u{202e}\n", Some("a\\u{1b}[31m\\u{202e}")),
            ("", None),
        ] {
            assert_eq!(last_line(text).as_deref(), line, "{text:?}");
        }
    }

    #[test]
    fn the_last_lines_are_kept_in_their_order_and_bounded() {
        let limits = Limits {
            log_attempt: 0,
            log_tail: 20,
            ..Limits::default()
        };
        let mut log = log(&limits);
        assert_eq!(log.tail(20), "");
        log.write(Stream::Stdout, b"one\n");
        log.write(
            Stream::Stderr,
            b"two\n\nnote: run with `RUST_BACKTRACE=1`\n",
        );
        log.write(Stream::Stdout, b"unfinished");
        log.finish();
        assert_eq!(log.tail(20), "one\ntwo\nunfinished");
        assert_eq!(log.tail(15), "two\nunfinished");
        assert_eq!(log.tail(5), "");
        log.write(Stream::Stdout, "\u{1b}é".repeat(50).as_bytes());
        log.finish();
        assert_eq!(log.tail(20), "\\u{1b}é\\u{1b}é\\u{");
        for n in 0..10_000 {
            log.write(Stream::Stdout, format!("{n}\n").as_bytes());
        }
        assert_eq!(log.tail(20), "9996\n9997\n9998\n9999");
        let context = log.context.clone();
        log.begin(context, &limits);
        assert_eq!(log.tail(20), "");
    }

    #[test]
    fn the_last_line_is_bounded_and_belongs_to_one_attempt() {
        let bounded = last_line(&"\u{202e}é ".repeat(1_000)).unwrap();
        assert!(bounded.len() <= LAST_LINE_MAX, "{bounded}");
        let bounded = last_line(&format!("a\n{}", " b\n".repeat(1_000))).unwrap();
        assert!(bounded.len() <= LAST_LINE_MAX, "{bounded}");
        // The log has no room for the line; the fault has.
        let limits = Limits {
            log_attempt: 0,
            ..Limits::default()
        };
        let mut log = log(&limits);
        log.write(Stream::Stderr, b"boom\n");
        assert_eq!(log.finish(), 4);
        assert_eq!(log.last_line().as_deref(), Some("boom"));
        let context = log.context.clone();
        log.begin(context, &limits);
        assert_eq!(log.last_line(), None);
    }
}
