//! The state of the connection to Redis.
//!
//! If one request fails as a whole, Redis is away: the host sends no new requests, except a probe at
//! growing, jittered intervals. Running handlers go on.
//!
//! When the probe succeeds, the host sends its requests again. Some failures are invisible to a probe: a
//! missing right, a wrong type, a request that is repeated until it is answered. The host is ready only
//! when such requests have succeeded. If one fails again, the next pause is longer.
//!
//! A missing group is such a failure as well: another host may have made it again by the time of the
//! probe. So the request that met it takes back what this host holds before anything is sent again.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::delivery::backoff::Backoff;
use crate::delivery::ledger::Time;
use crate::redis::{Class, Error};
use crate::runtime::driver::requests::Kind;
use crate::runtime::reporter::Reporter;
use crate::telemetry::health::Cause;

/// The longest pause before each probe. With the deadline of a probe, a server that is back is found
/// within five seconds.
const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(50), Duration::from_secs(2));
/// After Redis was back for this long, the next pause is the shortest one again.
const STEADY: Time = Time::from_secs(2);
/// The least time between two log lines that say that Redis is away. With the line that says that it is
/// back, this makes at most one line a second.
const LOG_EVERY: Time = Time::from_secs(2);
/// While Redis stays away, the log repeats it this often.
const REMIND_EVERY: Time = Time::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    online: watch::Sender<bool>,
    /// Failures in a row: they set the next pause.
    failures: u32,
    /// Requests that must succeed before the host is ready again.
    pending_recovery: BTreeSet<Kind>,
    /// The stream or group was missing, or is another one: it must be repaired before the host is online
    /// again.
    must_repair: bool,
    /// When the trouble began.
    since: Option<Time>,
    /// When Redis was last found to be back.
    back: Time,
    /// The code of the last logged error, and when it was logged.
    logged: Option<String>,
    logged_at: Option<Time>,
}

impl Connection {
    pub(super) fn new(online: watch::Sender<bool>) -> Self {
        Self {
            online,
            failures: 0,
            pending_recovery: BTreeSet::new(),
            must_repair: false,
            since: None,
            back: Time::ZERO,
            logged: None,
            logged_at: None,
        }
    }

    pub(super) fn is_online(&self) -> bool {
        *self.online.borrow()
    }

    /// A request failed as a whole. Returns whether this takes the host offline.
    pub(super) fn failed(
        &mut self,
        now: Time,
        kind: Kind,
        error: &Error,
        reporter: &Reporter,
    ) -> bool {
        if kind.is_repeated() || error.class() == Class::Configuration {
            self.pending_recovery.insert(kind);
        }
        self.must_repair |= error.class() == Class::Missing;
        self.mark_unready(now, error, reporter);
        if !self.is_online() {
            return false;
        }
        self.online.send_replace(false);
        if now >= self.back + STEADY {
            self.failures = 0;
        }
        true
    }

    /// Redis refused a request that pauses alone. The host is not ready until it succeeds, and goes on.
    pub(super) fn errand_refused(
        &mut self,
        kind: Kind,
        what: &str,
        error: &Error,
        reporter: &Reporter,
    ) {
        reporter.metrics.redis_error(error);
        self.pending_recovery.insert(kind);
        let detail = format!("{what} pauses: {}", error.with_hint());
        reporter.health.impede(Cause::RedisConfiguration, detail);
    }

    /// The pause before the next probe: it doubles with every failure, and half of it is random.
    pub(super) fn next_pause(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        pause(self.failures, fastrand::f64())
    }

    /// The host is not ready, because of this error. Logged, unless it was logged a moment ago.
    pub(super) fn mark_unready(&mut self, now: Time, error: &Error, reporter: &Reporter) {
        reporter.metrics.redis_error(error);
        let (cause, other) = match error.class() {
            Class::Configuration => (Cause::RedisConfiguration, Cause::RedisAway),
            Class::Reconnect | Class::Retry | Class::Missing => {
                (Cause::RedisAway, Cause::RedisConfiguration)
            }
        };
        reporter.health.impede(cause, error.with_hint());
        reporter.health.clear(other);
        let since = *self.since.get_or_insert(now);
        let is_known = self.logged.as_deref() == Some(error.code());
        let every = if is_known { REMIND_EVERY } else { LOG_EVERY };
        if self.logged_at.is_some_and(|at| now < at + every) {
            return;
        }
        let (failures, hint) = (self.failures, error.hint());
        let for_ms = now.saturating_sub(since).as_millis();
        match error.class() {
            Class::Configuration => {
                warn!(%error, hint, failures, for_ms, "redis refuses what this host needs");
            }
            Class::Retry => warn!(%error, hint, failures, for_ms, "redis refuses for now"),
            Class::Reconnect | Class::Missing => {
                warn!(%error, hint, failures, for_ms, "redis is away");
            }
        }
        self.logged = Some(error.code().to_owned());
        self.logged_at = Some(now);
    }

    /// A request has succeeded.
    pub(super) fn succeeded(&mut self, now: Time, kind: Kind, reporter: &Reporter) {
        if self.pending_recovery.remove(&kind) {
            self.mark_ready(now, reporter);
        }
    }

    /// Whether the queue must be repaired before anything is settled.
    pub(super) fn must_repair(&self) -> bool {
        self.must_repair
    }

    /// The queue is repaired.
    pub(super) fn repaired(&mut self) {
        self.must_repair = false;
    }

    /// Redis is back. Returns whether the host was offline.
    pub(super) fn restored(&mut self, now: Time, reporter: &Reporter) -> bool {
        if self.is_online() {
            return false;
        }
        self.online.send_replace(true);
        self.back = now;
        self.mark_ready(now, reporter);
        true
    }

    /// The host is ready, unless a request must still succeed.
    fn mark_ready(&mut self, now: Time, reporter: &Reporter) {
        if !self.is_online() || !self.pending_recovery.is_empty() {
            return;
        }
        reporter.health.clear(Cause::RedisAway);
        reporter.health.clear(Cause::RedisConfiguration);
        let since = self.since.take();
        if self.logged.take().is_some() {
            let after_ms = since.map_or(0, |since| now.saturating_sub(since).as_millis());
            info!(after_ms, "redis is back");
        }
    }
}

/// The pause after this number of failures in a row.
pub(super) fn pause(failures: u32, random: f64) -> Duration {
    let longest = PAUSES.delay(failures, 0.0);
    longest.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_are_jittered() {
        for failures in 0..=12 {
            let (least, most) = (pause(failures, 0.0), pause(failures, 1.0));
            assert_eq!(most, least * 2, "{failures}");
            assert!(most <= PAUSES.max);
        }
        assert_eq!(pause(1, 1.0), PAUSES.first);
        assert_eq!(pause(2, 1.0), PAUSES.first * 2);
        assert_eq!(pause(u32::MAX, 1.0), PAUSES.max);
    }
}
