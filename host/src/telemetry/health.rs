//! Whether a host is ready, and why not. The loop writes it; the admin server and `/metrics` read it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use crate::delivery::declared::declared;
use crate::delivery::text::truncate_utf8;
use crate::telemetry::versions::VersionsSeen;

/// The longest detail of a reason, in bytes.
const DETAIL_MAX: usize = 512;

/// A loop that has not turned for this long counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

declared! {
    /// Why a host is not ready. A bounded set: it is a label.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Cause (/// The label in logs and in `/ready`.
                    label -> &'static str) {
        /// The host has not read from the queue yet.
        Starting = "starting",
        /// Redis does not answer, or refuses for now (`LOADING`, `READONLY`, ...).
        RedisAway = "redis-away",
        /// Redis refuses until an operator changes a right, a type or an option.
        RedisConfiguration = "redis-configuration",
        /// The configuration file or policies cannot be read: those that were read last hold. A host that
        /// starts reads no message before it knows its policies.
        RulesUnreadable = "rules-unreadable",
        /// The deployed version cannot be read: the host goes on with its version. A host that starts reads no
        /// message before it knows which version is deployed.
        VersionUnreadable = "version-unreadable",
        /// Dead letters cannot be written, or their queue is full and must not drop any.
        DeadLettersRefused = "dead-letters-refused",
        /// Settlements cannot be written: acknowledgements with effects, requeues, delays. Their messages stay
        /// pending, and no handler runs for them again meanwhile.
        SettlementsRefused = "settlements-refused",
        /// The handler cannot run: it has no instance, or it faults on everything.
        Handler = "handler",
        /// The host is stopping.
        Draining = "draining",
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// One reason for not being ready.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Impediment {
    /// The cause.
    pub cause: Cause,
    /// Text for people: bounded, no payloads, no credentials.
    pub detail: String,
}

/// The health of one host. Cheap to clone; all clones are one.
///
/// A new one is not ready: [`Cause::Starting`] is cleared by the loop.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    impediments: Mutex<Vec<Impediment>>,
    versions: Mutex<Option<VersionsSeen>>,
    born: Instant,
    /// Milliseconds from `born` to the last turn of the loop, plus one; 0 = it has not turned yet.
    beat_ms: AtomicU64,
}

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(Inner {
            impediments: Mutex::new(vec![Impediment {
                cause: Cause::Starting,
                detail: "not reading yet".to_owned(),
            }]),
            versions: Mutex::new(None),
            born: Instant::now(),
            beat_ms: AtomicU64::new(0),
        }))
    }
}

impl Health {
    /// Not ready for this cause. Returns whether the cause is new, which is worth a log line. A cause
    /// that is known only gets the new detail.
    pub fn impede(&self, cause: Cause, detail: impl Into<String>) -> bool {
        let mut detail = detail.into();
        truncate_utf8(&mut detail, DETAIL_MAX);
        let mut impediments = self.0.impediments.lock();
        match impediments.iter_mut().find(|i| i.cause == cause) {
            Some(known) => {
                known.detail = detail;
                false
            }
            None => {
                impediments.push(Impediment { cause, detail });
                impediments.sort_by_key(|i| i.cause);
                true
            }
        }
    }

    /// This cause is over. Returns whether it was there.
    pub fn clear(&self, cause: Cause) -> bool {
        let mut impediments = self.0.impediments.lock();
        let before = impediments.len();
        impediments.retain(|i| i.cause != cause);
        impediments.len() < before
    }

    /// Whether there is no impediment.
    pub fn is_ready(&self) -> bool {
        self.0.impediments.lock().is_empty()
    }

    /// The impediments; empty = ready.
    pub fn impediments(&self) -> Vec<Impediment> {
        self.0.impediments.lock().clone()
    }

    /// The host runs these versions of the handler.
    pub fn runs(&self, versions: VersionsSeen) {
        *self.0.versions.lock() = Some(versions);
    }

    /// The versions of the handler that the host runs, once they are known.
    pub fn versions(&self) -> Option<VersionsSeen> {
        self.0.versions.lock().clone()
    }

    /// The loop has turned. This costs one atomic store.
    pub fn beat(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.0.born).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX - 1);
        self.0.beat_ms.store(ms + 1, Ordering::Relaxed);
    }

    /// How long ago the loop turned, if that is too long. A loop that has never turned is starting, not
    /// stuck.
    pub fn stuck(&self, now: Instant) -> Option<Duration> {
        let beat = self.0.beat_ms.load(Ordering::Relaxed).checked_sub(1)?;
        let silent = now
            .saturating_duration_since(self.0.born)
            .saturating_sub(Duration::from_millis(beat));
        (silent > STUCK_AFTER).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_cause_is_reported_as_new() {
        let health = Health::default();
        assert!(!health.is_ready());
        assert!(health.clear(Cause::Starting));
        assert!(!health.clear(Cause::Starting));
        assert!(health.is_ready());
        assert!(health.impede(Cause::RedisAway, "connection refused"));
        assert!(!health.impede(Cause::RedisAway, "LOADING"));
        assert!(health.impede(Cause::Handler, "no instance"));
        let known = health.impediments();
        assert_eq!(known.len(), 2);
        assert_eq!(known[0].detail, "LOADING");
        assert_eq!(known[1].cause, Cause::Handler);
    }

    #[test]
    fn details_have_a_length_limit() {
        let health = Health::default();
        health.impede(Cause::Handler, "é".repeat(DETAIL_MAX));
        let detail = health.impediments().pop().unwrap().detail;
        assert!(detail.len() <= DETAIL_MAX);
    }

    #[test]
    fn a_silent_loop_is_stuck_but_one_that_never_turned_is_starting() {
        let health = Health::default();
        let now = Instant::now();
        let late = now + STUCK_AFTER * 2;
        assert_eq!(health.stuck(late), None);
        health.beat(now);
        assert_eq!(health.stuck(now), None);
        assert!(health.stuck(late).is_some());
        health.beat(late);
        assert_eq!(health.stuck(late), None);
    }

    #[test]
    fn labels_are_the_serialized_words() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.label());
        }
    }
}
