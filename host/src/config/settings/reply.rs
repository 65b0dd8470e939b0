//! Answers to producers that wait.

use std::time::Duration;

use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::{DAY, section};

section! { "Replies";
    /// How long the answer to a producer is kept: what became of its message, and the reply of the handler.
    KEEP: Duration = ("reply.keep", "DURATION")
        .default("5m")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (Duration::from_secs(1), Duration::from_secs(7 * DAY.as_secs())));
}
