//! Ready or not, and why: written by the loop, read by the admin server and by `/metrics`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::delivery::policy::truncate_utf8;
use crate::telemetry::versions::VersionsSeen;

/// The longest detail of a reason, in bytes.
const DETAIL_MAX: usize = 512;

/// After this time without a sign of life the loop counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Why a host is not ready. The set is bounded, because it is a label.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The host has not read from the queue yet.
    Starting,
    /// Redis does not answer, or refuses for now (`LOADING`, `READONLY`, ...).
    RedisAway,
    /// Redis refuses a request until somebody changes a right, a type or an option.
    RedisConfiguration,
    /// Dead letters cannot be written, or their queue is full and must not lose messages.
    DeadLettersRefused,
    /// The handler cannot run: no instance can be made of it, or it faults on every message.
    Handler,
    /// The host is stopping.
    Draining,
}

impl Cause {
    /// Every cause, for tables.
    pub const ALL: [Self; 6] = [
        Self::Starting,
        Self::RedisAway,
        Self::RedisConfiguration,
        Self::DeadLettersRefused,
        Self::Handler,
        Self::Draining,
    ];

    /// The word in logs and in `/ready`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::RedisAway => "redis-away",
            Self::RedisConfiguration => "redis-configuration",
            Self::DeadLettersRefused => "dead-letters-refused",
            Self::Handler => "handler",
            Self::Draining => "draining",
        }
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
    /// What kind of reason.
    pub cause: Cause,
    /// Text for people: bounded, no payloads, no credentials.
    pub detail: String,
}

/// The health of one host. It is cheap to clone, and all clones share one state.
///
/// A new one is not ready: the loop clears [`Cause::Starting`].
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    impediments: Mutex<Vec<Impediment>>,
    versions: Mutex<Option<VersionsSeen>>,
    born: Instant,
    /// Milliseconds from `born` to the last sign of life, plus one; 0 = none yet.
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
    /// Report that the host is not ready for this cause. Returns whether the cause is new (a state
    /// change that deserves a log line). A cause that is already set only gets the new detail.
    pub fn impede(&self, cause: Cause, detail: impl Into<String>) -> bool {
        let mut detail = detail.into();
        truncate_utf8(&mut detail, DETAIL_MAX);
        let mut impediments = self.lock();
        match impediments.iter_mut().find(|i| i.cause == cause) {
            Some(standing) => {
                standing.detail = detail;
                false
            }
            None => {
                impediments.push(Impediment { cause, detail });
                impediments.sort_by_key(|i| i.cause);
                true
            }
        }
    }

    /// Clear this cause. Returns whether it was set.
    pub fn clear(&self, cause: Cause) -> bool {
        let mut impediments = self.lock();
        let before = impediments.len();
        impediments.retain(|i| i.cause != cause);
        impediments.len() < before
    }

    /// Whether no cause is set.
    pub fn is_ready(&self) -> bool {
        self.lock().is_empty()
    }

    /// The reasons for not being ready; empty = ready.
    pub fn impediments(&self) -> Vec<Impediment> {
        self.lock().clone()
    }

    /// Set the versions of the handler that run.
    pub fn runs(&self, versions: VersionsSeen) {
        let mut seen = self
            .0
            .versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *seen = Some(versions);
    }

    /// The versions of the handler that run, if they are known already.
    pub fn versions(&self) -> Option<VersionsSeen> {
        let seen = self
            .0
            .versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// Note that the loop has turned. This costs one atomic store.
    pub fn beat(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.0.born).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX - 1);
        self.0.beat_ms.store(ms + 1, Ordering::Relaxed);
    }

    /// The time since the last sign of life of the loop, if it is too long. A loop that has never
    /// turned is not stuck: it is starting.
    pub fn stuck(&self, now: Instant) -> Option<Duration> {
        let beat = self.0.beat_ms.load(Ordering::Relaxed).checked_sub(1)?;
        let silent = now
            .saturating_duration_since(self.0.born)
            .saturating_sub(Duration::from_millis(beat));
        (silent > STUCK_AFTER).then_some(silent)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Impediment>> {
        // No code panics while it holds the lock, and the list is always valid.
        self.0
            .impediments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_news() {
        let health = Health::default();
        assert!(!health.is_ready());
        assert!(health.clear(Cause::Starting));
        assert!(!health.clear(Cause::Starting));
        assert!(health.is_ready());
        assert!(health.impede(Cause::RedisAway, "connection refused"));
        assert!(!health.impede(Cause::RedisAway, "LOADING"));
        assert!(health.impede(Cause::Handler, "no instance"));
        let standing = health.impediments();
        assert_eq!(standing.len(), 2);
        assert_eq!(standing[0].detail, "LOADING");
        assert_eq!(standing[1].cause, Cause::Handler);
    }

    #[test]
    fn details_are_bounded() {
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
