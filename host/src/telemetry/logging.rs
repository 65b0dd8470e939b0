//! Log lines on stderr: pretty on a terminal, JSON otherwise. One event for each change of state, with
//! fields, without payloads.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use super::bounded_stderr::{BoundedWriter, Reader, own_terminal};
use super::otlp::log_layer::LogLayer;

/// How log lines look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// `Pretty` on a terminal, `Json` otherwise.
    Auto,
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// The filter of log lines: a level for hostler and its guests, or levels by target in the syntax of
/// `tracing`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogFilter(String);

/// The level of the libraries where the filter is a level alone.
const LIBRARIES: LevelFilter = LevelFilter::WARN;

/// Warnings and errors: for commands other than `run`.
impl Default for LogFilter {
    fn default() -> Self {
        Self("warn".to_owned())
    }
}

impl LogFilter {
    /// These directives.
    ///
    /// # Errors
    /// They do not parse.
    pub fn new(directives: &str) -> Result<Self, ParseError> {
        EnvFilter::builder().parse(directives)?;
        Ok(Self(directives.to_owned()))
    }

    /// A level alone is for hostler and its guests. The libraries would drown their lines.
    fn directives(&self) -> String {
        match self.0.parse::<LevelFilter>() {
            Ok(level) if level > LIBRARIES => format!("{LIBRARIES},hostler={level},guest={level}"),
            _ => self.0.clone(),
        }
    }

    /// The directives.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The reader of this process's stderr.
static STDERR: Reader = Reader::new();
/// Where log lines are written: stderr, or the same terminal.
static OUT: OnceLock<Box<dyn AsFd + Send + Sync>> = OnceLock::new();

/// How many lines were dropped since the start, because the reader of stderr was too slow.
pub fn lines_dropped() -> u64 {
    STDERR.dropped()
}

/// Log to stderr from now on, and to a collector if there is one. The first call of a process wins; later ones
/// change nothing.
///
/// A line is written before the code that logs it goes on, so that it survives a crash. A reader that
/// has stopped reading delays nothing for long: [`lines_dropped`].
pub fn start(format: LogFormat, level: &LogFilter, collector: Option<LogLayer>) {
    // `LogFilter::new` has parsed it: no directive is lost.
    let filter = EnvFilter::builder().parse_lossy(level.directives());
    let is_terminal = std::io::stderr().is_terminal();
    let pretty = match format {
        LogFormat::Auto => is_terminal,
        LogFormat::Pretty => true,
        LogFormat::Json => false,
    };
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let out = OUT.get_or_init(|| match is_terminal.then(own_terminal).flatten() {
        Some(terminal) => Box::new(terminal),
        None => Box::new(std::io::stderr()),
    });
    let lines = fmt::layer().with_writer(move || BoundedWriter::new(out, &STDERR));
    let lines = if pretty {
        lines
            .with_ansi(is_terminal && !no_colour)
            .with_target(false)
            .boxed()
    } else {
        lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed()
    };
    let started = registry()
        .with(lines)
        .with(collector)
        .with(filter)
        .try_init();
    if let Err(error) = started {
        tracing::debug!(%error, "logging had been started before");
    }
}

/// Lets one log line of a kind, or some, through per interval, and counts the rest. A failure that
/// occurs a thousand times a second is logged once a second.
///
/// ```
/// # use hostler::telemetry::logging::Throttle;
/// # use std::time::Instant;
/// let throttle = Throttle::default();
/// if let Some(suppressed) = throttle.pass("redis-away", Instant::now()) {
///     tracing::warn!(suppressed, "redis is away");
/// }
/// ```
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    burst: u32,
    // Kinds are constants of the program: there is a bounded number of them.
    kinds: Mutex<HashMap<&'static str, Passed, FxBuildHasher>>,
}

#[derive(Debug)]
struct Passed {
    /// When the first of these passed.
    since: Instant,
    passed: u32,
    suppressed: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(Duration::from_secs(1))
    }
}

impl Throttle {
    /// One line of a kind per `interval`.
    pub fn new(interval: Duration) -> Self {
        Self::bursts(interval, 1)
    }

    /// `burst` lines of a kind per `interval`.
    pub fn bursts(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            burst,
            kinds: Mutex::default(),
        }
    }

    /// Whether a line of this kind may be logged now: `Some` = yes, with the number of lines
    /// suppressed since the last one; `None` = no, and it is counted.
    pub fn pass(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock();
        let passed = kinds.entry(kind).or_insert(Passed {
            since: now,
            passed: 0,
            suppressed: 0,
        });
        if now.saturating_duration_since(passed.since) >= self.interval {
            passed.since = now;
            passed.passed = 0;
        }
        if passed.passed >= self.burst {
            passed.suppressed += 1;
            return None;
        }
        passed.passed += 1;
        Some(std::mem::take(&mut passed.suppressed))
    }

    /// This kind is over (Redis is back, for example). Returns how many lines were suppressed since the
    /// last one that passed. The next line of the kind passes at once.
    pub fn end(&self, kind: &'static str) -> u64 {
        self.kinds.lock().remove(kind).map_or(0, |p| p.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_for_us_and_directives_are_for_all() {
        let directives = |text| LogFilter::new(text).unwrap().directives();
        assert_eq!(directives("debug"), "warn,hostler=debug,guest=debug");
        assert_eq!(directives("error"), "error");
        assert_eq!(directives("off"), "off");
        assert_eq!(directives("info,guest=off"), "info,guest=off");
        LogFilter::new("hostler=loud").unwrap_err();
    }

    #[test]
    fn one_line_a_second_of_each_kind_and_the_rest_is_counted() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(throttle.pass("a", at(0)), Some(0));
        assert_eq!(throttle.pass("a", at(1)), None);
        assert_eq!(throttle.pass("b", at(2)), Some(0));
        assert_eq!(throttle.pass("a", at(999)), None);
        assert_eq!(throttle.pass("a", at(1000)), Some(2));
        assert_eq!(throttle.pass("a", at(1001)), None);
        assert_eq!(throttle.end("a"), 1);
        assert_eq!(throttle.end("a"), 0);
        assert_eq!(throttle.pass("a", at(1002)), Some(0));
    }

    #[test]
    fn some_lines_a_second_where_each_tells_something_of_its_own() {
        let throttle = Throttle::bursts(Duration::from_secs(1), 2);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let passed = [0, 1, 2, 3, 1_000, 1_001, 1_002].map(|ms| throttle.pass("a", at(ms)));
        let expected = [Some(0), Some(0), None, None, Some(2), Some(0), None];
        assert_eq!(passed, expected);
    }
}
