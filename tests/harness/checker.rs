//! Where every published message is: nothing lost, nothing twice, nothing acknowledged that no
//! handler has acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use crate::redis::{Entry, Pending, RawRedis};
use crate::witness::Witness;

/// What a group, its stream and its dead-letter queue hold at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// What the group holds, parked ones included.
    pub pending: Vec<Pending>,
    /// The dead letters, in order.
    pub dead: Vec<DeadLetter>,
    /// The ids that no consumer has read yet.
    pub unread: Vec<String>,
    /// The ids that wait for their time.
    pub parked: Vec<String>,
}

impl Look {
    /// At the group `workers` of `orders`, and at `orders:dead`.
    pub async fn at(raw: &RawRedis) -> Self {
        Self::at_group(raw, "orders", "workers", "orders:dead").await
    }

    /// At any.
    pub async fn at_group(raw: &RawRedis, stream: &str, group: &str, dead: &str) -> Self {
        let last = last_delivered(raw, stream, group).await;
        let unread = raw.ask(&format!("XRANGE {stream} ({last} +")).await;
        let unread: Vec<Entry> = redis::from_redis_value(unread).expect("ids and fields");
        let parked = raw
            .ask(&format!("ZRANGE {{{stream}}}:parked:{group} 0 -1"))
            .await;
        Self {
            pending: raw.pending(stream, group).await,
            dead: DeadLetter::all(raw, dead).await,
            unread: unread.into_iter().map(|(id, _)| id).collect(),
            parked: redis::from_redis_value(parked).expect("ids"),
        }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.unread.is_empty()
    }

    /// The dead letters of a message.
    pub fn dead_letters_of(&self, id: &str) -> Vec<&DeadLetter> {
        let of = |dead: &&DeadLetter| dead.header("x-dead-letter-source-id") == Some(id);
        self.dead.iter().filter(of).collect()
    }

    /// Every message is where it should be. `published` says what its handler does, in the
    /// language of the scripted guests, by id.
    ///
    /// # Panics
    ///
    /// If one is nowhere though no handler has acknowledged it, or in two places, or dead-lettered
    /// twice.
    #[track_caller]
    pub fn check(&self, published: &BTreeMap<String, String>, witness: &Witness) {
        let pending: BTreeSet<&str> = self.pending.iter().map(|held| &*held.id).collect();
        let unread: BTreeSet<&str> = self.unread.iter().map(|id| &**id).collect();
        let mut wrong = Vec::new();
        for (id, body) in published {
            let copies = self.dead_letters_of(id).len();
            let waits = pending.contains(&**id) || unread.contains(&**id);
            let attempts = witness.attempts(id);
            match (waits, copies) {
                (true, 0) | (false, 1) => {}
                (false, 0) => {
                    if !attempts.iter().any(|&attempt| acks(body, attempt)) {
                        wrong.push(format!("{id} ({body}) is lost: started as {attempts:?}"));
                    }
                }
                (_, copies) => {
                    wrong.push(format!(
                        "{id} ({body}): waits {waits}, dead letters {copies}"
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Whether a scripted guest acknowledges that attempt at this body.
fn acks(body: &str, attempt: u32) -> bool {
    let steps: Vec<&str> = body.split([';', ',']).collect();
    let index = (attempt.max(1) as usize - 1).min(steps.len() - 1);
    let ends_otherwise = ["nack", "drop", "trap", "panic", "loop", "exit"];
    !steps[index]
        .split('+')
        .any(|action| ends_otherwise.iter().any(|word| action.starts_with(word)))
}

async fn last_delivered(raw: &RawRedis, stream: &str, group: &str) -> String {
    let groups = raw.ask(&format!("XINFO GROUPS {stream}")).await;
    let groups: Vec<BTreeMap<String, redis::Value>> =
        redis::from_redis_value(groups).expect("groups are maps");
    for mut info in groups {
        let name = info.remove("name").map(redis::from_redis_value::<String>);
        if name.is_some_and(|name| name.is_ok_and(|name| name == group)) {
            let last = info.remove("last-delivered-id").expect("a group has one");
            return redis::from_redis_value(last).expect("an id is text");
        }
    }
    "0-0".to_owned()
}

/// One dead letter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadLetter {
    /// Its id in the dead-letter queue.
    pub id: String,
    /// Its fields as they stand there.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl DeadLetter {
    /// All of a queue, in order.
    pub async fn all(raw: &RawRedis, key: &str) -> Vec<Self> {
        let entries = raw.entries(key).await;
        entries
            .into_iter()
            .map(|(id, fields)| Self {
                id,
                fields: fields
                    .chunks_exact(2)
                    .map(|pair| (pair[0].clone(), pair[1].clone()))
                    .collect(),
            })
            .collect()
    }

    /// The bytes of a field.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let field = self.fields.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| &**value)
    }

    /// The text of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.field(format!("h:{name}").as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// Why it is here.
    pub fn reason(&self) -> &str {
        self.header("x-dead-letter-reason").unwrap_or_default()
    }
}
