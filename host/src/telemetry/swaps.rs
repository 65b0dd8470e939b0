//! The counters for the versions of the handler.

use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::delivery::outcome::Outcome;
use crate::telemetry::metrics::{Counter, Handler, Labels, Shared, counter};

/// The steps at which a new version can be refused.
pub const STEPS: [&str; 10] = [
    "source", "size", "digest", "format", "compile", "world", "imports", "limits", "instance",
    "selftest",
];

/// The outcomes of an attempt.
const OUTCOMES: [&str; 4] = ["ack", "nack-requeue", "drop", "fault"];
const ROLES: [&str; 2] = ["current", "canary"];

/// See the module.
#[derive(Debug)]
pub struct Swaps {
    /// New versions of the handler that took over.
    pub taken: Counter,
    /// Canaries that were kept.
    pub promoted: Counter,
    /// Canaries that were given up.
    pub rolled_back: Counter,
    /// Versions that faulted on every message and were stopped or rolled back.
    pub broken: Counter,
    canary: Arc<Handler>,
    refused: [Counter; STEPS.len()],
    attempts: [[Counter; OUTCOMES.len()]; ROLES.len()],
}

impl Swaps {
    /// All series, at zero.
    pub(super) fn new(r: &mut Registry) -> Self {
        let canary = Arc::new(Handler::default());
        r.register(
            "canary",
            "The version on trial; empty = none",
            Shared(canary.clone()),
        );
        let refused = Family::<Labels<1>, Counter>::default();
        r.register(
            "swaps_refused",
            "New versions refused, by the step of their verification",
            refused.clone(),
        );
        let attempts = Family::<Labels<2>, Counter>::default();
        r.register(
            "version_attempts",
            "Attempts by version and outcome",
            attempts.clone(),
        );
        let decisions = Family::<Labels<1>, Counter>::default();
        r.register(
            "canary_decisions",
            "How the trials of canaries ended by themselves",
            decisions.clone(),
        );
        let decision = |word: &'static str| decisions.get_or_create_owned(&[("decision", word)]);
        Self {
            taken: counter(r, "swaps", "Handlers swapped in"),
            promoted: decision("promote"),
            rolled_back: decision("rollback"),
            broken: counter(
                r,
                "breaker_opened",
                "Times that a version which faulted on everything was stopped",
            ),
            canary,
            refused: STEPS.map(|step| refused.get_or_create_owned(&[("step", step)])),
            attempts: ROLES.map(|role| {
                OUTCOMES.map(|outcome| {
                    attempts.get_or_create_owned(&[("version", role), ("outcome", outcome)])
                })
            }),
        }
    }

    /// Set the version on trial.
    pub fn canary(&self, digest: Option<Arc<str>>) {
        self.canary.set(digest.unwrap_or_default());
    }

    /// Count an attempt for its version: the running one, or the one on trial.
    pub fn attempt(&self, is_canary: bool, outcome: &Outcome) {
        let place = match outcome {
            Outcome::Ack => 0,
            Outcome::NackRequeue(_) => 1,
            Outcome::Drop(_) => 2,
            Outcome::Fault(_) => 3,
        };
        self.attempts[usize::from(is_canary)][place].inc();
    }

    /// Count a version that was refused at this step, one of [`STEPS`].
    pub fn refused(&self, step: &str) {
        if let Some(place) = STEPS.iter().position(|known| *known == step) {
            self.refused[place].inc();
        }
    }
}
