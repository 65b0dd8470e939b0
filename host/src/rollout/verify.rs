//! Verifies a new version: all checks before the switch, in the order of [`Step`].

use std::sync::Arc;

use bytes::Bytes;
use hostler_components as components;
use sha2::{Digest, Sha256};

use crate::compiler;
use crate::delivery::declared::declared;
use crate::delivery::message::{Headers, Message};
use crate::delivery::outcome::Outcome;
use crate::delivery::trace::Traced;
use crate::sandbox::error::LoadError;
use crate::sandbox::fault::host_panic;
use crate::sandbox::{Call, LogSink, Sandbox, Settings};

/// Further checks of a version, from the configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Terms {
    /// The only digest that is accepted; `None` = any.
    pub pin: Option<Arc<str>>,
    /// The self-tests.
    pub selftests: Vec<SelfTest>,
}

/// A message that a version must handle as expected before it gets a real one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelfTest {
    /// The body.
    pub body: Bytes,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The expected outcome.
    pub expect: Expect,
}

declared! {
    /// The outcome that a self-test expects.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Expect (/// The word in the configuration.
                     label -> &'static str) {
        /// `ack`.
        Ack = "ack",
        /// `nack-requeue`, with any delay.
        NackRequeue = "nack-requeue",
        /// `drop`, with any reason.
        Drop = "drop",
        /// Any outcome except a fault.
        Answer = "answer",
    }
}

impl Expect {
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

declared! {
    /// The step at which a version was refused; a label in metrics.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Step (/// The word in logs and metrics.
                   label -> &'static str) {
        /// The version could not be read or fetched.
        Source = "source",
        /// The component is too large.
        Size = "size",
        /// `handler_digest` accepts only another version.
        Digest = "digest",
        /// The file is not a component, or truncated, or invalid.
        Format = "format",
        /// The compiler exceeded its limits or crashed.
        Compile = "compile",
        /// The component exports no handler, or one of another version or type.
        World = "world",
        /// The component imports interfaces that it is not granted.
        Imports = "imports",
        /// An instance needs more than the limits.
        Limits = "limits",
        /// No instance could be made.
        Instance = "instance",
        /// A self-test had another outcome than expected.
        SelfTest = "selftest",
    }
}

/// The reason to refuse a version.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The component could not be loaded.
    #[error("it {0}")]
    Load(#[from] LoadError),
    /// `handler_digest` accepts only another version.
    #[error("it is {found}, but `handler_digest` accepts only {accepted}")]
    Pinned {
        /// The digest of the version.
        found: Arc<str>,
        /// The digest that is accepted.
        accepted: Arc<str>,
    },
    /// A self-test failed.
    #[error("self-test {number} expected {expected}, but the outcome was {found}")]
    SelfTest {
        /// The number of the self-test, from 1.
        number: usize,
        /// The expected outcome.
        expected: &'static str,
        /// The outcome.
        found: String,
    },
    /// The checks could not be run.
    #[error("it could not be checked: {0}")]
    Unchecked(String),
}

impl Refusal {
    /// The step that refused the version.
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
        LoadError::Refused(components::Refusal::Async { .. }) => Step::World,
        LoadError::Refused(components::Refusal::TooMany { .. }) => Step::Limits,
        LoadError::Refused(_) | LoadError::Invalid { .. } => Step::Format,
        LoadError::CompileTime { .. }
        | LoadError::CompileMemory { .. }
        | LoadError::CodeTooLarge { .. }
        | LoadError::CompilerCrashed { .. }
        | LoadError::CompilerPanicked { .. } => Step::Compile,
        LoadError::NoHandler { .. }
        | LoadError::OtherVersion { .. }
        | LoadError::Ambiguous { .. }
        | LoadError::WrongType { .. } => Step::World,
        LoadError::NotGranted { .. }
        | LoadError::Batch { .. }
        | LoadError::Holds { .. }
        | LoadError::WrongImport { .. } => Step::Imports,
        LoadError::Program { .. }
        | LoadError::NeedsMore { .. }
        | LoadError::InstanceTooLarge { .. } => Step::Limits,
        LoadError::Start(_) | LoadError::TrialCrashed { .. } | LoadError::Engine { .. } => {
            Step::Instance
        }
    }
}

/// The digest of a component: `sha256:` and 64 hexadecimal digits.
pub fn digest(bytes: &[u8]) -> Arc<str> {
    compiler::name(&Sha256::digest(bytes).into())
}

/// Run all checks. Blocks while the component is compiled.
///
/// # Errors
/// The first failed check.
pub fn verify(bytes: &[u8], settings: &Settings, terms: &Terms) -> Result<Sandbox, Refusal> {
    accept(&digest(bytes), terms)?;
    let sandbox = Sandbox::load_bytes(bytes, settings)?;
    selftest(&sandbox, &terms.selftests)?;
    Ok(sandbox)
}

/// Whether `handler_digest` accepts this version.
///
/// # Errors
/// [`Refusal::Pinned`].
pub fn accept(digest: &Arc<str>, terms: &Terms) -> Result<(), Refusal> {
    match &terms.pin {
        Some(accepted) if accepted != digest => Err(Refusal::Pinned {
            found: Arc::clone(digest),
            accepted: Arc::clone(accepted),
        }),
        _ => Ok(()),
    }
}

/// Run the self-tests, each in a fresh instance.
///
/// # Errors
/// The first failed self-test.
pub fn selftest(sandbox: &Sandbox, tests: &[SelfTest]) -> Result<(), Refusal> {
    if tests.is_empty() {
        return Ok(());
    }
    let run = async || {
        for (place, test) in tests.iter().enumerate() {
            run_selftest(sandbox, place + 1, test).await?;
        }
        Ok(())
    };
    compiler::on_own_thread("selftest", run)
        .map_err(|error| Refusal::Unchecked(error.to_string()))?
        .unwrap_or_else(|payload| Err(LoadError::Start(host_panic(&*payload)).into()))
}

async fn run_selftest(sandbox: &Sandbox, number: usize, test: &SelfTest) -> Result<(), Refusal> {
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
        cancelled: &Arc::default(),
        logs: &LogSink::Tracing,
        trace: Traced::default(),
        began: std::time::Instant::now(),
        journal: None,
        room: sandbox.room(),
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
    fn every_step_has_a_unique_label() {
        for (place, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, place);
            assert!(Step::ALL[..place].iter().all(|s| s.label() != step.label()));
        }
    }

    #[test]
    fn a_pin_is_checked_before_compilation() {
        let terms = Terms {
            pin: Some("sha256:00".into()),
            ..Terms::default()
        };
        let refusal = verify(b"no component at all", &Settings::default(), &terms).unwrap_err();
        assert_eq!(refusal.step(), Step::Digest);
        assert!(refusal.to_string().contains("sha256:00"), "{refusal}");
    }
}
