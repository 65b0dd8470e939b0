//! The loop around the ledger: it claims, runs, settles, renews and drains.
//!
//! - [`driver`]: the loop. One task owns the [`Ledger`](crate::delivery::ledger::Ledger), and only this
//!   task changes the state of a delivery.
//!   Its `requests` are the requests to the queue, of each kind only a few at a time.
//! - [`executor`]: the slots in which handlers run, on all cores. They take tickets from a queue, and send events to the
//!   driver: both are in the crate `hostler-handover`. [`job`]: a delivery as the ledger and a slot keep it.
//! - [`handler`]: a handler as a slot calls it. [`sandboxed`], [`native`]: the sandbox, and a no-op to
//!   measure it against.
//! - [`journals`]: the journals of messages, as attempts use them.
//! - [`gate`]: which messages no handler may see.
//! - `rollout_monitor`: how the versions of the handler do. `reporter`: counts, logs and status.
//!
//! ```text
//! workers --completion--> driver  --event-->  ledger
//! workers <---request---- (one    <--action-- (pure)
//! slots   --slot event--> task)
//! slots   <----ticket----
//! ```
//!
//! Every channel is bounded, and the driver never waits for one. Requests that wait for their worker stay
//! with the driver; the deliveries that the ledger holds bound their number.

pub mod driver;
pub mod executor;
pub mod fault_point;
pub mod gate;
pub mod handler;
pub mod job;
pub mod journals;
pub mod native;
mod reporter;
mod rollout_monitor;
pub mod sandboxed;

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::ledger::{Limited, Settings as LedgerSettings};
use crate::delivery::policy::Policy;
use crate::queue::{self, Guarantee, Queue};
use crate::rollout::breaker::{BreakerRule, OnBreak};
use crate::rollout::canary::CanaryRule;

pub use driver::{Control, Driver, Exit};
pub use handler::{Batching, Call, Handler, Report, Verdicts};

/// Longer than any host lives, and short enough to be added to any time.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// These rules on a queue with this guarantee.
fn policy_on(policy: Policy, guarantee: Guarantee) -> Policy {
    match guarantee {
        Guarantee::AtLeastOnce => policy,
        Guarantee::AtMostOnce => policy.at_most_once(),
    }
}

/// The settings of a host.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Attempts, prefetch, leases.
    pub ledger: LedgerSettings,
    /// The limits of the gate.
    pub gate: gate::Limits,
    /// How long started attempts may take to end after the host begins to stop.
    pub drain_timeout: Duration,
    /// Stop when the queue holds nothing to do.
    pub until_empty: Option<UntilEmpty>,
    /// When a canary is kept or rolled back; `None` = an operator decides.
    pub canary: Option<CanaryRule>,
    /// How long a version must have run without a complaint until this host has kept it.
    pub kept_after: Duration,
    /// When a version counts as one that faults on everything; `None` = never.
    pub breaker: Option<BreakerRule>,
    /// The reaction to a version that faults on everything.
    pub on_break: OnBreak,
    /// Whether messages have journals.
    pub journals: bool,
    /// How starts are limited.
    pub limited: Limited,
}

/// Rules that can change while a host runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// What to do after an outcome.
    pub policy: Policy,
    /// How long after its enqueueing a message is worth handling, for messages that are claimed from now
    /// on.
    pub ttl: Option<Duration>,
    /// Where dead letters go, how long the queue may be.
    pub queue: queue::Rules,
    /// The queue is paused.
    pub paused: bool,
}

/// Stop when there is nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct UntilEmpty {
    /// Give up after this long; `None` = never.
    pub timeout: Option<Duration>,
}

impl Settings {
    /// These settings on this queue. In an at-most-once queue, no lease ends, and there are no orphans and no due
    /// deliveries.
    #[must_use]
    fn on(self, queue: &dyn Queue) -> Self {
        let guarantee = queue.guarantee();
        match guarantee {
            Guarantee::AtLeastOnce => self,
            Guarantee::AtMostOnce => Self {
                ledger: LedgerSettings {
                    policy: policy_on(self.ledger.policy, guarantee),
                    takes_back: queue.takes_back(),
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
                checked_acks: false,
                paused: false,
                takes_back: true,
                concurrency: 16,
                batch: 1,
                prefetch_max: 4096,
                ahead: fault_point::read_ahead(Duration::from_millis(20)),
                min_idle: Duration::from_secs(30),
                orphan_scan: Duration::from_secs(1),
                due_scan: Duration::from_millis(100),
            },
            gate: gate::Limits::default(),
            drain_timeout: Duration::from_secs(25),
            until_empty: None,
            canary: None,
            kept_after: Duration::from_secs(300),
            breaker: Some(BreakerRule {
                window: Duration::from_secs(10),
                min: 50,
                rate: 0.95,
                timeout: Duration::from_secs(5),
            }),
            on_break: OnBreak::default(),
            journals: false,
            limited: Limited::No,
        }
    }
}

/// The digest for "no handler ran".
pub fn no_digest() -> Arc<str> {
    Arc::from("")
}
