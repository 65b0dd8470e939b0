//! The idempotency keys of requests: those of the host, and a look at those that handlers write.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

use crate::delivery::effect::message_name;
use crate::delivery::text::hex;
use crate::grants::context::Origin;

/// The longest idempotency key that is readable. Services accept 255 bytes.
const KEY_MAX: usize = 200;
/// The most messages whose keys are remembered, and the most keys of one.
const MESSAGES_MAX: usize = 256;
const KEYS_MAX: usize = 8;

/// Which request of a message it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    /// This one of its attempt, from 1.
    Ordinal(u32),
    /// The one that the guest calls so, since the order of its requests varies.
    Written(&'a [u8]),
    /// The one that the journal calls so.
    Recorded(&'a str),
}

/// The key of a request: the same in every attempt at the message, another for each request of one, and of no
/// other message.
pub(super) fn idempotency_key(group: Option<&str>, origin: &Origin, which: Which<'_>) -> String {
    let mut key = message_name(&origin.queue, group, &origin.message_id).into_bytes();
    match which {
        Which::Written(suffix) => {
            key.extend_from_slice(b"#=");
            // The id ends at the last `#`, whatever is in it.
            key.extend(suffix.iter().flat_map(|byte| match byte {
                b'#' => &b"%23"[..],
                b'%' => b"%25",
                byte => std::slice::from_ref(byte),
            }));
        }
        Which::Ordinal(ordinal) => key.extend_from_slice(format!("#{ordinal}").as_bytes()),
        // The order of calls may change from attempt to attempt.
        Which::Recorded(identity) => {
            let digest = hex(&Sha256::digest(identity));
            key.extend_from_slice(format!("#j{}", &digest[..32]).as_bytes());
        }
    }
    let is_plain = |b: &u8| b.is_ascii_graphic() && *b != b'"' && *b != b'\\';
    match String::from_utf8(key) {
        Ok(key) if key.len() <= KEY_MAX && key.bytes().all(|b| is_plain(&b)) => key,
        Ok(key) => digest(key.as_bytes()),
        Err(error) => digest(error.as_bytes()),
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256-{}", hex(&Sha256::digest(bytes)))
}

/// The keys that handlers have written at the first attempt that this host saw of a message. Vendors' libraries set
/// random ones; such a request is sent twice where an attempt is repeated.
#[derive(Debug, Default)]
pub(super) struct WrittenKeys {
    /// By a hash of the message's id. Above [`MESSAGES_MAX`] all are forgotten: they serve a warning only.
    messages: HashMap<u64, Seen>,
    is_said: bool,
}

/// The keys of one message.
#[derive(Debug)]
struct Seen {
    attempt: u32,
    /// The number of the request, and a hash of its key.
    keys: Vec<(u32, u64)>,
}

impl WrittenKeys {
    /// Whether a later attempt writes another key for the same request than the first one, which is said once.
    pub(super) fn differ(&mut self, origin: &Origin, ordinal: u32, key: &[u8]) -> bool {
        if self.is_said {
            return false;
        }
        let message = xxh3_64(origin.message_id.as_bytes());
        if self.messages.len() >= MESSAGES_MAX && !self.messages.contains_key(&message) {
            self.messages.clear();
        }
        let seen = self.messages.entry(message).or_insert_with(|| Seen {
            attempt: origin.attempt,
            keys: Vec::new(),
        });
        let key = xxh3_64(key);
        if seen.attempt == origin.attempt {
            if seen.keys.len() < KEYS_MAX {
                seen.keys.push((ordinal, key));
            }
            return false;
        }
        let had = |written: &(u32, u64)| written.0 == ordinal;
        // The order of requests may vary: a key that another request had is no new one.
        self.is_said =
            seen.keys.iter().any(had) && seen.keys.iter().all(|(_, known)| *known != key);
        self.is_said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(id: &str) -> Origin {
        Origin {
            message_id: id.into(),
            queue: "orders".into(),
            attempt: 1,
            messages: 1,
            deadline: std::time::Instant::now(),
            traceparent: None,
            tracestate: None,
            handler: "sha256:0".into(),
            journal: None,
            hold: None,
        }
    }

    #[test]
    fn an_idempotency_key_differs_by_request_and_not_by_attempt() {
        let first = idempotency_key(Some("billing"), &origin("1-1"), Which::Ordinal(1));
        assert_eq!(first, "orders/billing/1-1#1");
        let again = Origin {
            attempt: 7,
            ..origin("1-1")
        };
        assert_eq!(
            idempotency_key(Some("billing"), &again, Which::Ordinal(1)),
            first
        );
        let second = idempotency_key(Some("billing"), &origin("1-1"), Which::Ordinal(2));
        let other = idempotency_key(Some("other"), &origin("1-1"), Which::Ordinal(1));
        let named = idempotency_key(Some("billing"), &origin("1-1"), Which::Written(b"1"));
        let recorded = idempotency_key(Some("billing"), &origin("1-1"), Which::Recorded("1"));
        let keys = [&first, &second, &other, &named, &recorded];
        let unique: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(unique.len(), keys.len(), "{keys:?}");
        // An id that a producer has chosen cannot break out of the header.
        for id in ["a\r\nx: y", "\u{e9}", "a\"b", &"x".repeat(300)] {
            let key = idempotency_key(None, &origin(id), Which::Ordinal(1));
            assert!(key.starts_with("sha256-") && key.len() == 71, "{key}");
        }
    }

    #[test]
    fn no_message_can_send_the_idempotency_key_of_another_one() {
        let mut keys = std::collections::BTreeMap::new();
        let (queues, groups) = (["q", "q/a", "q%2Fa"], ["a", "a/b", "a%2Fb", "b"]);
        let ids = [
            "1", "1#=x", "1#1", "1#=x#1", "1#", "1#=", "b/1", "a/b/1", "1%23=x",
        ];
        let suffixes = ["x", "1", "", "#1", "x#1", "x%231", "%", "=", "x#=x"];
        for (queue, group) in queues.iter().flat_map(|q| groups.map(|g| (q, g))) {
            for id in ids {
                let origin = Origin {
                    queue: (*queue).into(),
                    ..origin(id)
                };
                let numbered =
                    (1..3).map(|n| idempotency_key(Some(group), &origin, Which::Ordinal(n)));
                let named = suffixes
                    .map(|s| idempotency_key(Some(group), &origin, Which::Written(s.as_bytes())));
                for key in numbered.chain(named) {
                    let other = keys.insert(key.clone(), (queue, group, id));
                    assert_eq!(other, None, "{key} of {queue} {group} {id}");
                }
            }
        }
        // A guest may name two of its own requests alike, and nothing else changes.
        let key = |suffix: &[u8]| {
            idempotency_key(Some("g"), &origin("orders/g/1-1#2"), Which::Written(suffix))
        };
        assert_eq!(key(b"charge-7"), "orders/g/orders/g/1-1#2#=charge-7");
    }

    #[test]
    fn a_key_that_changes_from_attempt_to_attempt_is_seen_once() {
        let attempt = |attempt, id: &str| Origin {
            attempt,
            ..origin(id)
        };
        let mut keys = WrittenKeys::default();
        assert!(!keys.differ(&attempt(1, "1-1"), 1, b"charge"));
        assert!(!keys.differ(&attempt(1, "1-1"), 2, b"mail"));
        // The same names in another order, and a request that the first attempt did not reach.
        assert!(!keys.differ(&attempt(2, "1-1"), 1, b"mail"));
        assert!(!keys.differ(&attempt(2, "1-1"), 2, b"charge"));
        assert!(!keys.differ(&attempt(2, "1-1"), 3, b"invoice"));
        // Another message has its own keys.
        assert!(!keys.differ(&attempt(2, "1-2"), 1, b"random-1"));
        assert!(!keys.differ(&attempt(2, "1-2"), 1, b"random-1"));
        assert!(keys.differ(&attempt(3, "1-2"), 1, b"random-2"));
        assert!(
            !keys.differ(&attempt(4, "1-2"), 1, b"random-3"),
            "it is said once"
        );
    }

    #[test]
    fn the_written_keys_of_many_messages_take_bounded_memory() {
        let mut keys = WrittenKeys::default();
        for n in 0..10 * MESSAGES_MAX {
            let origin = origin(&n.to_string());
            for ordinal in 1..100 {
                assert!(!keys.differ(&origin, ordinal, &ordinal.to_le_bytes()));
            }
        }
        assert!(keys.messages.len() <= MESSAGES_MAX);
        assert!(
            keys.messages
                .values()
                .all(|seen| seen.keys.len() <= KEYS_MAX)
        );
    }
}
