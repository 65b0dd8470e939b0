//! Handlers that were not written for hostler: one file for each of their worlds, with the signature of the
//! function and how it is called. `world` finds and chooses them; `docs/worlds.md` and `docs/programs.md` say what
//! maps to what.
//!
//! All of them take one message. Those of other hosts can say two things: done, or again, perhaps with a text
//! about it.

pub(super) mod run;
pub(super) mod spin;
pub(super) mod sqs;
pub(crate) mod wasmcloud;

use std::time::Duration;

use wasmtime::component::{ComponentType, Lift};

use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::policy::DELAY_MAX;
use crate::delivery::text::{printable, truncate_utf8};

/// What a handler has answered: `types.outcome` of hostler.
#[derive(Clone, ComponentType, Debug, Eq, Lift, PartialEq)]
#[component(variant)]
pub(super) enum Answer {
    #[component(name = "ack")]
    Ack,
    #[component(name = "nack-requeue")]
    NackRequeue(Option<u64>),
    #[component(name = "drop")]
    Drop(Option<String>),
}

impl Answer {
    /// The outcome. Its text is cut to `text_max` bytes and escaped, because logs and terminals show
    /// it. A delay that no host keeps is a fault: a shorter one is not what the handler means.
    pub(super) fn into_outcome(self, text_max: usize) -> Outcome {
        match self {
            Self::Ack => Outcome::Ack,
            Self::NackRequeue(delay) => {
                let delay = delay.map(Duration::from_millis);
                match delay.filter(|delay| *delay > DELAY_MAX) {
                    None => Outcome::NackRequeue(delay),
                    Some(long) => {
                        let [long, most] = [long, DELAY_MAX].map(humantime::format_duration);
                        let detail =
                            format!("nack-requeue after {long}: the longest delay is {most}");
                        Outcome::Fault(Fault::new(FaultKind::BadOutcome, detail))
                    }
                }
            }
            Self::Drop(reason) => Outcome::Drop(reason.map(|mut reason| {
                truncate_utf8(&mut reason, text_max);
                let mut reason = printable(&reason);
                truncate_utf8(&mut reason, text_max);
                reason.shrink_to_fit();
                reason
            })),
        }
    }
}
