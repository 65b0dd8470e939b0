//! From a file's bytes to a version that may replace another: every check comes before the switch.
//!
//! | step | what is found there |
//! |---|---|
//! | source | it could not be read, or not fetched whole |
//! | size | the file is too large |
//! | digest | `handler_digest` accepts another version only |
//! | format | no component, truncated, invalid |
//! | compile | its compiler took too long or too much, or did not survive it |
//! | world | no handler, or one of another version or type |
//! | imports | it imports what it is not granted |
//! | limits | an instance needs more than the pool has |
//! | instance | no instance could be made of it |
//! | selftest | a message of the configuration had another outcome than expected |

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::delivery::message::{Headers, Message};
use crate::delivery::outcome::Outcome;
use crate::sandbox::error::LoadError;
use crate::sandbox::fault::host_panic;
use crate::sandbox::{Call, LogSink, Sandbox, Settings, load};

/// What else a version must stand.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Terms {
    /// The only digest that is accepted.
    pub pin: Option<Arc<str>>,
    /// Messages that it must handle as expected.
    pub selftests: Vec<SelfTest>,
}

/// A message that every version must handle as expected before it gets a real one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelfTest {
    /// The body.
    pub body: Bytes,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// What must come of it.
    pub expect: Expect,
}

/// The outcome that a self-test expects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expect {
    /// `ack`.
    Ack,
    /// `nack-requeue`, with whatever delay.
    NackRequeue,
    /// `drop`, with whatever reason.
    Drop,
    /// Any answer: no fault.
    Answer,
}

impl Expect {
    /// The word in the configuration.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::NackRequeue => "nack-requeue",
            Self::Drop => "drop",
            Self::Answer => "answer",
        }
    }

    fn is_met(self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Ack, Outcome::Ack)
            | (Self::NackRequeue, Outcome::NackRequeue(_))
            | (Self::Drop, Outcome::Drop(_)) => true,
            (Self::Answer, outcome) => !matches!(outcome, Outcome::Fault(_)),
            _ => false,
        }
    }
}

/// The step at which a version was refused: a bounded set, it is a label.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// It could not be read, or not fetched whole.
    Source,
    /// The file is too large.
    Size,
    /// Another version is pinned.
    Digest,
    /// It is no valid component.
    Format,
    /// It could not be compiled within its limits.
    Compile,
    /// It is no handler.
    World,
    /// It imports what it is not granted.
    Imports,
    /// It needs more than its limits from the start.
    Limits,
    /// No instance could be made of it.
    Instance,
    /// A self-test failed.
    SelfTest,
}

impl Step {
    /// Every step, for tables.
    pub const ALL: [Self; 10] = [
        Self::Source,
        Self::Size,
        Self::Digest,
        Self::Format,
        Self::Compile,
        Self::World,
        Self::Imports,
        Self::Limits,
        Self::Instance,
        Self::SelfTest,
    ];

    /// The word in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Size => "size",
            Self::Digest => "digest",
            Self::Format => "format",
            Self::Compile => "compile",
            Self::World => "world",
            Self::Imports => "imports",
            Self::Limits => "limits",
            Self::Instance => "instance",
            Self::SelfTest => "selftest",
        }
    }
}

/// Why a version does not run here. The version that runs is not touched.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It is no component that this host runs.
    #[error("it {0}")]
    Load(#[from] LoadError),
    /// Another version is pinned.
    #[error("it is {found}, but `handler_digest` accepts only {wanted}")]
    Pinned {
        /// Its digest.
        found: Arc<str>,
        /// The digest that is accepted.
        wanted: Arc<str>,
    },
    /// A self-test failed.
    #[error("self-test {number} expected {expected}, and ended in {found}")]
    SelfTest {
        /// Which one, 1-based.
        number: usize,
        /// What it expected.
        expected: &'static str,
        /// What came of it.
        found: String,
    },
    /// The checks could not be carried out.
    #[error("it could not be checked: {0}")]
    Unchecked(String),
}

impl Refusal {
    /// At which step.
    pub fn step(&self) -> Step {
        match self {
            Self::Load(error) => step(error),
            Self::Pinned { .. } => Step::Digest,
            Self::SelfTest { .. } => Step::SelfTest,
            Self::Unchecked(_) => Step::Instance,
        }
    }
}

fn step(error: &LoadError) -> Step {
    match error {
        LoadError::Read(_) => Step::Source,
        LoadError::FileTooLarge { .. } => Step::Size,
        LoadError::NotWasm { .. }
        | LoadError::CoreModule
        | LoadError::Precompiled
        | LoadError::Truncated { .. }
        | LoadError::Invalid { .. } => Step::Format,
        LoadError::CompileTime { .. }
        | LoadError::CompileMemory { .. }
        | LoadError::CodeTooLarge { .. }
        | LoadError::CompilerCrashed { .. } => Step::Compile,
        LoadError::NoHandler { .. }
        | LoadError::OtherVersion { .. }
        | LoadError::Ambiguous { .. }
        | LoadError::WrongType { .. } => Step::World,
        LoadError::NotGranted { .. } | LoadError::WrongImport { .. } => Step::Imports,
        LoadError::NeedsMore { .. } | LoadError::TooMuch { .. } => Step::Limits,
        LoadError::Start(_) | LoadError::Engine { .. } => Step::Instance,
    }
}

/// The digest of a component: `sha256:` and 64 hexadecimal digits.
pub fn digest(bytes: &[u8]) -> Arc<str> {
    load::name(&Sha256::digest(bytes).into())
}

/// Whether the code of this component is kept, so that verifying it takes no compiler: a look at
/// what is there, not into it.
pub fn is_kept(bytes: &[u8], settings: &Settings) -> bool {
    load::is_kept(bytes, settings)
}

/// Every check, one after the other, up to the self-tests. Takes as long as compiling takes: call
/// it on a thread that may block.
///
/// # Errors
/// The first check that failed.
pub fn verify(bytes: &[u8], settings: &Settings, terms: &Terms) -> Result<Sandbox, Refusal> {
    accept(&digest(bytes), terms)?;
    let sandbox = Sandbox::load_bytes(bytes, settings)?;
    selftest(&sandbox, &terms.selftests)?;
    Ok(sandbox)
}

/// Whether a version with this digest may run at all.
///
/// # Errors
/// [`Refusal::Pinned`].
pub fn accept(digest: &Arc<str>, terms: &Terms) -> Result<(), Refusal> {
    match &terms.pin {
        Some(wanted) if wanted != digest => Err(Refusal::Pinned {
            found: Arc::clone(digest),
            wanted: Arc::clone(wanted),
        }),
        _ => Ok(()),
    }
}

/// Let a version handle the messages of the configuration, each in a fresh instance, on a thread
/// of their own: the caller's may belong to an async runtime.
///
/// # Errors
/// The first one that had another outcome than expected.
pub fn selftest(sandbox: &Sandbox, tests: &[SelfTest]) -> Result<(), Refusal> {
    if tests.is_empty() {
        return Ok(());
    }
    let unchecked = |error: std::io::Error| Refusal::Unchecked(error.to_string());
    let run = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(unchecked)?
            .block_on(async {
                for (place, test) in tests.iter().enumerate() {
                    one(sandbox, place + 1, test).await?;
                }
                Ok(())
            })
    };
    thread::scope(|scope| {
        thread::Builder::new()
            .name("selftest".to_owned())
            .spawn_scoped(scope, run)
            .map_err(unchecked)?
            .join()
            .unwrap_or_else(|payload| Err(LoadError::Start(host_panic(&*payload)).into()))
    })
}

async fn one(sandbox: &Sandbox, number: usize, test: &SelfTest) -> Result<(), Refusal> {
    let headers = test.headers.iter();
    let headers = headers.map(|(name, value)| (name.clone().into(), value.clone().into()));
    let message = Message {
        id: format!("selftest-{number}").into(),
        queue: "selftest".into(),
        body: test.body.clone(),
        headers: Headers::new(headers.collect()),
        enqueued_ms: 0,
    };
    let call = Call {
        message: &message,
        attempt: 1,
        max_attempts: 1,
        cancelled: &Arc::new(AtomicBool::new(false)),
        logs: &LogSink::Tracing,
    };
    let outcome = sandbox.call(&mut sandbox.slot(), call).await.outcome;
    if test.expect.is_met(&outcome) {
        return Ok(());
    }
    let found = match outcome {
        Outcome::Ack => "ack".to_owned(),
        Outcome::NackRequeue(_) => "nack-requeue".to_owned(),
        Outcome::Drop(reason) => format!("drop ({})", reason.unwrap_or_default()),
        Outcome::Fault(fault) => format!("a fault: {fault}"),
    };
    Err(Refusal::SelfTest {
        number,
        expected: test.expect.label(),
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_place_and_a_word_of_its_own() {
        for (place, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, place);
            assert!(Step::ALL[..place].iter().all(|s| s.label() != step.label()));
        }
    }

    #[test]
    fn a_pin_is_asked_before_anything_is_compiled() {
        let terms = Terms {
            pin: Some("sha256:00".into()),
            ..Terms::default()
        };
        let refusal = verify(b"no component at all", &Settings::default(), &terms).unwrap_err();
        assert_eq!(refusal.step(), Step::Digest);
        assert!(refusal.to_string().contains("sha256:00"), "{refusal}");
    }
}
