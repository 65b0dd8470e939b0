//! What a failed attempt leads to.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::setting::Setting;
use crate::config::settings::{DAY, Section, between, in_range};
use crate::delivery::policy::{OnCap, OnFault};

pub(super) static SECTION: Section = Section {
    title: "Failures",
    settings: &[
        &MAX_DELIVERIES,
        &ON_CAP,
        &ON_FAULT,
        &BACKOFF_FIRST,
        &BACKOFF_FACTOR,
        &BACKOFF_MAX,
        &BACKOFF_JITTER,
    ],
};

pub(in crate::config) static MAX_DELIVERIES: Setting<NonZeroU32> = Setting::new(
    "max_deliveries",
    "N",
    "How often a handler starts for one message at most, crashes of its host included. The last \
     failure ends as `on_cap` says.",
)
.live()
.unset("no cap: a failing message is redelivered for ever");

pub(in crate::config) static ON_CAP: Setting<OnCap> = Setting::new(
    "on_cap",
    "WHAT",
    "What happens to a message that has failed `max_deliveries` times: `dead-letter` or `discard`.",
)
.live()
.default("dead-letter");

pub(in crate::config) static ON_FAULT: Setting<OnFault> = Setting::new(
    "on_fault",
    "WHAT",
    "What a fault (trap, timeout, limit) means: `requeue` = a failed attempt like any other, \
     `dead-letter` = the end of the message, at once; this needs `dead_letter.key`, or routes to \
     `discard`.",
)
.live()
.default("requeue");

pub(in crate::config) static BACKOFF_FIRST: Setting<Duration> = Setting::new(
    "backoff.first",
    "DURATION",
    "How long a failed message waits after its first attempt, if the handler does not say.",
)
.live()
.default("100ms")
.check(|d| between(d, Duration::ZERO, DAY));

pub(in crate::config) static BACKOFF_FACTOR: Setting<f64> = Setting::new(
    "backoff.factor",
    "NUMBER",
    "By how much each further wait is longer.",
)
.live()
.default("2")
.check(|n| in_range(*n, 1.0, 100.0));

pub(in crate::config) static BACKOFF_MAX: Setting<Duration> = Setting::new(
    "backoff.max",
    "DURATION",
    "The longest wait, before jitter.",
)
.live()
.default("30s")
.check(|d| between(d, Duration::ZERO, DAY));

pub(in crate::config) static BACKOFF_JITTER: Setting<f64> = Setting::new(
    "backoff.jitter",
    "SHARE",
    "The share of a wait that is random, from 0 to 1: 0.2 = 20 % shorter to 20 % longer.",
)
.live()
.default("0.2")
.check(|n| in_range(*n, 0.0, 1.0));
