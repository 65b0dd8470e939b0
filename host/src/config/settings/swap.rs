//! How another version of the handler takes over, and what stops a version that fails.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::choices::BreakAt;
use crate::config::setting::in_range;
use crate::config::settings::{DAY, section, up_to};
use crate::rollout::breaker::OnBreak;
use crate::rollout::canary::Share;
use crate::rollout::verify::SelfTest;
use crate::values::Invalid;

section! { "Swap";
    /// Take the versions that `hostler deploy` stores for this queue, and follow `hostler rollback` and
    /// `hostler promote`. Everybody who may write the keys of the queue can then change its code.
    ACCEPT_DEPLOYS: bool = ("accept_deploys", "BOOL").default("false");

    /// Messages that a new version must handle as expected before it gets a real one: `body`, `headers`, and
    /// `expect` = `ack` (the default), `nack-requeue`, `drop`, or `answer` for any of the three. In a
    /// variable or a flag: a JSON array.
    SELFTEST: Vec<SelfTest> = ("selftest", "TESTS").unset("no tests");

    /// The share of messages, chosen by their ids, that a new version gets at first. The host compares its
    /// faults and requeues with those of the current version, and then promotes it or rolls it back.
    CANARY: Share = ("canary", "SHARE")
        .unset("a new version gets all messages at once")
        .check(some_and_not_all);

    /// How long a canary gets its share before it is promoted. Also, with or without canaries: how long a
    /// deployed version must have run on a host, without a stop of the queue, until the host records that it
    /// has kept the version.
    CANARY_WINDOW: Duration = ("canary_window", "DURATION")
        .default("5m")
        .range(|| (Duration::from_millis(100), DAY));

    /// The fewest different messages that the canary, and the current version, must have tried before the
    /// host decides.
    CANARY_MIN_MESSAGES: NonZeroU32 = ("canary_min_messages", "N").default("100");

    /// By how much the canary's share of faults, of requeues, or of both together may exceed that of the
    /// current version. A canary that exceeds it is rolled back at once.
    CANARY_MAX_EXCESS: Share = ("canary_max_excess", "SHARE").default("5%");

    /// The share of faults, over `breaker_window`, that stops the queue. The host then reads nothing, hands
    /// its messages back uncharged, is not ready, and tries one message at growing intervals. `off` never
    /// stops it.
    BREAKER: BreakAt = ("breaker", "SHARE").default("95%");

    /// The window over which faults are counted for `breaker`.
    BREAKER_WINDOW: Duration = ("breaker_window", "DURATION")
        .default("10s")
        .range(|| (Duration::from_millis(100), DAY));

    /// The fewest different messages that must have faulted within that window, so that a few poison messages do not
    /// stop the queue. For a handler that hangs: the number of attempts in a row of which the share `breaker` ran out
    /// of time, without a window.
    BREAKER_MIN_MESSAGES: NonZeroU32 = ("breaker_min_messages", "N")
        .default("50")
        .range(|| up_to(10_000));

    /// The action when `breaker` stops a version: `stop`, or `rollback` = the previous version takes over, if there
    /// is one (else `stop`).
    ON_BREAK: OnBreak = ("on_break", "WHAT").default("stop");
}

/// With no messages, or with all of them, there is nothing to compare.
fn some_and_not_all(share: &Share) -> Result<(), Invalid> {
    let ends = Share::from_basis_points(1).zip(Share::from_basis_points(9_999));
    ends.map_or(Ok(()), |ends| in_range(share, ends))
}

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
