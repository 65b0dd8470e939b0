//! One dead letter, as the commands that look at one name it.

use crate::cli::flags::{Flags, Scope};
use crate::cli::{Exit, Failure, Variables, named};

/// One dead letter: a key and an id, or a queue and an id.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Letter {
    /// The dead-letter key; with --queue, the entry's id
    #[arg(value_name = "KEY")]
    key: String,

    /// The entry's id, as `hostler dlq peek` shows it
    #[arg(required_unless_present = "queue")]
    id: Option<String>,

    /// The dead letters of this queue, instead of KEY: its hosts say where they go
    #[arg(long, value_name = "QUEUE", conflicts_with = "id")]
    queue: Option<String>,
}

impl Letter {
    /// The id, whatever the key is.
    pub(super) fn id(&self) -> &str {
        self.id.as_ref().unwrap_or(&self.key)
    }

    /// The dead-letter key, and the id.
    pub(super) fn named<S: Scope>(
        &self,
        flags: &Flags<S>,
        variables: &Variables,
    ) -> Result<(String, String), Failure> {
        let key = match (&self.id, &self.queue) {
            (Some(_), _) => self.key.clone(),
            (None, queue) => {
                let queue = queue.as_deref().unwrap_or_default();
                named::dead_letters(flags, variables, queue)?
            }
        };
        Ok((key, self.id().to_owned()))
    }
}

/// There is no entry with this id.
pub(super) fn missing(key: &str, id: &str) -> Failure {
    let what = format!("`{key}` has no entry {id}");
    let hint = "it may have been replayed or purged; `hostler dlq peek` shows what is there";
    Failure::new(Exit::Usage, what).hint(hint)
}
