//! A message: body, headers, id.

use std::num::IntErrorKind;
use std::sync::Arc;

use bytes::Bytes;

use crate::delivery::declared::headers;

/// Identifies a delivery on its queue: a stream's entry id (`ms << 64 | seq`), a list's 16-byte
/// token, or a number that this host gave to it.
///
/// Only `queue` looks inside. Ids of stream entries are ordered as in the stream.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeliveryId(pub u128);

headers! {
    /// The id of the message, the same for every attempt, requeue and replay. Text of 1 to 1,024 bytes.
    /// Without it, the id of the entry or a new one.
    MESSAGE_ID = "x-message-id";
    /// When the message expires, in epoch milliseconds. A message that has not started by then is
    /// dead-lettered as `expired`, without a run. A time before September 2001 is no such time (it may be in
    /// seconds), nor is text that is not a number: the message is `malformed`.
    EXPIRES_AT = "x-expires-at";
    /// W3C trace context, passed on.
    TRACEPARENT = "traceparent";
    /// W3C trace context of a vendor, passed on.
    TRACESTATE = "tracestate";
    /// Starts that were charged to the message before it came to this queue. They count against
    /// `max_deliveries`. Producers leave it out.
    RETRY_COUNT = "x-retry-count";
    /// The same header, as the ruststream family writes it.
    RUSTSTREAM_RETRY_COUNT = "x-ruststream-retry-count";
}

/// The least number that can be a time in epoch milliseconds: in September 2001. A smaller number is in
/// seconds, or is not a time.
pub const TIME_MIN_MS: u64 = 1_000_000_000_000;

/// On reclaimed deliveries: how often Redis has handed the message out.
pub const REDIS_DELIVERY_COUNT: &str = "redis-delivery-count";
/// On reclaimed deliveries: how long its lease had not been renewed, in milliseconds.
pub const REDIS_IDLE_MS: &str = "redis-idle-ms";

/// Headers in wire order. Bytes, case and repeats are kept, because copies must be faithful.
///
/// Look-ups ignore ASCII case. The first of a repeated name wins.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headers(Vec<(Bytes, Bytes)>);

impl Headers {
    /// Headers in this order.
    pub fn new(headers: Vec<(Bytes, Bytes)>) -> Self {
        Self(headers)
    }

    /// Append one.
    pub fn push(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// Remove every header of this name (ASCII case ignored).
    pub fn remove(&mut self, name: &str) {
        self.0
            .retain(|(n, _)| !n.eq_ignore_ascii_case(name.as_bytes()));
    }

    /// Replace every header of this name by one, at the end.
    pub fn set(&mut self, name: &str, value: impl Into<Bytes>) {
        self.remove(name);
        self.push(Bytes::copy_from_slice(name.as_bytes()), value);
    }

    /// The first value of this name (ASCII case ignored).
    pub fn find(&self, name: &str) -> Option<&Bytes> {
        self.0
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The first value of this name, if it is UTF-8.
    pub fn find_str(&self, name: &str) -> Option<&str> {
        self.find(name).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// The first value of this name, if it is a decimal number. A number that does not fit counts as the
    /// largest: a count that is out of all measure must not read as none.
    pub fn find_number(&self, name: &str) -> Option<u64> {
        match self.find_str(name)?.trim().parse::<u64>() {
            Ok(number) => Some(number),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(u64::MAX),
            Err(_) => None,
        }
    }

    /// All of them, in wire order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(Bytes, Bytes)> {
        self.0.iter()
    }

    /// How many there are, repeats included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The starts already charged before this delivery: the larger of the two retry counts.
    /// A value that is not a number counts as 0; a value that does not fit counts as the largest.
    pub fn retry_count(&self) -> u32 {
        let count = |name| {
            self.find_number(name)
                .map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
        };
        count(RETRY_COUNT).max(count(RUSTSTREAM_RETRY_COUNT))
    }
}

/// A message: body, headers, id. Cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Its `x-message-id` header, or the id of its entry. The same for every attempt.
    pub id: Arc<str>,
    /// The queue it came from (a key, or a channel's name).
    pub queue: Arc<str>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// The headers as the guest sees them, including those that the host adds.
    pub headers: Headers,
    /// When it was enqueued, in epoch milliseconds; 0 = unknown.
    pub enqueued_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_fit_counts_as_the_largest() {
        for (text, number) in [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
            ("99999999999999999999999999", Some(u64::MAX)),
            ("", None),
            ("-1", None),
            ("-99999999999999999999999999", None),
            ("1e3", None),
        ] {
            let headers = Headers::new(vec![(RETRY_COUNT.into(), text.into())]);
            assert_eq!(headers.find_number(RETRY_COUNT), number, "{text}");
            let count = number.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
            assert_eq!(headers.retry_count(), count, "{text}");
        }
    }
}
