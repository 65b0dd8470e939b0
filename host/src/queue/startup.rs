//! The checks before the first message. They find what would fail later, and say what to do about it.

use std::collections::HashMap;
use std::fmt;

use redis::cmd;

use crate::queue::rights;
use crate::queue::rights::Need;
use crate::redis::connection::{Connector, Link};
use crate::redis::error::{Class, Error};
use crate::redis::{hint, reply};
use crate::wire::keys;

/// Why a queue cannot be served. [`StartError::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no server, or it does not answer.
    #[error("{0}")]
    Unreachable(#[source] Error),
    /// There is a server, but it cannot serve yet.
    #[error("{0}")]
    NotReady(#[source] Error),
    /// Redis refuses the login.
    #[error("{0}")]
    Login(#[source] Error),
    /// Redis refuses something else.
    #[error("{0}")]
    Refused(#[source] Error),
    /// The server is too old.
    #[error("redis at {target} has version {version}, hostler needs 7.0 or newer")]
    TooOld {
        /// Host and port, or socket.
        target: String,
        /// The version in its `INFO`.
        version: String,
    },
    /// The server is a replica.
    #[error("redis at {target} is a replica of {primary}")]
    Replica {
        /// Host and port, or socket.
        target: String,
        /// Its primary.
        primary: String,
    },
    /// A key holds another type.
    #[error("the key `{key}` holds a {found}, but {purpose} needs a {needed}")]
    WrongType {
        /// The key.
        key: String,
        /// The purpose of the key.
        purpose: &'static str,
        /// The type that it must hold.
        needed: &'static str,
        /// The type that it holds.
        found: String,
    },
    /// A key is the queue itself: dead letters would go back to where they died.
    #[error("the key of {purpose} is the queue `{key}` itself")]
    KeyIsSource {
        /// The key.
        key: String,
        /// The purpose of the key.
        purpose: &'static str,
    },
    /// Another queue uses this key.
    #[error("{purpose} `{key}` belongs to the queue `{owner}`")]
    OfAnotherQueue {
        /// The key.
        key: String,
        /// The purpose of the key.
        purpose: &'static str,
        /// The queue that it belongs to.
        owner: String,
    },
    /// On a cluster: the queue's other keys could not be in its slot.
    #[error("the key `{0}` has an empty or broken hash tag, which a cluster cannot use")]
    BrokenTag(String),
    /// The server does not know this command.
    #[error("redis does not know {0}")]
    Unknown(String),
    /// The server may evict journals.
    #[error(
        "a grant has `journal = true`, and redis has maxmemory-policy {0}: when memory is short it may delete \
         records of calls, and the calls would be made again"
    )]
    EvictsJournals(String),
    /// A host of the queue knows no journals.
    #[error(
        "a grant has `journal = true`, and the host `{0}` of the queue is too old to know journals: it would make \
         recorded calls again"
    )]
    OldHost(String),
    /// The user may not do what serving needs.
    #[error("the redis user `{user}` lacks rights")]
    MissingRights {
        /// The user of the connection.
        user: String,
        /// The rules that it lacks: `+command`, `~key`.
        rules: Vec<String>,
    },
}

impl StartError {
    /// Whether waiting may help (`--wait-redis`).
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NotReady(_))
    }

    /// What to do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unreachable(error)
            | Self::NotReady(error)
            | Self::Login(error)
            | Self::Refused(error) => return error.hint(),
            Self::TooOld { .. } => "upgrade it",
            Self::Replica { .. } => "name the primary",
            Self::WrongType { .. } => "name another key, or rename that one",
            Self::KeyIsSource { .. } => "name another key",
            Self::OfAnotherQueue { key, owner, .. } => {
                return Some(format!(
                    "give each queue a key of its own; if no host serves `{owner}` any more, delete `{key}`"
                ));
            }
            Self::EvictsJournals(_) => "set it to noeviction",
            Self::OldHost(_) => {
                "upgrade all hosts of the queue first, without the journal; turn it on when the old ones are gone"
            }
            Self::BrokenTag(_) => "name another key, or put a part of it in braces",
            Self::Unknown(command) => return Some(hint::unknown(command)),
            Self::MissingRights { user, rules } => {
                let rules = rules.join(" ");
                return Some(format!("grant them with `ACL SETUSER {user} {rules}`"));
            }
        };
        Some(hint.to_owned())
    }

    /// The error of an error at the start.
    pub(crate) fn from_error(error: Error, key: &str) -> Self {
        if let Some(command) = error.unknown_command() {
            return Self::Unknown(command);
        }
        match &error {
            &Error::Configuration {
                ref code, command, ..
            } => match code.as_str() {
                "WRONGTYPE" => Self::WrongType {
                    key: key.to_owned(),
                    purpose: "the queue",
                    needed: "stream",
                    found: "value of another type".to_owned(),
                },
                "WRONGPASS" | "NOAUTH" => Self::Login(error),
                _ if matches!(command, "AUTH" | "SELECT") => Self::Login(error),
                _ => Self::Refused(error),
            },
            _ => match error.class() {
                Class::Reconnect => Self::Unreachable(error),
                Class::Retry => Self::NotReady(error),
                Class::Missing | Class::Configuration => Self::Refused(error),
            },
        }
    }
}

/// A warning at the start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StartWarning {
    /// Redis may evict keys, and messages with them: its `maxmemory-policy`.
    Evicts(String),
    /// The append-only file is off.
    NoAppendOnlyFile,
}

impl fmt::Display for StartWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts(policy) => write!(
                f,
                "redis has maxmemory-policy {policy}: when memory is short it deletes messages; \
                 set it to noeviction"
            ),
            Self::NoAppendOnlyFile => f.write_str(
                "redis keeps no append-only file: messages since its last snapshot, if it makes \
                 any, are lost when it dies; set appendonly to yes",
            ),
        }
    }
}

/// A key of a queue.
pub(crate) struct Key {
    name: String,
    needed: &'static str,
    purpose: &'static str,
    /// It may be in another slot than the queue, and so on another node.
    is_elsewhere: bool,
}

impl Key {
    pub(crate) fn new(
        name: impl Into<String>,
        needed: &'static str,
        purpose: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            needed,
            purpose,
            is_elsewhere: false,
        }
    }

    /// The same key, which may be in another slot than the queue, and so on another node of a cluster.
    pub(crate) fn elsewhere(self) -> Self {
        Self {
            is_elsewhere: true,
            ..self
        }
    }
}

/// Check a server. `requirements` are the keys and the rights that a queue needs on a cluster, or on a single
/// server. The keys begin with the queue's own key; dead letters come last. A queue without keys keeps
/// nothing that the server could lose: it gets no warnings.
pub(crate) async fn check_all(
    connector: &Connector,
    requirements: impl Fn(bool) -> (Vec<Key>, Vec<Need>),
) -> Result<Vec<StartWarning>, StartError> {
    let (keys, _) = requirements(false);
    let mut link = connector.link("check");
    // What the node says that serves the queue.
    if let Some(key) = keys.first() {
        link = link.of(&key.name);
    }
    let info = match link.reach().await {
        Ok(()) => Server::ask(&link).await,
        Err(error) => Err(error),
    };
    let (keys, mut needs) = requirements(link.is_cluster());
    if connector.is_durable() {
        needs.push(Need::new("WAIT", &["1", "1"]));
    }
    let own = keys.first().map(|key| key.name.as_str());
    let queue = own.unwrap_or_default();
    let mut others = keys.iter().skip(1);
    if let Some(same) = others.find(|key| key.name == queue) {
        return Err(StartError::KeyIsSource {
            key: queue.to_owned(),
            purpose: same.purpose,
        });
    }
    let failed = |error| StartError::from_error(error, queue);
    let Some(info) = info.map_err(failed)? else {
        return Err(missing(&link, &needs).await.map_err(failed)?);
    };
    info.check(connector, own, keys.len() > 1)?;
    let is_broken = |key: &&Key| key.is_elsewhere && !keys::can_share_slot(&key.name);
    if link.is_cluster()
        && let Some(key) = keys.iter().find(is_broken)
    {
        return Err(StartError::BrokenTag(key.name.clone()));
    }
    if let Some((user, rules)) = rights::lacking(&link, &needs).await.map_err(failed)?
        && !rules.is_empty()
    {
        return Err(StartError::MissingRights { user, rules });
    }
    for key in &keys {
        is_of_type(&link, key).await?;
    }
    Ok(own.map(|_| info.warnings()).unwrap_or_default())
}

/// `INFO` is forbidden: name that right and the others that are missing.
async fn missing(link: &Link, needs: &[Need]) -> Result<StartError, Error> {
    let lacking = rights::lacking(link, needs).await?;
    let (user, mut rules) = lacking.unwrap_or_else(|| ("default".to_owned(), Vec::new()));
    if rules.is_empty() {
        rules.push("+info".to_owned());
    }
    Ok(StartError::MissingRights { user, rules })
}

async fn is_of_type(link: &Link, key: &Key) -> Result<(), StartError> {
    let found = match link.type_of(&key.name).await {
        // Another node is away: messages to it wait in an outbox.
        Err(error) if key.is_elsewhere && error.class() != Class::Configuration => return Ok(()),
        found => found.map_err(|error| StartError::from_error(error, &key.name))?,
    };
    if found == key.needed || found == "none" {
        return Ok(());
    }
    Err(StartError::WrongType {
        key: key.name.clone(),
        purpose: key.purpose,
        needed: key.needed,
        found,
    })
}

/// The reply of `INFO`.
struct Server(HashMap<String, String>);

impl Server {
    /// `None` if the right to ask is missing.
    async fn ask(link: &Link) -> Result<Option<Self>, Error> {
        let text = match link.call("INFO", &cmd("INFO")).await {
            Ok(value) => reply::text("INFO", value)?,
            Err(error) if error.is_missing_right() => return Ok(None),
            Err(error) => return Err(error),
        };
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let values = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        Ok(Some(Self(values.collect())))
    }

    fn is_cluster(&self) -> bool {
        self.get("cluster_enabled") == "1"
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// `key` = the queue's own, if it has one; `derives` = other keys must share its slot.
    fn check(
        &self,
        connector: &Connector,
        key: Option<&str>,
        derives: bool,
    ) -> Result<(), StartError> {
        let target = connector.target().address();
        // Valkey names the Redis that it is compatible with: 7.2.4.
        let version = self.get("redis_version");
        let major = version.split('.').next();
        let major = major.and_then(|major| major.parse().ok());
        if major.is_none_or(|major: u32| major < 7) {
            return Err(StartError::TooOld {
                target,
                version: version.to_owned(),
            });
        }
        let Some(key) = key else {
            return Ok(());
        };
        if matches!(self.get("role"), "slave" | "replica") {
            return Err(StartError::Replica {
                target,
                primary: format!("{}:{}", self.get("master_host"), self.get("master_port")),
            });
        }
        if derives && self.is_cluster() && !keys::can_share_slot(key) {
            return Err(StartError::BrokenTag(key.to_owned()));
        }
        Ok(())
    }

    fn warnings(&self) -> Vec<StartWarning> {
        let mut warnings = Vec::new();
        let policy = self.get("maxmemory_policy");
        if !matches!(policy, "" | "noeviction") {
            warnings.push(StartWarning::Evicts(policy.to_owned()));
        }
        if self.get("aof_enabled") == "0" {
            warnings.push(StartWarning::NoAppendOnlyFile);
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::target::{PasswordSource, Target, TlsFiles};

    fn check_info(info: &[(&str, &str)], key: &str) -> Result<(), StartError> {
        let target = Target::parse("redis://h", PasswordSource::Url, TlsFiles::default()).unwrap();
        let info = info.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Server(info.collect()).check(&Connector::new(target, "t"), Some(key), true)
    }

    #[test]
    fn versions() {
        for old in ["6.2.14", "2.8.0", "", "x"] {
            let error = check_info(&[("redis_version", old)], "orders").unwrap_err();
            assert!(matches!(error, StartError::TooOld { .. }), "{old}");
        }
        for good in ["7.0.15", "7.2.4", "8.2.3", "10.0.0"] {
            check_info(&[("redis_version", good)], "orders").unwrap();
        }
    }

    #[test]
    fn broken_tags_matter_on_a_cluster_only() {
        let version = ("redis_version", "7.0.0");
        check_info(&[version], "{}a").unwrap();
        let cluster = ("cluster_enabled", "1");
        check_info(&[version, cluster], "orders").unwrap();
        let error = check_info(&[version, cluster], "{}a").unwrap_err();
        assert!(matches!(error, StartError::BrokenTag { .. }));
    }
}
