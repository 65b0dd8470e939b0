//! Points at which a test can abort the host. Without the feature `fault-points` the check compiles to
//! nothing.

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

/// Does nothing: the feature `fault-points` is off.
#[cfg(not(feature = "fault-points"))]
pub fn reach(_: Point, _: &Message) {}
