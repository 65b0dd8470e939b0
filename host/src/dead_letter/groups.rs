//! Dead letters counted by their causes. Changes nothing.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{DeadLetters, Entry, Error, Filter, Scan};
use crate::delivery::text::hex;

/// The most causes that are counted one by one.
pub const GROUPS_MAX: usize = 1000;
/// The most reasons of one cause. A fault has few of them.
const REASONS_MAX: usize = 10;
/// How many bytes of a digest name a cause: enough that no text with the id of another cause can be found.
const ID_BYTES: usize = 8;

/// The id of a signature: short enough to be copied.
pub fn id_of(signature: &str) -> String {
    hex(&Sha256::digest(signature)[..ID_BYTES])
}

/// Whether a text is the id of a cause, not a signature.
pub(super) fn is_id(text: &str) -> bool {
    is_hex(text, ID_BYTES)
}

/// Whether a text is the id of a cause as earlier versions wrote it: several causes could have it.
pub fn is_short_id(text: &str) -> bool {
    is_hex(text, 4)
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The dead letters of one cause.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Group {
    /// The id of the signature: filters take it.
    pub id: String,
    /// What the dead letters have in common ([`Entry::signature_in`]).
    pub signature: String,
    /// How many there are.
    pub count: u64,
    /// Their reasons.
    pub reasons: BTreeMap<String, u64>,
    /// When the first one died, in epoch milliseconds; 0 = unknown.
    pub first_ms: u64,
    /// When the last one died, in epoch milliseconds; 0 = unknown.
    pub last_ms: u64,
    /// The id of the one that died last, in the dead-letter queue.
    pub newest: String,
    /// The handler of that one.
    pub handler: Option<String>,
}

/// The causes of dead letters, the most frequent first.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Groups {
    /// How many entries were counted.
    pub total: u64,
    /// The causes.
    pub groups: Vec<Group>,
    /// Entries of further causes: more than [`GROUPS_MAX`] are not distinguished.
    pub others: u64,
}

impl Groups {
    pub(super) async fn read(letters: &DeadLetters, filter: Filter) -> Result<Self, Error> {
        let mut counted = Counted::default();
        let mut scan = Scan::begin(letters, filter).await?;
        while let Some(entries) = scan.next().await? {
            for entry in &entries {
                counted.add(entry, letters.key());
            }
        }
        Ok(counted.groups())
    }

    /// The causes of these entries of the queue with this key, in any order.
    pub fn of<'e>(entries: impl IntoIterator<Item = &'e Entry>, key: &str) -> Self {
        let mut counted = Counted::default();
        entries
            .into_iter()
            .for_each(|entry| counted.add(entry, key));
        counted.groups()
    }
}

#[derive(Default)]
struct Counted {
    /// Without the causes.
    found: Groups,
    causes: BTreeMap<String, Group>,
}

impl Counted {
    fn add(&mut self, entry: &Entry, key: &str) {
        self.found.total += 1;
        let signature = entry.signature_in(key);
        let is_room = self.causes.len() < GROUPS_MAX;
        if !is_room && !self.causes.contains_key(&signature) {
            self.found.others += 1;
            return;
        }
        let died_ms = entry.died_ms();
        let new = || Group {
            id: id_of(&signature),
            signature: signature.clone(),
            first_ms: died_ms,
            ..Group::default()
        };
        let group = self.causes.entry(signature.clone()).or_insert_with(new);
        group.count += 1;
        let reason = entry.reason_in(key);
        if group.reasons.len() < REASONS_MAX || group.reasons.contains_key(reason) {
            *group.reasons.entry(reason.to_owned()).or_default() += 1;
        }
        group.first_ms = group.first_ms.min(died_ms);
        if died_ms >= group.last_ms {
            group.last_ms = died_ms;
            group.newest.clone_from(&entry.id);
            group.handler.clone_from(&entry.handler);
        }
    }

    fn groups(self) -> Groups {
        let mut groups: Vec<Group> = self.causes.into_values().collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then(b.last_ms.cmp(&a.last_ms)));
        Groups {
            groups,
            ..self.found
        }
    }
}
