//! Policies: settings that operators store in Redis, for one queue or for all queues that match a
//! pattern.
//!
//! The policy of a queue is the hash `{orders}:policy` (setting -> text). Policies by pattern are the
//! hash [`POLICIES`], whose fields are a setting, a blank and a pattern; settings contain no blank.
//! Values are plain text here; `config` parses and checks them.
//!
//! Crash windows: none. A change is one command, and a host reads both hashes in one round trip.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use redis::{Pipeline, Value, cmd};
use wildmatch::WildMatch;

use crate::redis::connection::Link;
use crate::redis::error::{Class, Error};
use crate::redis::reply;
use crate::wire::keys::{self, POLICIES};

/// The command that reads a hash.
const READ: &str = "HGETALL";
/// The most settings of one hash.
pub const SETTINGS_MAX: usize = 1000;
/// The most bytes of a value or a pattern.
pub const TEXT_MAX: usize = 4096;

/// The queues of a policy.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// All queues whose key matches this pattern: `*` is any text, `?` any character.
    Match(Arc<str>),
    /// The queue with this key.
    Queue(Arc<str>),
}

impl Scope {
    /// Whether the policy applies to the queue with this key.
    pub fn matches(&self, key: &str) -> bool {
        match self {
            Self::Queue(queue) => **queue == *key,
            Self::Match(pattern) => WildMatch::new(pattern).matches(key),
        }
    }

    /// The precedence; the highest wins. The policy of the queue itself is highest, then the pattern
    /// with more characters that are not wildcards, then the later pattern in the alphabet.
    fn rank(&self) -> (bool, usize, &str) {
        match self {
            Self::Queue(queue) => (true, 0, queue),
            Self::Match(pattern) => {
                let literal = pattern.chars().filter(|c| !matches!(c, '*' | '?'));
                (false, literal.count(), pattern)
            }
        }
    }

    /// The key of the queue, or the pattern.
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
    /// The queues.
    pub scope: Scope,
    /// The name of the setting.
    pub setting: String,
    /// The value.
    pub text: String,
}

/// The policies of one queue.
#[derive(Debug, Default)]
pub struct QueuePolicies {
    /// All settings of its own policy and of each matching pattern.
    pub settings: Vec<Stored>,
    /// The error of reading policies by pattern: the user may lack the right, or another node of a
    /// cluster may hold them.
    pub patterns_error: Option<Error>,
}

impl QueuePolicies {
    /// These settings.
    pub fn of(settings: Vec<Stored>) -> Self {
        Self {
            settings,
            patterns_error: None,
        }
    }

    /// The setting with the highest precedence, for each name.
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
#[derive(Debug)]
pub struct Policies {
    link: Link,
}

impl Policies {
    /// Use this connection.
    pub fn new(link: Link) -> Self {
        Self { link }
    }

    /// The policies of the queue with this key.
    ///
    /// # Errors
    /// Any of [`Error`], if the queue's own policy cannot be read.
    pub async fn of_queue(&self, key: &str) -> Result<QueuePolicies, Error> {
        let own = Scope::Queue(key.into());
        let mut pipeline = Pipeline::new();
        pipeline.cmd(READ).arg(own.key());
        pipeline.cmd(READ).arg(POLICIES);
        let mut replies = self.link.pipeline(READ, &pipeline).await?.into_iter();
        let mut next = || reply::accepted(READ, replies.next().unwrap_or_default());
        let mut found = QueuePolicies::default();
        let of_own = |(setting, text)| Stored {
            scope: own.clone(),
            setting,
            text,
        };
        found.settings = fields(next()?)?.into_iter().map(of_own).collect();
        match next().and_then(by_pattern) {
            Ok(stored) => {
                let ours = stored.into_iter().filter(|s| s.scope.matches(key));
                found.settings.extend(ours);
            }
            Err(error) if error.class() == Class::Configuration => {
                found.patterns_error = Some(error);
            }
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    /// All policies by pattern.
    pub async fn by_pattern(&self) -> Result<Vec<Stored>, Error> {
        by_pattern(self.link.call(READ, cmd(READ).arg(POLICIES)).await?)
    }

    /// Set these settings in one step.
    pub async fn set(&self, scope: &Scope, settings: &[(&str, &str)]) -> Result<(), Error> {
        const COMMAND: &str = "HSET";
        let mut cmd = cmd(COMMAND);
        cmd.arg(scope.key());
        for (setting, text) in settings {
            cmd.arg(scope.field(setting)).arg(*text);
        }
        self.link.call(COMMAND, &cmd).await.map(drop)
    }

    /// Unset these settings. Returns the number that were set.
    pub async fn unset(&self, scope: &Scope, settings: &[&str]) -> Result<u64, Error> {
        const COMMAND: &str = "HDEL";
        let fields: Vec<String> = settings.iter().map(|s| scope.field(s)).collect();
        let mut cmd = cmd(COMMAND);
        cmd.arg(scope.key()).arg(fields);
        reply::count(COMMAND, &self.link.call(COMMAND, &cmd).await?)
    }

    /// The kind of a queue, as the Redis type of its key: `stream`, `list`, `none`, ...
    pub async fn kind_of_queue(&self, key: &str) -> Result<String, Error> {
        let kind = self.kind_of(key).await?;
        if kind != "none" {
            return Ok(kind);
        }
        // An empty list has no key, but its hosts keep a key beside it.
        match self.kind_of(&keys::instances(key)).await {
            Ok(beside) if beside == "zset" => Ok("list".to_owned()),
            Err(error) if !error.is_missing_right() => Err(error),
            _ => Ok(kind),
        }
    }

    /// The Redis type of a key.
    pub async fn kind_of(&self, key: &str) -> Result<String, Error> {
        self.link.type_of(key).await
    }
}

fn by_pattern(value: Value) -> Result<Vec<Stored>, Error> {
    let stored = fields(value)?.into_iter().filter_map(|(field, text)| {
        // Ignore fields that are not a setting and a pattern.
        let (setting, pattern) = field.split_once(' ')?;
        Some(Stored {
            scope: Scope::Match(pattern.into()),
            setting: setting.to_owned(),
            text,
        })
    });
    Ok(stored.collect())
}

/// The fields and values, sorted by name, at most [`SETTINGS_MAX`]. A value that is not UTF-8 or too
/// long is empty, and its name gets the prefix `unreadable:`, which no setting has.
fn fields(value: Value) -> Result<Vec<(String, String)>, Error> {
    let mut fields: Vec<(String, String)> = reply::fields(READ, value)?
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
        let matches = |pattern: &str, text: &str| Scope::Match(pattern.into()).matches(text);
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
        // The time is bounded.
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
    fn the_closest_policy_wins_for_each_setting() {
        let pattern = |pattern: &str| Scope::Match(pattern.into());
        let found = QueuePolicies {
            settings: vec![
                stored(pattern("*"), "a", "any"),
                stored(pattern("orders.*"), "a", "orders"),
                stored(Scope::Queue("orders.eu".into()), "b", "own"),
                stored(pattern("orders.eu"), "b", "pattern"),
                stored(pattern("*"), "c", "any"),
            ],
            patterns_error: None,
        };
        let effective = found.effective();
        let texts: Vec<&str> = effective.iter().map(|s| &*s.text).collect();
        assert_eq!(texts, ["orders", "own", "any"]);
    }
}
