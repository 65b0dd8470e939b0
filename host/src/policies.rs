//! Policies: settings that operators store in Redis, for one queue or for all queues that match a
//! pattern.
//!
//! The policy of a queue is the hash `{orders}:policy` (setting -> text). Policies by pattern are the
//! hash [`POLICIES`], whose fields are a setting, a blank and a pattern; settings contain no blank.
//! Values are plain text here; `config` parses and checks them.
//!
//! Each hash is read for itself: on a cluster it may be on a node of its own. A policy that cannot be read is
//! not absent: [`Part::unreadable`] says why, and hosts keep what they know.
//!
//! Crash windows: none. A change is one command.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use redis::cmd;
use wildmatch::WildMatch;

use crate::delivery::text::{printable, truncated};
use crate::redis::connection::Link;
use crate::redis::{Error as RedisError, reply};
use crate::wire::keys::{self, POLICIES};

/// The command that reads a hash.
const READ: &str = "HGETALL";
/// The most settings of one hash: hosts read no larger one.
pub const SETTINGS_MAX: usize = 1000;
/// The most bytes of a value or a pattern.
pub const TEXT_MAX: usize = 4096;
/// The most bytes of the name of a rule in an error.
const SHOWN_MAX: usize = 128;

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

/// Why a hash of policies is not read, or not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Redis did not answer, or refused.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// It has more settings than hosts read.
    #[error("`{key}` has {found} rules, and hosts read at most {SETTINGS_MAX}")]
    TooMany {
        /// The hash.
        key: String,
        /// How many settings it has, or would have.
        found: usize,
    },
    /// A value is not text, or too long.
    #[error("the rule `{field}` of `{key}` is not text of at most {TEXT_MAX} bytes")]
    Malformed {
        /// The hash.
        key: String,
        /// The setting, with its pattern.
        field: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Redis(error) if error.is_missing_right() => Some(
                "grant the user `+hgetall` and the keys of policies: docs/policies.md".to_owned(),
            ),
            Self::Redis(error) => error.hint(),
            Self::TooMany { .. } => Some("remove some with `hostler policy unset`".to_owned()),
            Self::Malformed { .. } => None,
        }
    }

    /// Whether the user lacks the right to read the hash.
    pub fn is_missing_right(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_missing_right())
    }
}

/// What one hash says.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The settings. A value that is not text is shown as well as it can be.
    pub settings: Vec<Stored>,
    /// Why hosts do not take these settings, if so: this is never the same as having none.
    pub unreadable: Option<Error>,
}

impl Part {
    /// The settings as hosts take them.
    ///
    /// # Errors
    /// Why they do not.
    pub fn known(self) -> Result<Vec<Stored>, Error> {
        self.unreadable.map_or(Ok(self.settings), Err)
    }

    /// All that is stored, and why hosts do not take it, if so.
    ///
    /// # Errors
    /// Redis did not answer, or refused.
    pub fn stored(self) -> Result<(Vec<Stored>, Option<Error>), RedisError> {
        match self.unreadable {
            Some(Error::Redis(error)) => Err(error),
            why => Ok((self.settings, why)),
        }
    }
}

/// The policies that concern one queue.
#[derive(Debug, Default)]
pub struct QueuePolicies {
    /// Its own policy.
    pub own: Part,
    /// Those of each pattern that matches it.
    pub by_pattern: Part,
}

impl QueuePolicies {
    /// All that is stored, and why hosts do not take all of it, if so.
    ///
    /// # Errors
    /// The queue's own policy cannot be read.
    pub fn stored(self) -> Result<(Vec<Stored>, Option<Error>), RedisError> {
        let (mut settings, why) = self.own.stored()?;
        settings.extend(self.by_pattern.settings);
        Ok((settings, why.or(self.by_pattern.unreadable)))
    }
}

/// Of these settings the one with the highest precedence, for each name.
pub fn effective(settings: &[Stored]) -> Vec<&Stored> {
    let mut best: BTreeMap<&str, &Stored> = BTreeMap::new();
    for stored in settings {
        let known = best.entry(&stored.setting).or_insert(stored);
        if known.scope.rank() < stored.scope.rank() {
            *known = stored;
        }
    }
    best.into_values().collect()
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
    pub async fn of_queue(&self, key: &str) -> QueuePolicies {
        let scope = Scope::Queue(key.into());
        let (own, by_pattern) = join(
            self.read(&scope, |_| true),
            self.read(&Scope::Match("".into()), |found| found.matches(key)),
        )
        .await;
        QueuePolicies { own, by_pattern }
    }

    /// All policies by pattern.
    pub async fn by_pattern(&self) -> Part {
        self.read(&Scope::Match("".into()), |_| true).await
    }

    /// The settings beside those of this scope, for such scopes.
    async fn read(&self, beside: &Scope, is_wanted: impl Fn(&Scope) -> bool) -> Part {
        let key = beside.key();
        let fields = match self.fields(&key).await {
            Ok(fields) => fields,
            Err(error) => {
                return Part {
                    unreadable: Some(error.into()),
                    ..Part::default()
                };
            }
        };
        let mut part = Part::default();
        if fields.len() > SETTINGS_MAX {
            let found = fields.len();
            part.unreadable = Some(Error::TooMany {
                key: key.clone(),
                found,
            });
        }
        for (field, value) in fields {
            let (scope, setting) = match beside {
                Scope::Queue(_) => (beside.clone(), &*field),
                // Ignore fields that are not a setting and a pattern.
                Scope::Match(_) => match field.split_once(' ') {
                    Some((setting, pattern)) => (Scope::Match(pattern.into()), setting),
                    None => continue,
                },
            };
            if !is_wanted(&scope) {
                continue;
            }
            let text = match std::str::from_utf8(&value) {
                Ok(text) if text.len() <= TEXT_MAX => text.to_owned(),
                _ => {
                    part.unreadable.get_or_insert_with(|| Error::Malformed {
                        key: key.clone(),
                        field: printable(truncated(&field, SHOWN_MAX)),
                    });
                    let text = String::from_utf8_lossy(&value).into_owned();
                    truncated(&text, TEXT_MAX).to_owned()
                }
            };
            part.settings.push(Stored {
                scope,
                setting: setting.to_owned(),
                text,
            });
        }
        part
    }

    /// The fields and values of a hash, sorted by name. A name that is not UTF-8 is not the name of a setting,
    /// and its pattern matches no queue.
    async fn fields(&self, key: &str) -> Result<BTreeMap<String, Bytes>, RedisError> {
        let fields = reply::fields(READ, self.link.call(READ, cmd(READ).arg(key)).await?)?;
        let named = |(name, value): (Bytes, Bytes)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            (name, value)
        };
        Ok(fields.into_iter().map(named).collect())
    }

    /// Set these settings in one step, unless hosts would not read that number of settings.
    ///
    /// # Errors
    /// [`Error::TooMany`], and those of Redis.
    pub async fn set(&self, scope: &Scope, settings: &[(&str, &str)]) -> Result<(), Error> {
        const COMMAND: &str = "HSET";
        let key = scope.key();
        match self.fields(&key).await {
            Ok(mut fields) => {
                let new = settings.iter().map(|(setting, _)| scope.field(setting));
                fields.extend(new.map(|field| (field, Bytes::new())));
                let found = fields.len();
                if found > SETTINGS_MAX {
                    return Err(Error::TooMany { key, found });
                }
            }
            // A user may have the right to write only.
            Err(error) if error.is_missing_right() => {}
            Err(error) => return Err(error.into()),
        }
        let mut cmd = cmd(COMMAND);
        cmd.arg(key);
        for (setting, text) in settings {
            cmd.arg(scope.field(setting)).arg(*text);
        }
        Ok(self.link.call(COMMAND, &cmd).await.map(drop)?)
    }

    /// Unset these settings. Returns the number that were set.
    pub async fn unset(&self, scope: &Scope, settings: &[&str]) -> Result<u64, RedisError> {
        const COMMAND: &str = "HDEL";
        let fields: Vec<String> = settings.iter().map(|s| scope.field(s)).collect();
        let mut cmd = cmd(COMMAND);
        cmd.arg(scope.key()).arg(fields);
        reply::count(COMMAND, &self.link.call(COMMAND, &cmd).await?)
    }

    /// The kind of a queue, as the Redis type of its key: `stream`, `list`, `none`, ...
    pub async fn kind_of_queue(&self, key: &str) -> Result<String, RedisError> {
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
    pub async fn kind_of(&self, key: &str) -> Result<String, RedisError> {
        self.link.type_of(key).await
    }
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
        let settings = [
            stored(pattern("*"), "a", "any"),
            stored(pattern("orders.*"), "a", "orders"),
            stored(Scope::Queue("orders.eu".into()), "b", "own"),
            stored(pattern("orders.eu"), "b", "pattern"),
            stored(pattern("*"), "c", "any"),
        ];
        let texts: Vec<&str> = effective(&settings).iter().map(|s| &*s.text).collect();
        assert_eq!(texts, ["orders", "own", "any"]);
    }
}
