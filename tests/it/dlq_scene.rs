//! What the tests of dead letters share.

use std::time::Duration;

use hostler::delivery::attempt::Allowance;
use hostler::delivery::backoff::Backoff;
use hostler::delivery::policy::{OnCap, OnFault, Policy};
use hostler::runtime::{Settings, UntilEmpty};

/// A policy with this cap, and with somewhere to put dead letters.
pub(crate) fn policy(cap: Option<u32>) -> Policy {
    Policy {
        allowance: Allowance {
            cap,
            ..Allowance::default()
        },
        on_cap: OnCap::DeadLetter,
        on_fault: OnFault::Requeue,
        has_dead_letter: true,
        dead_letters: hostler::delivery::policy::DeadLetterRules::default(),
        backoff: Backoff {
            first: Duration::from_millis(5),
            ..Backoff::default()
        },
    }
}

/// A host that ends when its queue is empty.
pub(crate) fn settings(policy: Policy) -> Settings {
    Settings {
        until_empty: Some(UntilEmpty {
            timeout: Some(Duration::from_secs(20)),
        }),
        ..Settings::new(policy)
    }
}
