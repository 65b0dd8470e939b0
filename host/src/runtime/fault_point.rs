//! Points at which a test can abort the host. Without the feature `fault-points` the check compiles to
//! nothing.

use std::fmt::Arguments;
use std::time::Duration;

use crate::delivery::message::Message;

/// A point at which the host can abort.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Point {
    /// A slot is about to call the handler.
    Start,
    /// The handler has answered, and the slot has not reported it yet.
    Verdict,
}

/// The header that names the point at which the message aborts its host.
pub const HEADER: &str = "x-hostler-test-abort";

/// The environment variable that names a step, and the pass of it at which the host aborts: `Settle-before:17`.
/// It does not begin as those of the configuration do: these are checked.
pub const VARIABLE: &str = "TEST_ABORT_AT";

/// Abort the process if the message says so.
#[cfg(feature = "fault-points")]
pub fn reach(point: Point, message: &Message) {
    let name = match point {
        Point::Start => "start",
        Point::Verdict => "verdict",
    };
    pass(format_args!("{point:?}"));
    if message.headers.find_str(HEADER) == Some(name) {
        std::process::abort();
    }
}

/// Abort the process if the environment says so: the host passes this step.
#[cfg(feature = "fault-points")]
pub fn pass(step: Arguments<'_>) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The step, and how many passes are left.
    static ARMED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let armed = ARMED.get_or_init(|| {
        let value = std::env::var(VARIABLE).ok()?;
        let (step, passes) = value.split_once(':')?;
        Some((step.to_owned(), passes.parse::<u64>().ok()?.into()))
    });
    if let Some((name, left)) = armed
        && *name == step.to_string()
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
}

/// How far a host reads ahead, by this environment variable in milliseconds: a test has messages that wait in the host,
/// however slow it is.
#[cfg(feature = "fault-points")]
pub fn read_ahead(usual: Duration) -> Duration {
    let ms = std::env::var("TEST_READ_AHEAD_MS").ok();
    let ms = ms.and_then(|ms| ms.parse().ok());
    ms.map_or(usual, Duration::from_millis)
}

/// The usual one: the feature `fault-points` is off.
#[cfg(not(feature = "fault-points"))]
pub fn read_ahead(usual: Duration) -> Duration {
    usual
}

/// Does nothing: the feature `fault-points` is off.
#[cfg(not(feature = "fault-points"))]
pub fn reach(_: Point, _: &Message) {}

/// Does nothing: the feature `fault-points` is off.
#[cfg(not(feature = "fault-points"))]
pub fn pass(_: Arguments<'_>) {}
