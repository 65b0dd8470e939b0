//! One event for each denial, with the rule that would allow it. A handler that is denied all the time
//! does not fill the log.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::delivery::text::{printable, truncated};
use crate::delivery::trace::Trace;
use crate::grants::context::Origin;
use crate::telemetry::logging::Throttle;

/// Events in a second, of all attempts together. The metrics count all.
const PER_SECOND: u32 = 20;
/// The longest text that a guest can choose.
const TEXT_MAX: usize = 256;

/// The events of the present second.
#[derive(Debug)]
pub(super) struct Denials(Throttle);

impl Default for Denials {
    fn default() -> Self {
        Self(Throttle::bursts(Duration::from_secs(1), PER_SECOND))
    }
}

impl Denials {
    /// Log a denial: of what, why, and what would allow it.
    pub(super) fn log(&self, origin: &Origin, denied: &str, why: &str, rule: &str) {
        let Some(suppressed) = self.0.pass("denied", Instant::now()) else {
            return;
        };
        let bounded = |text| printable(truncated(text, TEXT_MAX));
        let trace = origin.traceparent.as_ref();
        let trace = trace.and_then(|traceparent| Trace::parse(traceparent));
        warn!(
            message_id = %bounded(&origin.message_id),
            attempt = origin.attempt,
            handler = %origin.handler,
            trace_id = trace.as_ref().map(Trace::trace_id),
            span_id = trace.as_ref().map(Trace::span_id),
            denied = bounded(denied),
            why = bounded(why),
            allowed_by = bounded(rule),
            suppressed = (suppressed > 0).then_some(suppressed),
            "a handler wanted what it is not granted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_denials_is_bounded_and_counted() {
        let denials = Denials::default();
        let start = Instant::now();
        let admitted = (0..1_000)
            .filter(|_| denials.0.pass("denied", start).is_some())
            .count();
        assert_eq!(admitted, PER_SECOND as usize);
        let later = start + Duration::from_secs(1);
        assert_eq!(
            denials.0.pass("denied", later),
            Some(1_000 - u64::from(PER_SECOND))
        );
        assert_eq!(denials.0.pass("denied", later), Some(0));
    }
}
