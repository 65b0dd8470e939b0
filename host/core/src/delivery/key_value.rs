//! Key-value: what an attempt writes to keys, which happens with its acknowledgement, and which values it
//! has read, as far as they must not have changed by then.
//!
//! [`Effects`](super::effect::Effects) holds it, within its bounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// The longest key that a handler may name, in bytes. The prefix comes in addition.
pub const KEY_MAX: usize = 1024;
/// The longest time to live of a value: 100 years.
pub const TTL_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// The keys that the operator granted, and how they are used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyRules {
    /// Every key begins with this.
    pub prefix: Arc<str>,
    /// The most bytes of a value.
    pub value_max: usize,
    /// Whether an attempt whose keys have changed since it read them runs again.
    pub checked: bool,
    /// Whether each `increment` is recorded: it happens once for a message.
    pub journal: bool,
}

impl KeyRules {
    /// Keys that no handler uses: where a component is only loaded.
    pub fn none() -> Self {
        Self {
            prefix: Arc::from(""),
            value_max: 0,
            checked: false,
            journal: false,
        }
    }

    /// The key in Redis of a handler's key.
    ///
    /// # Errors
    /// The key is empty or too long: a text for the guest.
    pub fn full(&self, key: &str) -> Result<String, String> {
        match key.len() {
            0 => Err("the key is empty".to_owned()),
            1..=KEY_MAX => Ok(format!("{}{key}", self.prefix)),
            _ => Err(format!("the key is longer than {KEY_MAX} bytes")),
        }
    }

    /// # Errors
    /// The value is too large: a text for the guest.
    pub fn check_value(&self, value: &[u8]) -> Result<(), String> {
        match value.len() <= self.value_max {
            true => Ok(()),
            false => Err(too_large(self.value_max)),
        }
    }
}

/// The error of a value that is too large, for the guest.
pub fn too_large(most: usize) -> String {
    format!("the value has more than {most} bytes")
}

/// What an attempt writes to a key: its last word about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    /// The value; `None` = it is deleted.
    pub value: Option<Bytes>,
    /// When it expires, from the acknowledgement.
    pub ttl: Option<Duration>,
}

/// The value that an attempt has read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seen {
    /// Its length and its SHA-1 digest in hexadecimal digits; `None` = the key had no value.
    pub value: Option<(usize, String)>,
}

/// What an attempt has written and read, by the keys in Redis.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Keys {
    pub(super) written: BTreeMap<String, Written>,
    pub(super) seen: BTreeMap<String, Seen>,
}

impl Written {
    /// A value.
    ///
    /// # Errors
    /// The time to live is out of bounds: a text for the guest.
    pub fn value(value: Bytes, ttl: Option<Duration>) -> Result<Self, String> {
        match ttl {
            Some(Duration::ZERO) => Err("the time to live is 0".to_owned()),
            Some(ttl) if ttl > TTL_MAX => {
                Err("the time to live is longer than 100 years".to_owned())
            }
            ttl => Ok(Self {
                value: Some(value),
                ttl,
            }),
        }
    }

    /// No value.
    pub fn nothing() -> Self {
        Self {
            value: None,
            ttl: None,
        }
    }

    pub(super) fn bytes(&self, key: &str) -> usize {
        key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

impl Seen {
    /// The script that acknowledges reads the value again: so its length counts, too.
    pub(super) fn bytes(&self, key: &str) -> usize {
        const DIGEST: usize = 40;
        key.len() + DIGEST + self.value.as_ref().map_or(0, |(length, _)| *length)
    }
}
