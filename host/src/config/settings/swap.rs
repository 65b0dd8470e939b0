//! How another version of the handler takes over, and what stops one that fails.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::choices::BreakAt;
use crate::config::selftest::SelfTests;
use crate::config::setting::Setting;
use crate::config::settings::{DAY, Section, at_most, between, bounded};
use crate::config::value::{Invalid, Value};
use crate::rollout::breaker::OnBreak;
use crate::rollout::canary::Share;

pub(super) static SECTION: Section = Section {
    title: "Swap",
    settings: &[
        &ACCEPT_DEPLOYS,
        &SELFTEST,
        &CANARY,
        &CANARY_WINDOW,
        &CANARY_MIN_MESSAGES,
        &CANARY_MAX_EXCESS,
        &BREAKER,
        &BREAKER_WINDOW,
        &BREAKER_MIN_MESSAGES,
        &ON_BREAK,
    ],
};

pub(in crate::config) static ACCEPT_DEPLOYS: Setting<bool> = Setting::new(
    "accept_deploys",
    "BOOL",
    "Take the versions that `hostler deploy` stores for this queue, and follow `hostler rollback` \
     and `hostler promote`. Whoever may write the queue's keys can then change its code.",
)
.default("false");

pub(in crate::config) static SELFTEST: Setting<SelfTests> = Setting::new(
    "selftest",
    "TESTS",
    "Messages that a version must handle as expected before it gets a real one: `body`, `headers`, \
     and `expect` = `ack` (the default), `nack-requeue`, `drop`, or `answer` for any of them. In a \
     variable or a flag: a JSON array of them.",
)
.unset("none");

pub(in crate::config) static CANARY: Setting<Share> = Setting::new(
    "canary",
    "SHARE",
    "The share of messages, by their ids, that a new version gets at first. It is then kept or \
     given up by comparing how often it faults and requeues with the version that serves the rest.",
)
.unset("a new version gets all messages at once")
.check(some_and_not_all);

/// With no messages, or with all of them, there is nothing to compare.
fn some_and_not_all(share: &Share) -> Result<(), Invalid> {
    bounded(
        share.show(),
        *share > Share::NONE,
        "0.01%",
        *share < Share::ALL,
        "99.99%",
    )
}

pub(in crate::config) static CANARY_WINDOW: Setting<Duration> = Setting::new(
    "canary_window",
    "DURATION",
    "How long a canary serves its share before it is kept.",
)
.default("5m")
.check(|d| between(d, Duration::from_millis(100), DAY));

pub(in crate::config) static CANARY_MIN_MESSAGES: Setting<NonZeroU32> = Setting::new(
    "canary_min_messages",
    "N",
    "How many different messages must have been tried on the canary, and on the other version, before \
     it is kept or given up.",
)
.default("100");

pub(in crate::config) static CANARY_MAX_EXCESS: Setting<Share> = Setting::new(
    "canary_max_excess",
    "SHARE",
    "By how much the canary's share of faults, of requeues, or of both together may exceed the \
     other version's. One that exceeds it is given up at once.",
)
.default("5%");

pub(in crate::config) static BREAKER: Setting<BreakAt> = Setting::new(
    "breaker",
    "SHARE",
    "At which share of faults, over `breaker_window`, the queue is stopped: nothing is read, what is \
     held is handed back uncharged, the host is not ready, and one message is tried at growing \
     intervals. `off` never stops it.",
)
.default("95%");

pub(in crate::config) static BREAKER_WINDOW: Setting<Duration> = Setting::new(
    "breaker_window",
    "DURATION",
    "Over how long faults are counted for `breaker`.",
)
.default("10s")
.check(|d| between(d, Duration::from_millis(100), DAY));

pub(in crate::config) static BREAKER_MIN_MESSAGES: Setting<NonZeroU32> = Setting::new(
    "breaker_min_messages",
    "N",
    "How many different messages must have faulted within that time, so that a few poisonous ones \
     stop nothing. For a handler that hangs: of how many attempts in a row `breaker` ran out of time, \
     whatever the window is.",
)
.default("50")
.check(|n| at_most(n, 10_000));

pub(in crate::config) static ON_BREAK: Setting<OnBreak> = Setting::new(
    "on_break",
    "WHAT",
    "What happens at `breaker`: `stop`, or `rollback` = the version before takes over, if there is \
     one (else `stop`).",
)
.default("stop");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_gets_some_messages_and_not_all() {
        for share in ["0%", "0.004%", "100%", "99.999%"] {
            let error = CANARY.parse(share).unwrap_err();
            assert!(
                format!("{error:?}").contains("0.01% to 99.99%"),
                "{error:?}"
            );
        }
        for share in ["0.01%", "10%", "99.99%"] {
            assert!(CANARY.parse(share).is_ok(), "{share}");
        }
        // These compare with no share of messages.
        for share in ["0%", "100%"] {
            assert!(CANARY_MAX_EXCESS.parse(share).is_ok(), "{share}");
        }
    }
}
