//! The loop around the ledger: it claims, runs, settles, renews and drains.
//!
//! - [`driver`]: the loop. One task owns the [`Ledger`](crate::delivery::ledger::Ledger); nobody
//!   else changes what happens to a delivery.
//! - [`executor`]: the slots in which handlers run, on all cores.
//! - [`errands`]: the conversations with the queue, at most one of each kind at a time.
//! - [`gate`]: what no handler may see.
//! - [`sandboxed`], [`native`]: what a slot can call: the sandbox, or a no-op to measure it against.
//! - [`versions`]: which version of the handler an attempt gets. [`swap`]: how a new one gets there.
//! - [`gather`]: messages for one call of a handler that takes several.
//! - [`job`]: a delivery as the driver and a slot share it.
//! - [`deploys`]: the versions stored beside the queue, and what this host shows of its own.
//! - [`watch`]: noticing that a file has changed.
//!
//! ```text
//!            Event                     Ticket
//! errands ----------> driver/ledger -----------> slots
//!         <----------                <----------
//!            Action                     Word
//! ```
//!
//! Every channel is bounded, and the driver never waits for one: what an errand is too busy to
//! take stays with the driver, bounded by what the ledger holds.

pub mod driver;
pub mod errands;
pub mod executor;
pub mod fault_point;
pub mod gate;
pub mod gather;
pub mod job;
pub mod native;
pub mod sandboxed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::ledger::{Settings as LedgerSettings, Time};
use crate::delivery::policy::Policy;
use crate::queue::{self, Guarantee};
use crate::rollout::breaker::{self, OnBreak};
use crate::rollout::canary;

pub use driver::{Control, Driver, Exit};
pub use executor::{Call, Handler, Report};
pub use gather::{Batching, Verdicts};

/// Longer than any host lives, and short enough to be added to any time.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Policy {
    /// What is left of these rules on a queue with this guarantee.
    #[must_use]
    fn on(self, guarantee: Guarantee) -> Self {
        match guarantee {
            Guarantee::AtLeastOnce => self,
            Guarantee::AtMostOnce => self.at_most_once(),
        }
    }
}

/// What a host goes by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Attempts, prefetch, leases.
    pub ledger: LedgerSettings,
    /// What the gate turns away.
    pub gate: gate::Limits,
    /// How long what has started may take to end, once the host stops.
    pub drain_timeout: Duration,
    /// Stop when the queue holds nothing to do; with the time after which that is given up.
    pub until_empty: Option<UntilEmpty>,
    /// When a new version on trial is kept; without it, somebody decides by hand.
    pub canary: Option<canary::CanaryRule>,
    /// When a version that faults on everything stops the queue; `None` = never.
    pub breaker: Option<breaker::BreakerRule>,
    /// What happens then.
    pub on_break: OnBreak,
}

/// What may change under a running host.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// What an outcome leads to.
    pub policy: Policy,
    /// How long after it was enqueued a message is worth handling: for what is claimed from now on.
    pub ttl: Option<Duration>,
    /// Where dead letters go, how long the queue may be.
    pub queue: queue::Rules,
}

/// Stop when there is nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct UntilEmpty {
    /// Give up after this long; `None` = never.
    pub timeout: Option<Duration>,
}

impl Settings {
    /// What is left of them on a queue with this guarantee: where nothing goes back, no lease runs
    /// out, nobody leaves orphans, and nothing is ever due.
    #[must_use]
    fn on(self, guarantee: Guarantee) -> Self {
        match guarantee {
            Guarantee::AtLeastOnce => self,
            Guarantee::AtMostOnce => Self {
                ledger: LedgerSettings {
                    policy: self.ledger.policy.on(guarantee),
                    min_idle: NEVER,
                    orphan_scan: NEVER,
                    due_scan: NEVER,
                    ..self.ledger
                },
                ..self
            },
        }
    }

    /// Settings with the published defaults, for this policy.
    pub fn new(policy: Policy) -> Self {
        Self {
            ledger: LedgerSettings {
                policy,
                concurrency: 16,
                batch: 1,
                prefetch_max: 1024,
                min_idle: Duration::from_secs(30),
                orphan_scan: Duration::from_secs(1),
                due_scan: Duration::from_millis(100),
            },
            gate: gate::Limits::default(),
            drain_timeout: Duration::from_secs(25),
            until_empty: None,
            canary: None,
            breaker: Some(breaker::BreakerRule {
                window: Duration::from_secs(10),
                min: 50,
                rate: 0.95,
                timeout: Duration::from_secs(5),
            }),
            on_break: OnBreak::default(),
        }
    }
}

/// Monotonic time of this process, shared by the driver and the slots.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now, a little above zero.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn now(&self) -> Time {
        self.0.elapsed()
    }

    fn at(&self, time: Time) -> Instant {
        self.0 + time
    }
}

/// The digest that stands for "no handler ran".
pub fn no_digest() -> Arc<str> {
    Arc::from("")
}
