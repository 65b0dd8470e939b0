//! What reading an entry or a value yields, whatever it looked like in Redis.

use std::sync::Arc;

use bytes::Bytes;

use crate::delivery::message::{Headers, MESSAGE_ID, Message, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use crate::delivery::policy::Reason;

/// The longest `x-message-id` that stands for a message, in bytes; a longer one is ignored.
pub const MESSAGE_ID_MAX: usize = 1024;

/// What an entry or a value holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decoded {
    /// The message; with an empty body if it is defective.
    pub message: Message,
    /// Starts charged before it was written to this queue ([`Headers::retry_count`]).
    pub header: u32,
    /// Why no handler may see it.
    pub defect: Option<Malformed>,
}

/// Why something is no message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Malformed {
    /// The reason it is dead-lettered for.
    pub reason: Reason,
    /// Text for people, bounded, without values.
    pub detail: String,
}

impl Malformed {
    pub(super) fn new(detail: impl Into<String>) -> Self {
        Self {
            reason: Reason::Malformed,
            detail: detail.into(),
        }
    }
}

impl Decoded {
    /// A message of these parts. Headers that only the host may set on a delivery
    /// (`redis-delivery-count`, `redis-idle-ms`) are not taken from the wire.
    pub(super) fn new(
        queue: &Arc<str>,
        fallback_id: &str,
        enqueued_ms: u64,
        mut headers: Headers,
        body: Result<Bytes, Malformed>,
    ) -> Self {
        headers.remove(REDIS_DELIVERY_COUNT);
        headers.remove(REDIS_IDLE_MS);
        let (body, defect) = match body {
            Ok(body) => (body, None),
            Err(defect) => (Bytes::new(), Some(defect)),
        };
        Self {
            header: headers.retry_count(),
            message: Message {
                id: message_id(&headers).unwrap_or(fallback_id).into(),
                queue: Arc::clone(queue),
                body,
                headers,
                enqueued_ms,
            },
            defect,
        }
    }
}

/// The `x-message-id` that stands for a message: text, neither empty nor longer than
/// [`MESSAGE_ID_MAX`].
pub fn message_id(headers: &Headers) -> Option<&str> {
    headers
        .find_str(MESSAGE_ID)
        .filter(|id| !id.is_empty() && id.len() <= MESSAGE_ID_MAX)
}
