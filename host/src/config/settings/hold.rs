//! Messages that their handlers hold.

use std::time::Duration;

use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::{DAY, section};
use crate::delivery::hold::HOLDS_MAX;

section! { "Holds";
    /// How often a handler may hold a message. A hold beyond that is an error of its call, and a `nack-requeue` after it is
    /// charged like any other. 0 = never.
    MAX: u32 = ("hold.max", "N")
        .default("100")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (0, HOLDS_MAX));

    /// How long after the first hold of a message the last one ends, at most. More than 24 hours are not allowed with
    /// `retention = "acked"`: a held entry pins the stream.
    MAX_AGE: Duration = ("hold.max_age", "DURATION")
        .default("24h")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (Duration::from_secs(1), Duration::from_secs(30 * DAY.as_secs())));
}
