//! Runs a component against a table of messages, without Redis.

mod answers;
mod cases;
mod content;
mod published;
mod remembered;
mod replied;
mod written;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::grants::Providers;
use crate::grants::journal::memory::Memory;
use crate::host::component;
use crate::sandbox::{Report, Sandbox, Settings, Slot};
use crate::workbench::attempt::{Verdict, call};
use crate::workbench::{Error, effects};

use answers::Answers;
use cases::Case;
pub use cases::table_schema;

/// Messages, and the expected outcome of each.
#[derive(Debug)]
pub struct Table(Vec<Case>);

/// A component that is tested. One slot: with `--reuse`, a case sees the state that earlier cases have left.
pub struct Running<'a> {
    cases: std::slice::Iter<'a, Case>,
    sandbox: Sandbox,
    slot: Slot,
    answers: Answers,
    providers: Option<Providers>,
    /// Every key in Redis begins with this.
    prefix: Arc<str>,
    /// What the attempts at the message of the last case have recorded.
    journal: Arc<Memory>,
    /// The number of the next attempt at that message.
    attempt: u32,
}

/// The result of a case.
#[derive(Debug)]
pub struct CaseResult<'a> {
    /// Its name.
    pub name: &'a str,
    /// The difference to the expected outcome; `None` = it passed.
    pub objection: Option<String>,
    /// The outcome of the handler.
    pub outcome: String,
    /// The lines that it wrote.
    pub logs: Vec<String>,
    report: Report,
    prefix: Arc<str>,
}

/// The same in `--json`.
#[derive(Debug, Serialize)]
pub struct CaseJson<'a> {
    name: &'a str,
    passed: bool,
    objection: Option<&'a str>,
    outcome: &'a str,
    #[serde(flatten)]
    effects: effects::Effects<'a>,
    logs: &'a [String],
}

impl Table {
    /// Read a table. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// It cannot be read, or a case is wrong.
    pub fn read(path: &Path) -> Result<Self, Error> {
        cases::read(path).map(Self)
    }

    /// Load a component to run the table. If a case has answers, no request leaves this process.
    ///
    /// # Errors
    /// The component cannot be loaded, or a case needs a grant that it does not have.
    pub fn load(
        &self,
        file: &Path,
        mut settings: Settings,
        mut providers: Option<Providers>,
    ) -> Result<Running<'_>, Error> {
        settings.concurrency = 1;
        let answers = Answers::default();
        if let Some(providers) = &mut providers
            && self.0.iter().any(|case| !case.http.is_empty())
        {
            *providers = providers.answered_by(answers.answering());
            settings.grants.provided = providers.provided();
        }
        let keys = settings.grants.key_value.as_ref();
        let prefix = keys.map(|keys| Arc::clone(&keys.prefix));
        if let Some(case) = self.0.iter().find(|case| !case.key_value.is_empty())
            && prefix.is_none()
        {
            let name = &case.name;
            return Err(Error::usage_with(
                format_args!("the case `{name}` has `key-value`, which is not granted"),
                "write `[grant.key-value]` in a file, and name it with `--config`",
            ));
        }
        let sandbox = component::load(file, &settings)?;
        Ok(Running {
            cases: self.0.iter(),
            slot: sandbox.slot(),
            sandbox,
            answers,
            providers,
            prefix: prefix.unwrap_or_default(),
            journal: Arc::default(),
            attempt: 1,
        })
    }
}

impl<'a> Running<'a> {
    /// Run the next case; `None` = there is no other.
    pub async fn next(&mut self) -> Option<CaseResult<'a>> {
        let case = self.cases.next()?;
        let prefix = &self.prefix;
        self.answers.begin(&case.http);
        if let Some(providers) = &self.providers {
            let values = case.key_value.iter();
            providers
                .try_with(values.map(|(key, value)| (format!("{prefix}{key}"), value.clone())));
        }
        if !case.continues {
            self.journal = Arc::default();
            self.attempt = 1;
        }
        let attempt = case.attempt.unwrap_or(self.attempt);
        let attempts = (attempt, case.max_attempts);
        for (name, value) in &case.journal {
            self.journal.remember(name, value.clone());
        }
        let (sandbox, slot) = (&self.sandbox, &mut self.slot);
        let (report, lines) = call(sandbox, slot, &case.message, attempts, &self.journal).await;
        // A held start is another start of the same attempt.
        let is_held = matches!(report.hold, Some(Ok(_)));
        self.attempt = attempt.saturating_add(u32::from(!is_held));
        let logs: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        let objection = case.objection(&report, prefix, &logs, &self.journal.values());
        Some(CaseResult {
            name: &case.name,
            objection: objection.or_else(|| self.answers.objection()),
            outcome: Verdict::of(&report).to_string(),
            logs,
            report,
            prefix: Arc::clone(prefix),
        })
    }
}

impl CaseResult<'_> {
    /// What it would publish and set, a line for each effect.
    pub fn effects(&self) -> Vec<String> {
        effects::lines(&self.report, &self.prefix)
    }

    /// The same in `--json`.
    pub fn json(&self) -> CaseJson<'_> {
        CaseJson {
            name: self.name,
            passed: self.objection.is_none(),
            objection: self.objection.as_deref(),
            outcome: &self.outcome,
            effects: effects::Effects::of(&self.report, &self.prefix),
            logs: &self.logs,
        }
    }
}
