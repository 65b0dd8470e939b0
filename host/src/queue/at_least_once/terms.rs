//! The terms of the hosts of one queue: when a delivery is an orphan, and where claims are recorded.
//!
//! If two hosts were configured differently, the one with the shorter `min_idle` would take what the other
//! one still runs. So every host writes its terms to Redis, for a limited time, before it claims
//! anything. The scripts that take orphans read that, and the largest `min_idle` holds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tracing::warn;

use crate::clock::Clock;
use crate::delivery::millis::millis;
use crate::queue::scripts;
use crate::queue::startup::StartError;
use crate::redis::Error;
use crate::redis::connection::Link;
use crate::redis::reply;

/// How often a host writes its terms, at the least while it holds something.
const REPEAT_EVERY: Duration = Duration::from_secs(5);
/// How long it holds beyond two `min_idle`s, in which a host that lives has renewed its leases.
const HOLDS_LONGER: Duration = Duration::from_secs(60);

/// The terms of this host, and what it knows of those of the others.
#[derive(Debug)]
pub(in crate::queue) struct Terms {
    /// The key of the terms of all hosts.
    key: String,
    queue: String,
    host: String,
    min_idle: Duration,
    /// The key of the recovery set, if this host records its claims.
    recovery: Option<String>,
    /// It must go on in a suspended machine, like the leases of the others.
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// When this host last wrote its terms.
    said: Option<Duration>,
    /// The terms of all hosts then.
    agreed: Agreed,
    /// How many connections had been opened by then.
    opened: u64,
    /// After a long disconnection: before this, the others may not have renewed what they hold.
    renewing: Option<Duration>,
}

/// The terms of all live hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Agreed {
    largest: Duration,
    smallest: Duration,
    /// They use the same recovery set, or none.
    is_one_set: bool,
}

impl Terms {
    pub(in crate::queue) fn new(
        key: String,
        (queue, host): (&str, &str),
        min_idle: Duration,
        recovery: Option<&str>,
    ) -> Self {
        let agreed = Agreed {
            largest: min_idle,
            smallest: min_idle,
            is_one_set: true,
        };
        Self {
            key,
            queue: queue.to_owned(),
            host: host.to_owned(),
            min_idle,
            recovery: recovery.map(str::to_owned),
            clock: Clock::start(),
            known: Mutex::new(Known {
                said: None,
                agreed,
                opened: 0,
                renewing: None,
            }),
        }
    }

    /// The key of the terms of all hosts, for scripts.
    pub(in crate::queue) fn key(&self) -> &str {
        &self.key
    }

    /// The largest `min_idle`, as far as this host knows.
    pub(in crate::queue) fn largest(&self) -> Duration {
        self.known().agreed.largest
    }

    /// Before the first claim. The recovery set may belong to another queue.
    pub(in crate::queue) async fn open(&self, link: &Link) -> Result<(), StartError> {
        let said = self.say(link, "open").await;
        match said.map_err(|error| StartError::from_error(error, &self.queue))? {
            Some(owner) => Err(StartError::OfAnotherQueue {
                key: self.recovery.clone().unwrap_or_default(),
                purpose: "the recovery set",
                owner,
            }),
            None => Ok(()),
        }
    }

    /// Write the terms of this host, before it looks for orphans. Returns whether it may look: after a
    /// long disconnection the host with the longest `min_idle` must be able to renew first.
    pub(in crate::queue) async fn stay(&self, link: &Link) -> Result<bool, Error> {
        match self.say(link, "stay").await? {
            Some(owner) => {
                let set = self.recovery.as_deref().unwrap_or_default();
                let detail = format!("the recovery set `{set}` belongs to `{owner}`");
                Err(Error::refused(scripts::GO_BY.name(), "OWNER", &detail))
            }
            None => {
                let renewing = self.known().renewing;
                Ok(renewing.is_none_or(|until| self.clock.now() >= until))
            }
        }
    }

    /// The same, unless that was a moment ago: before a renewal, and with housekeeping. A refusal stops
    /// neither: the look for orphans meets it, and says so.
    pub(in crate::queue) async fn stay_known(&self, link: &Link) -> Result<(), Error> {
        let said = self.known().said;
        if said.is_some_and(|at| self.clock.now().saturating_sub(at) < REPEAT_EVERY) {
            return Ok(());
        }
        match self.stay(link).await {
            Err(Error::Configuration { .. }) => Ok(()),
            said => said.map(drop),
        }
    }

    /// Remove the terms of this host.
    pub(in crate::queue) async fn leave(&self, link: &Link) -> Result<(), Error> {
        self.say(link, "leave").await.map(drop)
    }

    /// Returns another queue that the recovery set belongs to.
    async fn say(&self, link: &Link, when: &str) -> Result<Option<String>, Error> {
        let script = &scripts::GO_BY;
        let keys = [Some(self.key.as_str()), self.recovery.as_deref()];
        let keys: Vec<&str> = keys.into_iter().flatten().collect();
        let mut call = script.on(&keys);
        call.arg(&self.host)
            .arg(millis(self.min_idle))
            .arg(millis(2 * self.min_idle + HOLDS_LONGER))
            .arg(&self.queue)
            .arg(when);
        let reply = link.run(script, &call).await?;
        let [largest, smallest, is_one_set, owner] = reply::tuple(script.name(), reply)?;
        let owner = reply::text(script.name(), owner)?;
        if !owner.is_empty() {
            return Ok(Some(owner));
        }
        let ms = |value: Value| reply::count(script.name(), &value).map(Duration::from_millis);
        let agreed = Agreed {
            largest: ms(largest)?,
            smallest: ms(smallest)?,
            is_one_set: reply::integer(script.name(), &is_one_set)? == 1,
        };
        self.learn(agreed, link.opened());
        Ok(None)
    }

    /// Warn where hosts differ, whenever that changes.
    fn learn(&self, agreed: Agreed, opened: u64) {
        let mut known = self.known();
        let (now, longest) = (self.clock.now(), agreed.largest);
        // As the ledger does for its own `min_idle`.
        if known.opened != opened
            && known
                .said
                .is_some_and(|at| now.saturating_sub(at) >= longest / 6)
        {
            known.renewing = Some(now + longest / 2);
        }
        known.opened = opened;
        known.said = Some(now);
        let before = std::mem::replace(&mut known.agreed, agreed);
        drop(known);
        let spread = (agreed.smallest, agreed.largest);
        if agreed.smallest < agreed.largest && spread != (before.smallest, before.largest) {
            warn!(
                own_ms = millis(self.min_idle),
                shortest_ms = millis(agreed.smallest),
                longest_ms = millis(agreed.largest),
                "the hosts of this queue have different values of min_idle: the longest holds"
            );
        }
        if !agreed.is_one_set && before.is_one_set {
            warn!(
                own = self.recovery,
                "the hosts of this queue have different values of recovery_zset: what a host holds is \
                 recovered only when that host was not seen for min_idle"
            );
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Plain values: a panic elsewhere leaves none half-written.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
