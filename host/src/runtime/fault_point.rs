//! Points at which a test may bring the host down. Without the feature `fault-points` there are
//! none: the check compiles to nothing.

use crate::delivery::message::Message;

/// Where the host can be brought down.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Point {
    /// A slot is about to call the handler.
    Start,
    /// The handler has answered, and nobody knows it yet.
    Verdict,
}

/// The header that names the point at which this message brings its host down.
pub const HEADER: &str = "x-hostler-test-abort";

/// Abort the process if the message says so.
#[cfg(feature = "fault-points")]
pub fn reach(point: Point, message: &Message) {
    let name = match point {
        Point::Start => "start",
        Point::Verdict => "verdict",
    };
    if message.headers.find_str(HEADER) == Some(name) {
        std::process::abort();
    }
}

/// Nothing: the feature `fault-points` is off.
#[cfg(not(feature = "fault-points"))]
pub fn reach(_: Point, _: &Message) {}
