//! The list of the queues that hosts serve or served lately, of all queues of a server.
//!
//! It is the sorted set [`QUEUES`]: a description of a queue, and when a host last served it, by the clock of
//! Redis. Every host adds its own queue again and again. A queue that was not served for [`KEPT`] goes, and so does the
//! one that was not served for the longest time where there are more than [`QUEUES_MAX`].
//!
//! - [`cancel`]: cancelling messages of a listed queue.
//! - [`overview`]: what queues hold, which hosts serve them, and what stops them.
//! - [`trace`]: what Redis knows of one message.
//!
//! The functions fail with any error of Redis. No message waits for any of this. Without the right to write the list, a host serves all the same, and the
//! queue is not listed.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use redis::{Value, cmd};
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::delivery::declared::declared;
use crate::delivery::millis::millis;
use crate::queue::kind::Place;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::wire::keys::{self, QUEUES};

pub mod cancel;
pub mod overview;
pub mod scripts;
pub mod trace;

/// For how long a queue is listed that no host serves anymore.
pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The most queues that are listed.
pub const QUEUES_MAX: usize = 10_000;
/// The most bytes of a description that are written or read.
const DESCRIPTION_MAX: usize = 8 * 1024;

const COMMAND: &str = "queues";
/// The live rule that says where dead letters go.
pub(crate) const DEAD_LETTER: &str = "dead_letter.key";

/// A queue as it is listed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Listed {
    /// Its key, or the channel.
    pub queue: String,
    /// What it is.
    pub kind: ListedKind,
    /// The consumer group of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The recovery set of a reliable list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<String>,
    /// Where its dead letters go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    /// When a host last served it, in epoch milliseconds.
    #[serde(skip)]
    pub seen_ms: u64,
}

declared! {
    /// The kind of a listed queue.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ListedKind (/// The word for it.
                         label -> &'static str) {
        /// A stream, through a consumer group.
        Stream = "stream",
        /// A reliable list.
        List = "list",
        /// A list, at most once.
        SimpleList = "simple list",
        /// A channel, or several.
        Channel = "channel",
    }
}

impl Listed {
    /// The queue at this place.
    pub fn new(name: &str, place: &Place) -> Self {
        let (kind, group, recovery) = match place {
            Place::Stream { group, .. } => (ListedKind::Stream, Some(group.to_string()), None),
            Place::List { recovery, .. } => (ListedKind::List, None, recovery.clone()),
            Place::SimpleList { .. } => (ListedKind::SimpleList, None, None),
            Place::PubSub => (ListedKind::Channel, None, None),
        };
        Self {
            queue: name.to_owned(),
            kind,
            group,
            recovery,
            dead_letter: None,
            seen_ms: 0,
        }
    }

    /// Its place, to look at it.
    pub fn place(&self) -> Place {
        let key: Arc<str> = self.queue.as_str().into();
        match (self.kind, &self.group) {
            (ListedKind::Stream, Some(group)) => Place::Stream {
                key,
                group: group.as_str().into(),
            },
            (ListedKind::List, _) => Place::List {
                key,
                recovery: self.recovery.clone(),
            },
            (ListedKind::SimpleList, _) => Place::SimpleList { key },
            (ListedKind::Stream, None) | (ListedKind::Channel, _) => Place::PubSub,
        }
    }
}

/// List a queue, or say that it is served still.
pub async fn register(link: &Link, queue: &Listed) -> Result<(), Error> {
    let description = serde_json::to_string(queue).unwrap_or_default();
    if description.is_empty() || description.len() > DESCRIPTION_MAX {
        return Ok(());
    }
    let script = &scripts::REGISTER;
    let mut call = script.on(&[QUEUES]);
    call.arg(description).arg(millis(KEPT)).arg(QUEUES_MAX);
    link.run(script, &call).await.map(drop)
}

/// Take the queues with this name off the list. A host that serves one lists it again.
pub async fn forget(link: &Link, name: &str) -> Result<(), Error> {
    let mut all = cmd("ZRANGE");
    all.arg(QUEUES).arg(0).arg(-1);
    for description in reply::values(COMMAND, link.call(COMMAND, &all).await?)? {
        let listed = serde_json::from_slice::<Listed>(&description);
        if listed.is_ok_and(|listed| listed.queue == name) {
            let mut removal = cmd("ZREM");
            removal.arg(QUEUES).arg(&*description);
            link.call(COMMAND, &removal).await?;
        }
    }
    Ok(())
}

/// The listed queues, by name and group.
pub async fn listed(link: &Link) -> Result<Vec<Listed>, Error> {
    let mut newest = cmd("ZRANGE");
    newest.arg(QUEUES).arg(0).arg(QUEUES_MAX - 1);
    newest.arg("REV").arg("WITHSCORES");
    let answer = link.call(COMMAND, &newest).await?;
    let mut queues: Vec<Listed> = Vec::new();
    for (description, seen) in reply::scored(COMMAND, answer)? {
        if description.len() > DESCRIPTION_MAX {
            continue;
        }
        // A later version of hostler may write another form.
        let Ok(mut queue) = serde_json::from_slice::<Listed>(&description) else {
            continue;
        };
        queue.seen_ms = seen;
        queues.push(queue);
    }
    // The newest description of each queue is the first one.
    let name = |q: &Listed| (q.queue.clone(), q.group.clone(), q.kind);
    queues.sort_by_key(|queue| (name(queue), Reverse(queue.seen_ms)));
    queues.dedup_by_key(|queue| name(queue));
    Ok(queues)
}

/// The listed queues whose names match a pattern: `*` is any text, `?` any one character.
pub async fn matching(link: &Link, pattern: &str) -> Result<Vec<Listed>, Error> {
    let pattern = WildMatch::new(pattern);
    let mut queues = listed(link).await?;
    queues.retain(|queue| pattern.matches(&queue.queue));
    Ok(queues)
}

/// The listed queues with this name, one for each group. A queue that is not listed is looked for in Redis.
pub async fn named(link: &Link, name: &str) -> Result<Vec<Listed>, Error> {
    let mut found = match listed(link).await {
        Ok(found) => found,
        Err(error) if error.is_missing_right() => Vec::new(),
        Err(error) => return Err(error),
    };
    found.retain(|queue| queue.queue == name);
    if found.is_empty() {
        found = unlisted(link, name).await?;
    }
    Ok(found)
}

/// The queues that a key may hold, by its type.
async fn unlisted(link: &Link, name: &str) -> Result<Vec<Listed>, Error> {
    let kind = link.call(COMMAND, cmd("TYPE").arg(name)).await?;
    let kind = reply::text(COMMAND, kind)?;
    let key: Arc<str> = name.into();
    match kind.as_str() {
        "stream" => {
            let groups = link
                .call(COMMAND, cmd("XINFO").arg("GROUPS").arg(name))
                .await?;
            let groups = reply::array(COMMAND, groups)?.into_iter();
            let groups = groups.map(|group| {
                let group = reply::Info::new(COMMAND, group)?.text("name")?;
                let (group, key) = (group.as_str().into(), Arc::clone(&key));
                Ok(Listed::new(name, &Place::Stream { key, group }))
            });
            groups.collect()
        }
        _ => {
            let mut exists = cmd("EXISTS");
            exists.arg(keys::instances(name));
            let has_instances = link.call(COMMAND, &exists).await? == Value::Int(1);
            let place = match (kind.as_str(), has_instances) {
                (_, true) => Place::List {
                    key,
                    recovery: None,
                },
                ("list", false) => Place::SimpleList { key },
                _ => return Ok(Vec::new()),
            };
            Ok(vec![Listed::new(name, &place)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_queue_keeps_its_place() {
        let key: Arc<str> = "orders".into();
        for place in [
            Place::Stream {
                key: Arc::clone(&key),
                group: "billing".into(),
            },
            Place::List {
                key: Arc::clone(&key),
                recovery: Some("claims".to_owned()),
            },
            Place::SimpleList {
                key: Arc::clone(&key),
            },
            Place::PubSub,
        ] {
            let listed = Listed::new("orders", &place);
            let text = serde_json::to_string(&listed).unwrap();
            let read: Listed = serde_json::from_str(&text).unwrap();
            assert_eq!(read, listed);
            assert_eq!(read.place(), place);
        }
    }
}
