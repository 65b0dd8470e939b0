//! What guests say of themselves: each start writes `start <id> <attempt>` to the log of its host.

use std::collections::BTreeMap;

use crate::host::{Ended, Host, Line};

/// The starts of some hosts, by message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Witness {
    starts: BTreeMap<String, Vec<u32>>,
}

impl Witness {
    /// The starts in these logs.
    pub fn of<'a>(logs: impl IntoIterator<Item = &'a [Line]>) -> Self {
        let mut starts = BTreeMap::<String, Vec<u32>>::new();
        for (id, attempt) in logs.into_iter().flatten().filter_map(Line::start) {
            starts.entry(id.to_owned()).or_default().push(attempt);
        }
        for attempts in starts.values_mut() {
            attempts.sort_unstable();
        }
        Self { starts }
    }

    /// The starts of these hosts, together.
    pub fn of_all<'a>(ended: impl IntoIterator<Item = &'a Ended>) -> Self {
        Self::of(ended.into_iter().map(|ended| &ended.log[..]))
    }

    /// The starts so far of these hosts, together.
    pub fn so_far<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> Self {
        let logs: Vec<Vec<Line>> = hosts.into_iter().map(Host::log).collect();
        Self::of(logs.iter().map(|log| &log[..]))
    }

    /// The attempts of a message, in order of their numbers.
    pub fn attempts(&self, id: &str) -> &[u32] {
        self.starts.get(id).map_or(&[], |attempts| attempts)
    }

    /// How often a message was started.
    pub fn starts(&self, id: &str) -> usize {
        self.attempts(id).len()
    }

    /// How many starts there were of all messages.
    pub fn total(&self) -> usize {
        self.starts.values().map(Vec::len).sum()
    }

    /// The messages that were started more than once under the same number.
    pub fn repeated(&self) -> Vec<&str> {
        let repeats = |attempts: &[u32]| attempts.windows(2).any(|pair| pair[0] == pair[1]);
        self.starts
            .iter()
            .filter(|(_, attempts)| repeats(attempts))
            .map(|(id, _)| &**id)
            .collect()
    }
}
