//! The answer for a published message.

use std::fmt;

/// The answer of Redis for a published message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Receipt {
    /// The id of its stream entry.
    Entry(String),
    /// The length of the list with it.
    Length(u64),
    /// How many subscribers got it.
    Receivers(u64),
    /// It waits until it is due.
    Scheduled {
        /// Its id, as its handler will see it.
        id: String,
        /// When it is due, in epoch milliseconds by the server's clock.
        due_ms: u64,
    },
}

/// The id, or the number.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(id) | Self::Scheduled { id, .. } => f.write_str(id),
            Self::Length(number) | Self::Receivers(number) => number.fmt(f),
        }
    }
}
