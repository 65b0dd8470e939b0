//! What one attempt remembers and recalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use super::session::Session;
use crate::delivery::quoted::Text;
use crate::delivery::text::hex;
use crate::grants::context::{Context, NO_MESSAGE};
use crate::grants::recorded;

/// The longest name of a value.
const NAME_MAX: usize = 200;

/// The calls of one attempt.
pub(crate) struct Remembered {
    context: Arc<Context>,
    calls: AtomicU32,
}

impl Remembered {
    pub(in crate::grants) fn new(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            calls: AtomicU32::new(0),
        })
    }

    /// The value that was remembered last under this name, by this attempt or an earlier one.
    pub(crate) async fn recall(&self, name: &str) -> Result<Option<Bytes>, String> {
        let journal = self.ask(name)?;
        let recalled = async {
            let value = self.in_time(journal.recall(&value_of(name))).await?;
            Ok::<_, String>(value.map(Text))
        };
        let asked = || recorded::ask("recall", name);
        let recalled = self.context.answer(asked, recalled).await?;
        Ok(recalled.map(|Text(value)| value))
    }

    /// Remember a value. It is there for later attempts when this returns, also if this one fails.
    pub(crate) async fn remember(&self, name: &str, value: Bytes) -> Result<(), String> {
        let journal = self.ask(name)?;
        let asked = self
            .context
            .track
            .as_ref()
            .map(|_| hex(&Sha256::digest(&value)));
        let asked = || recorded::ask("remember", &format!("{name} {}", asked.unwrap_or_default()));
        let remembered = self.in_time(journal.remember(value_of(name), value));
        self.context.answer(asked, remembered).await
    }

    fn ask(&self, name: &str) -> Result<&Arc<Session>, String> {
        let context = &self.context;
        let journal = context.origin.journal.as_ref();
        let journal = journal.filter(|_| !context.is_trial()).ok_or(NO_MESSAGE)?;
        if !(1..=NAME_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(format!("a name has 1 to {NAME_MAX} printable bytes"));
        }
        let max = context.requests_max;
        if self.calls.fetch_add(1, Ordering::Relaxed) >= max {
            return Err(format!(
                "the attempt has asked its journal {max} times (limit `requests`)"
            ));
        }
        Ok(journal)
    }

    async fn in_time<T>(
        &self,
        asking: impl Future<Output = Result<T, super::provider::Refused>>,
    ) -> Result<T, String> {
        let deadline = Instant::from(self.context.origin.deadline);
        match timeout_at(deadline, asking).await {
            Ok(answer) => answer.map_err(|refused| refused.to_string()),
            Err(_) => Err("the time of the attempt is over".to_owned()),
        }
    }
}

/// Before the name of a value, in the name of its record.
pub(super) const VALUE: &str = "value:";

/// The name of the record of a value.
pub(super) fn value_of(name: &str) -> String {
    format!("{VALUE}{name}")
}
