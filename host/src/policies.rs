//! Policies: settings that operators keep in Redis, beside the queue or for all queues that a
//! pattern names.
//!
//! A queue's own are the hash `{orders}:policy` (setting -> text). Those by pattern are the hash
//! [`POLICIES`], whose fields are a setting and a pattern with a blank between (no setting has one).
//! Here they are texts; `config` reads and checks them.
//!
//! Crash windows: none. A change is one command, and a host reads both hashes in one round trip.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use redis::{Cmd, Pipeline, Value};
use wildmatch::WildMatch;

use crate::redis::connection::Link;
use crate::redis::error::{Class, Error};
use crate::redis::reply;
use crate::wire::keys::{self, POLICIES};

/// Most settings of one hash: policies are a page of text.
pub const SETTINGS_MAX: usize = 1000;
/// The longest text of a setting, and the longest pattern, in bytes.
pub const TEXT_MAX: usize = 4096;

/// Which queues a policy is for.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// All whose key this pattern names: `*` is any text, `?` any one character.
    Match(Arc<str>),
    /// The one of this key.
    Queue(Arc<str>),
}

impl Scope {
    /// Whether it is for the queue of this key.
    pub fn names(&self, key: &str) -> bool {
        match self {
            Self::Queue(queue) => **queue == *key,
            Self::Match(pattern) => WildMatch::new(pattern).matches(key),
        }
    }

    /// How well it fits a queue that it names: the queue's own wins over any pattern, of two
    /// patterns the one with more literal characters, and then the later in the
    /// alphabet.
    fn rank(&self) -> (bool, usize, &str) {
        match self {
            Self::Queue(queue) => (true, 0, queue),
            Self::Match(pattern) => {
                let literal = pattern.chars().filter(|c| !matches!(c, '*' | '?'));
                (false, literal.count(), pattern)
            }
        }
    }

    /// The queue's key, or the pattern.
    pub fn text(&self) -> &Arc<str> {
        match self {
            Self::Queue(text) | Self::Match(text) => text,
        }
    }

    fn key(&self) -> String {
        match self {
            Self::Queue(queue) => keys::policy(queue),
            Self::Match(_) => POLICIES.to_owned(),
        }
    }

    fn field(&self, setting: &str) -> String {
        match self {
            Self::Queue(_) => setting.to_owned(),
            Self::Match(pattern) => format!("{setting} {pattern}"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// One setting of a policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// Which queues it is for.
    pub scope: Scope,
    /// The key of the setting.
    pub setting: String,
    /// The text of its value.
    pub text: String,
}

/// What there is for one queue.
#[derive(Debug, Default)]
pub struct Found {
    /// Every setting of its own policy, and of every pattern that names it.
    pub settings: Vec<Stored>,
    /// Why policies by pattern could not be read, if they could not: this user may lack the right,
    /// or they may be on another node of a cluster.
    pub unseen: Option<Error>,
}

impl Found {
    /// For each setting the one that counts.
    pub fn effective(&self) -> Vec<&Stored> {
        let mut best: BTreeMap<&str, &Stored> = BTreeMap::new();
        for stored in &self.settings {
            let known = best.entry(&stored.setting).or_insert(stored);
            if known.scope.rank() < stored.scope.rank() {
                *known = stored;
            }
        }
        best.into_values().collect()
    }
}

/// The policies of a server.
pub struct Policies {
    link: Link,
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies").finish_non_exhaustive()
    }
}

impl Policies {
    /// Over this connection.
    pub fn new(link: Link) -> Self {
        Self { link }
    }

    /// What there is for the queue of this key.
    ///
    /// # Errors
    /// Any of [`Error`], if the queue's own cannot be read.
    pub async fn of_queue(&self, key: &str) -> Result<Found, Error> {
        const COMMAND: &str = "HGETALL";
        let own = Scope::Queue(key.into());
        let mut pipeline = Pipeline::new();
        pipeline.cmd(COMMAND).arg(own.key());
        pipeline.cmd(COMMAND).arg(POLICIES);
        let mut replies = self.link.pipeline(COMMAND, &pipeline).await?.into_iter();
        let mut next = || reply::accepted(COMMAND, replies.next().unwrap_or_default());
        let mut found = Found::default();
        for (setting, text) in fields(next()?)? {
            found.settings.push(Stored {
                scope: own.clone(),
                setting,
                text,
            });
        }
        match next().and_then(by_pattern) {
            Ok(stored) => {
                let ours = stored.into_iter().filter(|stored| stored.scope.names(key));
                found.settings.extend(ours);
            }
            Err(error) if error.class() == Class::Configuration => found.unseen = Some(error),
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    /// Every policy by pattern.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn by_pattern(&self) -> Result<Vec<Stored>, Error> {
        const COMMAND: &str = "HGETALL";
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND).arg(POLICIES);
        by_pattern(self.link.call(COMMAND, &cmd).await?)
    }

    /// Set these settings, all at once.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn set(&self, scope: &Scope, settings: &[(&str, &str)]) -> Result<(), Error> {
        const COMMAND: &str = "HSET";
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND).arg(scope.key());
        for (setting, text) in settings {
            cmd.arg(scope.field(setting)).arg(*text);
        }
        self.link.call(COMMAND, &cmd).await.map(drop)
    }

    /// Unset these settings. Returns how many of them were set.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn unset(&self, scope: &Scope, settings: &[&str]) -> Result<u64, Error> {
        const COMMAND: &str = "HDEL";
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND).arg(scope.key());
        for setting in settings {
            cmd.arg(scope.field(setting));
        }
        reply::count(COMMAND, &self.link.call(COMMAND, &cmd).await?)
    }

    /// What kind of queue this is, as Redis calls its key: `stream`, `list`, `none`, ...
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn kind_of_queue(&self, key: &str) -> Result<String, Error> {
        let kind = self.kind_of(key).await?;
        if kind != "none" {
            return Ok(kind);
        }
        // A list that is empty is not there; what its hosts keep beside it is.
        match self.kind_of(&keys::instances(key)).await {
            Ok(beside) if beside == "zset" => Ok("list".to_owned()),
            Err(error) if !error.is_missing_right() => Err(error),
            _ => Ok(kind),
        }
    }

    /// The type of a key, as Redis names it.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn kind_of(&self, key: &str) -> Result<String, Error> {
        const COMMAND: &str = "TYPE";
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND).arg(key);
        reply::text(COMMAND, self.link.call(COMMAND, &cmd).await?)
    }
}

fn by_pattern(value: Value) -> Result<Vec<Stored>, Error> {
    let stored = fields(value)?.into_iter().filter_map(|(field, text)| {
        // Fields of other programs are ignored.
        let (setting, pattern) = field.split_once(' ')?;
        Some(Stored {
            scope: Scope::Match(pattern.into()),
            setting: setting.to_owned(),
            text,
        })
    });
    Ok(stored.collect())
}

/// Fields and their texts, in the order of their names, at most [`SETTINGS_MAX`]. A field whose text is too
/// long or not UTF-8 gets a name that no setting has.
fn fields(value: Value) -> Result<Vec<(String, String)>, Error> {
    const COMMAND: &str = "HGETALL";
    let mut fields: Vec<(String, String)> = reply::fields(COMMAND, value)?
        .into_iter()
        .take(SETTINGS_MAX)
        .map(|(name, text)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            match std::str::from_utf8(&text) {
                Ok(text) if text.len() <= TEXT_MAX => (name, text.to_owned()),
                _ => (format!("unreadable:{name}"), String::new()),
            }
        })
        .collect();
    fields.sort();
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let matches = |pattern: &str, text: &str| Scope::Match(pattern.into()).names(text);
        for (pattern, text) in [
            ("orders.*", "orders."),
            ("orders.*", "orders.eu"),
            ("*", ""),
            ("*.eu", "orders.eu"),
            ("o?ders", "orders"),
            ("a*b*c", "a-b-b-c"),
            ("ä?", "äö"),
            ("{o}:*", "{o}:x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("orders.*", "orders"),
            ("orders", "orders.eu"),
            ("o?ders", "oders"),
            ("a*b*c", "a-b-c-"),
            ("", "a"),
            ("[ab]", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        // No pattern takes for ever.
        assert!(!matches(&"a*".repeat(500), &("a".repeat(499) + "b")));
    }

    fn stored(scope: Scope, setting: &str, text: &str) -> Stored {
        Stored {
            scope,
            setting: setting.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_closest_policy_counts_setting_by_setting() {
        let pattern = |pattern: &str| Scope::Match(pattern.into());
        let found = Found {
            settings: vec![
                stored(pattern("*"), "a", "any"),
                stored(pattern("orders.*"), "a", "orders"),
                stored(Scope::Queue("orders.eu".into()), "b", "own"),
                stored(pattern("orders.eu"), "b", "pattern"),
                stored(pattern("*"), "c", "any"),
            ],
            unseen: None,
        };
        let effective = found.effective();
        let texts: Vec<&str> = effective.iter().map(|s| &*s.text).collect();
        assert_eq!(texts, ["orders", "own", "any"]);
    }
}
