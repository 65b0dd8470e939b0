//! What follows a failed attempt.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::{DAY, section};
use crate::delivery::policy::{OnCap, OnFault, Reason};

section! { "Failures";
    /// The most starts of a handler for one message, crashes of its host included. `on_cap` decides after the last
    /// failure.
    MAX_DELIVERIES: NonZeroU32 = ("max_deliveries", "N")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .unset("no limit: a failing message comes back for ever");

    /// The action when a message has failed `max_deliveries` times: `dead-letter` or `discard`.
    ON_CAP: OnCap = ("on_cap", "WHAT")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .idle_without(&MAX_DELIVERIES)
        .default("dead-letter");

    /// The action after a fault (trap, timeout, limit): `requeue` = the same as any failed attempt, `dead-letter` =
    /// the message is dead-lettered at once. `dead-letter` needs `dead_letter.key`, or routes to `discard`.
    ON_FAULT: OnFault = ("on_fault", "WHAT").live().kinds(&AT_LEAST_ONCE).default("requeue").loses(
        |on_fault| match on_fault {
            OnFault::DeadLetter => &[Reason::Trap, Reason::Timeout, Reason::MemoryLimit],
            OnFault::Requeue => &[],
        },
    );

    /// How long a message waits after its first failed attempt, if the handler does not say.
    BACKOFF_FIRST: Duration = ("backoff.first", "DURATION")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .default("100ms")
        .range(|| (Duration::ZERO, DAY));

    /// The factor from each wait to the next.
    BACKOFF_FACTOR: f64 = ("backoff.factor", "NUMBER")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .default("2")
        .range(|| (1.0, 100.0));

    /// The longest wait, before jitter.
    BACKOFF_MAX: Duration = ("backoff.max", "DURATION")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .default("30s")
        .range(|| (Duration::ZERO, DAY));

    /// The random share of a wait, from 0 to 1: 0.2 = 20 % shorter to 20 % longer.
    BACKOFF_JITTER: f64 = ("backoff.jitter", "SHARE")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .default("0.2")
        .range(|| (0.0, 1.0));
}
