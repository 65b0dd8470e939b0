//! The result of reading an entry or a value. Reading gives a result for any bytes in Redis.

use std::sync::Arc;

use bytes::Bytes;

use crate::delivery::message::{Headers, MESSAGE_ID, Message, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use crate::delivery::policy::Reason;

/// The longest `x-message-id`, in bytes. A longer one is ignored.
pub const MESSAGE_ID_MAX: usize = 1024;

/// The content of an entry or a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decoded {
    /// The message. If it is defective, its body is empty.
    pub message: Message,
    /// The starts charged before the message was written to this queue ([`Headers::retry_count`]).
    pub header: u32,
    /// Why no handler may see the message.
    pub defect: Option<Malformed>,
}

/// Why an entry or a value is not a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Malformed {
    /// The reason for its dead letter.
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
    /// A message with these parts. The headers `redis-delivery-count` and `redis-idle-ms` are
    /// removed: only the host may set them on a delivery.
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

/// The `x-message-id` of a message, if it is valid: text, not empty, and at most
/// [`MESSAGE_ID_MAX`] bytes long.
pub fn message_id(headers: &Headers) -> Option<&str> {
    headers
        .find_str(MESSAGE_ID)
        .filter(|id| !id.is_empty() && id.len() <= MESSAGE_ID_MAX)
}
