//! The message, and its payload.

use std::any::type_name;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;

use crate::__private::Incoming;
use crate::{Drop, Error};

/// One message, as one attempt receives it.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The same for every attempt at this message, also after requeues and replays.
    pub id: String,
    /// The queue of the message: the key of a stream or a list, or the name of a channel.
    pub queue: String,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The headers: names in lower case. Of several headers with one name, the last.
    pub headers: BTreeMap<String, String>,
    /// The number of this start, counted from 1.
    pub attempt: u32,
    /// The number of starts after which the message is given up; 0 = never.
    pub max_attempts: u32,
    /// The time when the message was published, if it is known.
    pub enqueued: Option<SystemTime>,
}

impl From<Incoming> for Message {
    fn from(message: Incoming) -> Self {
        let enqueued = Duration::from_millis(message.enqueued_ms);
        Self {
            id: message.id,
            queue: message.queue,
            body: message.body,
            headers: message.headers.into_iter().collect(),
            attempt: message.attempt,
            max_attempts: message.max_attempts,
            enqueued: (!enqueued.is_zero()).then(|| SystemTime::UNIX_EPOCH + enqueued),
        }
    }
}

/// The payload: the body, read as JSON. A body that is not such JSON is dropped.
pub fn read<T: DeserializeOwned>(message: &Message) -> Result<T, Error> {
    serde_json::from_slice(&message.body).map_err(|error| {
        let name = type_name::<T>().rsplit("::").next().unwrap_or_default();
        Drop(format!("the body is no {name}: {error}")).into()
    })
}
