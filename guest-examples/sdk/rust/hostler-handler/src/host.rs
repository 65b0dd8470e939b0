//! What a handler asks the host for.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::hostler::handler::{flow, journal, publisher, reply, secrets};
use crate::bindings::wasi::config::store;
use crate::{Error, RetryAfter};

/// Publish a message to a queue that `[grant.publish]` names: the value as JSON. This happens together with the
/// ack: both happen, or neither.
///
/// # Errors
/// The value is no JSON, or the host refuses the message.
#[track_caller]
pub fn publish(queue: &str, value: &impl Serialize) -> Result<(), Error> {
    Publication::json(value)?.publish(queue)
}

/// A message to publish that has more than a JSON body.
#[derive(Clone, Debug, Default)]
pub struct Publication {
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// Deliver the message after this time.
    pub delay: Option<Duration>,
}

impl Publication {
    /// This value as JSON.
    ///
    /// # Errors
    /// The value is no JSON.
    #[track_caller]
    pub fn json(value: &impl Serialize) -> Result<Self, Error> {
        Ok(Self {
            body: serde_json::to_vec(value)?,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            delay: None,
        })
    }

    /// Publish it together with the ack: both happen, or neither.
    ///
    /// # Errors
    /// The host refuses the message.
    #[track_caller]
    pub fn publish(self, queue: &str) -> Result<(), Error> {
        let message = publisher::Outgoing {
            body: self.body,
            headers: self.headers,
            delay_ms: self.delay.map(millis),
        };
        Ok(publisher::publish(queue, &message)?)
    }
}

/// Read a secret that `[grant.secret]` exposes. It can change while the handler runs.
///
/// # Errors
/// The host refuses it.
#[track_caller]
pub fn secret(name: &str) -> Result<String, Error> {
    Ok(secrets::get(name)?)
}

/// Read a value of `[grant.config]`.
pub fn config(name: &str) -> Option<String> {
    store::get(name).ok().flatten()
}

/// The value that an attempt at this message has remembered last under this name, from JSON. Needs `[grant.journal]`.
///
/// # Errors
/// The host refuses it, or the value is no such JSON.
#[track_caller]
pub fn recall<T: DeserializeOwned>(name: &str) -> Result<Option<T>, Error> {
    match journal::recall(name)? {
        Some(value) => Ok(Some(serde_json::from_slice(&value)?)),
        None => Ok(None),
    }
}

/// Remember a value, as JSON, for later attempts at this message. It is there when this returns, whatever becomes of this
/// attempt. Needs `[grant.journal]`.
///
/// # Errors
/// The value is no JSON, or the host refuses it.
#[track_caller]
pub fn remember(name: &str, value: &impl Serialize) -> Result<(), Error> {
    Ok(journal::remember(name, &serde_json::to_vec(value)?)?)
}

/// The error to return for a message that waits: it comes again after this time, and the attempt is not charged. If the host does
/// not hold it, this is an ordinary error that says why.
#[track_caller]
pub fn hold(after: Duration) -> Error {
    match flow::hold(millis(after)) {
        Ok(()) => RetryAfter(after).into(),
        Err(why) => why.into(),
    }
}

/// Answer to a producer that waits: the value as JSON. This happens together with the ack: both happen, or neither. The last
/// answer counts.
///
/// # Errors
/// The value is no JSON, or the host refuses it: it may have 64 KiB.
#[track_caller]
pub fn reply(value: &impl Serialize) -> Result<(), Error> {
    Ok(reply::set(&serde_json::to_vec(value)?)?)
}

/// Values between messages, below the prefix of `[grant.key-value]`.
pub mod key_value {
    use std::time::Duration;

    use crate::Error;
    use crate::bindings::hostler::handler::key_value as host;

    /// Read a value. It sees what this attempt has set and deleted.
    ///
    /// # Errors
    /// The host refuses it.
    #[track_caller]
    pub fn get(key: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(host::get(key)?)
    }

    /// Set a value. This happens together with the ack: both happen, or neither.
    ///
    /// # Errors
    /// The host refuses it.
    #[track_caller]
    pub fn set(key: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
        Ok(host::set(key, value.as_ref(), None)?)
    }

    /// Set a value that expires this time after the ack.
    ///
    /// # Errors
    /// The host refuses it.
    #[track_caller]
    pub fn set_for(key: &str, value: impl AsRef<[u8]>, ttl: Duration) -> Result<(), Error> {
        Ok(host::set(key, value.as_ref(), Some(super::millis(ttl)))?)
    }

    /// Delete a value. This happens together with the ack: both happen, or neither.
    ///
    /// # Errors
    /// The host refuses it.
    #[track_caller]
    pub fn delete(key: &str) -> Result<(), Error> {
        Ok(host::delete(key)?)
    }

    /// Add to a number, and return the sum. This happens at once: a message that is handled twice adds twice.
    ///
    /// # Errors
    /// The host refuses it.
    #[track_caller]
    pub fn increment(key: &str, delta: i64) -> Result<i64, Error> {
        Ok(host::increment(key, delta)?)
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
