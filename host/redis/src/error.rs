//! Errors of Redis and of the connection to it.

use std::time::Duration;

use hostler_core::delivery::text::truncate_utf8;

/// A whole operation failed; its effect is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection, or it broke, or a reply could not be read.
    #[error("redis at {target}: {detail}")]
    Connection {
        /// Host and port or socket path: never credentials.
        target: String,
        /// The failure.
        detail: String,
    },
    /// No answer within the deadline of the command.
    #[error("redis at {target} did not answer {command} within {}", humantime::format_duration(*.after))]
    Deadline {
        /// Host and port or socket path.
        target: String,
        /// The command.
        command: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// Redis answered with an error about its state, which may pass
    /// (`LOADING`, `READONLY`, `MASTERDOWN`, `OOM`, `BUSY`, ...).
    #[error("redis refused {command}: {code} {detail}")]
    Unavailable {
        /// The command.
        command: &'static str,
        /// The error code: a bounded word.
        code: String,
        /// The text of Redis, bounded.
        detail: String,
    },
    /// The stream or its group is gone.
    #[error("the stream `{key}` or its group `{group}` does not exist (anymore)")]
    Missing {
        /// The stream.
        key: String,
        /// The group.
        group: String,
    },
    /// A missing right, a key of the wrong type, an option Redis does not know: an operator must change
    /// something.
    #[error("redis refused {command}: {code} {detail}")]
    Configuration {
        /// The command.
        command: &'static str,
        /// The error code: a bounded word.
        code: String,
        /// The text of Redis, bounded.
        detail: String,
    },
    /// A file that a connection needs cannot be read.
    #[error("{what} {path}: {detail}")]
    File {
        /// Its purpose.
        what: &'static str,
        /// Its path.
        path: String,
        /// The fault.
        detail: String,
    },
    /// A reply of a wrong shape.
    #[error("redis answered {command} in an unknown shape: {detail}")]
    Reply {
        /// The command.
        command: &'static str,
        /// The fault.
        detail: String,
    },
}

/// The remedy for an [`Error`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// The connection is gone: connect again, then ask again.
    Reconnect,
    /// The state of Redis may change: ask again after a while.
    Retry,
    /// The stream or group is gone: `Queue::repair` of the host.
    Missing,
    /// An operator must change something: log that, and ask again, slowly.
    Configuration,
}

impl Error {
    /// The remedy.
    pub fn class(&self) -> Class {
        match self {
            Self::Connection { .. } | Self::Deadline { .. } => Class::Reconnect,
            Self::Unavailable { .. } => Class::Retry,
            Self::Missing { .. } => Class::Missing,
            Self::Configuration { .. } | Self::File { .. } | Self::Reply { .. } => {
                Class::Configuration
            }
        }
    }

    /// The error code of Redis, or our own word for other errors: for metrics.
    pub fn code(&self) -> &str {
        match self {
            Self::Connection { .. } => "connection",
            Self::Deadline { .. } => "deadline",
            Self::Missing { .. } => "NOGROUP",
            Self::Unavailable { code, .. } | Self::Configuration { code, .. } => code,
            Self::File { .. } => "file",
            Self::Reply { .. } => "reply",
        }
    }

    /// Redis answered with this error. `NOGROUP` becomes [`Error::Missing`] where the stream is
    /// known: see [`Error::about`].
    pub fn refused(command: &'static str, code: &str, detail: &str) -> Self {
        let code = bounded_to(code, CODE_MAX);
        // Redis repeats the arguments of a command that it does not know: they may be anything.
        let detail = detail
            .split(", with args beginning")
            .next()
            .unwrap_or_default();
        let detail = match code.as_str() {
            // `MOVED 3999 127.0.0.1:6381`: a slot and a node. This was followed, in vain.
            MOVED | ASK => {
                let node = detail.split_once(' ').map_or(detail, |(_, node)| node);
                let node = bounded_to(node, NODE_MAX);
                format!(
                    "the nodes of the cluster do not agree on who has the key; the last one named {node}"
                )
            }
            _ => bounded(detail),
        };
        // Redis 7.0 answers `ERR` if a script lacks a right.
        let forbidden = code == "ERR" && detail.starts_with("The user executing the script can't");
        let code = if forbidden { "NOPERM".to_owned() } else { code };
        let may_pass = UNAVAILABLE.contains(&code.as_str())
            || code == "ERR" && detail.contains("max number of clients");
        match may_pass {
            true => Self::Unavailable {
                command,
                code,
                detail,
            },
            false => Self::Configuration {
                command,
                code,
                detail,
            },
        }
    }

    /// The same error; `Missing` if it says that this stream or group is missing.
    pub fn about(self, key: &str, group: &str) -> Self {
        let missing = match &self {
            Self::Configuration { code, detail, .. } => {
                code == "NOGROUP"
                    || (code == "ERR"
                        && (detail.starts_with("no such key")
                            || detail.contains("requires the key to exist")))
            }
            _ => self.says_stream_is_gone(),
        };
        if missing {
            return Self::Missing {
                key: key.to_owned(),
                group: group.to_owned(),
            };
        }
        self
    }

    /// Whether a blocked read ended because its stream was deleted.
    pub fn says_stream_is_gone(&self) -> bool {
        match self {
            Self::Unavailable { code, detail, .. } => {
                code == "UNBLOCKED" && detail.contains("no longer exists")
            }
            _ => false,
        }
    }

    /// The same error; if it is about a key of the wrong type, it names the keys that it may be about.
    pub fn among(mut self, keys: &[&str]) -> Self {
        if let Self::Configuration { code, detail, .. } = &mut self
            && code == "WRONGTYPE"
        {
            // Redis names its script behind this.
            let text = detail.split(" script: ").next().unwrap_or_default();
            *detail = bounded(&format!("{text} (`{}`)", keys.join("`, `")));
        }
        self
    }

    /// Whether Redis refused this command, for a right or for the type of a key: it may take others.
    pub fn is_about_this_command(&self) -> bool {
        match self {
            Self::Configuration { command, code, .. } => {
                !matches!(*command, "AUTH" | "SELECT" | "CONNECT") && code != "NOAUTH"
            }
            _ => false,
        }
    }

    /// Whether the user lacks a right.
    pub fn is_missing_right(&self) -> bool {
        matches!(self, Self::Configuration { code, .. } if code == "NOPERM")
    }

    /// Whether the server may not be the one that serves any more: ask who does.
    pub(crate) fn says_who_serves_changed(&self) -> bool {
        match self {
            // The primary answered, and no replica did.
            Self::Deadline { command, .. } => *command != "WAIT",
            Self::Connection { .. } => true,
            Self::Unavailable { code, .. } => matches!(
                code.as_str(),
                "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "UNBLOCKED"
            ),
            _ => false,
        }
    }

    /// Whether a new connection may help.
    pub(crate) fn wants_new_connection(&self) -> bool {
        match self {
            // On the same connection, the next `WAIT` is about the same write.
            Self::Deadline { command, .. } => *command != "WAIT",
            Self::Connection { .. } => true,
            // Redis hangs up on a request that it does not take.
            Self::Configuration { detail, .. } if detail.starts_with("Protocol error") => true,
            Self::Unavailable { code, .. } | Self::Configuration { code, .. } => {
                matches!(code.as_str(), "READONLY" | "MASTERDOWN" | "NOAUTH")
            }
            _ => false,
        }
    }
}

/// A node of a cluster did not carry out a command: another one has the key (`MOVED`), or takes it over
/// (`ASK`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Redirection {
    pub(crate) is_ask: bool,
    pub(crate) slot: u16,
    /// `host:port`; the host may be missing.
    pub(crate) node: String,
}

impl Redirection {
    pub(crate) fn of(reply: &redis::Value) -> Option<Self> {
        let redis::Value::ServerError(error) = reply else {
            return None;
        };
        let is_ask = match error.code() {
            MOVED => false,
            ASK => true,
            _ => return None,
        };
        let (slot, node) = error.details()?.split_once(' ')?;
        Some(Self {
            is_ask,
            slot: slot.parse().ok()?,
            node: bounded_to(node, NODE_MAX),
        })
    }
}

/// The codes of errors that may pass by themselves.
pub(super) const UNAVAILABLE: [&str; 15] = [
    MOVED,
    ASK,
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "OOM",
    "BUSY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "UNBLOCKED",
    "MISCONF",
    "NOSCRIPT",
    "NOTREADY",
    "MAXCLIENTS",
];

/// The codes with which a node of a cluster names the node that has the key, or takes it over.
const MOVED: &str = "MOVED";
const ASK: &str = "ASK";
const CODE_MAX: usize = 32;
/// A name of a host and a port.
const NODE_MAX: usize = 261;
const DETAIL_MAX: usize = 200;

/// At most 200 bytes of a foreign text, on one line.
pub(crate) fn bounded(text: &str) -> String {
    bounded_to(text, DETAIL_MAX)
}

/// At most this many bytes of a foreign text, on one line.
pub fn bounded_to(text: &str, max: usize) -> String {
    let mut text: String = text
        .chars()
        .take(max)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    truncate_utf8(&mut text, max);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_the_slot_and_the_node() {
        let text = "-MOVED 3999 127.0.0.1:6381\r\n";
        let moved = redis::parse_redis_value(text.as_bytes()).unwrap();
        let expected = Redirection {
            is_ask: false,
            slot: 3999,
            node: "127.0.0.1:6381".to_owned(),
        };
        assert_eq!(Redirection::of(&moved), Some(expected));
        for (text, is_ask) in [("-ASK 1 :7\r\n", Some(true)), ("-ERR 1 h:7\r\n", None)] {
            let reply = redis::parse_redis_value(text.as_bytes()).unwrap();
            assert_eq!(Redirection::of(&reply).map(|r| r.is_ask), is_ask, "{text}");
        }
    }

    #[test]
    fn a_redirection_that_was_followed_in_vain_may_pass() {
        let moved = Error::refused("XADD", "MOVED", "3999 127.0.0.1:6381");
        assert_eq!(
            moved.to_string(),
            "redis refused XADD: MOVED the nodes of the cluster do not agree on who has the key; \
             the last one named 127.0.0.1:6381"
        );
        assert_eq!(moved.class(), Class::Retry);
        let long = Error::refused("XADD", "MOVED", &"x".repeat(10_000));
        assert!(long.to_string().len() < 3 * DETAIL_MAX);
    }
}
