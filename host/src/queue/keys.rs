//! Names of keys that belong to a queue. Where hash slots matter, they share the queue key's slot.

/// `{orders}` for `orders`; a key that already holds a hash tag stays as it is.
fn tagged(key: &str) -> String {
    if hash_tag(key).is_some() {
        key.to_owned()
    } else {
        format!("{{{key}}}")
    }
}

/// The sorted set of a group's parked deliveries.
pub fn parked(key: &str, group: &str) -> String {
    format!("{}:parked:{group}", tagged(key))
}

/// Whether derived keys can share this key's slot: not where its hash tag is empty or broken
/// (`{}a`, `a}b`). Without a cluster all keys count as one slot.
pub fn can_share_slot(key: &str) -> bool {
    hash_tag(key).is_some() || !key.contains(['{', '}'])
}

/// The part of a key that Redis hashes, if it is not the whole key.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The hash slot of a key in a cluster.
pub fn slot(key: &str) -> u16 {
    let mut crc: u16 = 0;
    for byte in hash_tag(key).unwrap_or(key).bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    crc % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_share_the_slot() {
        assert_eq!(parked("orders", "g"), "{orders}:parked:g");
        assert_eq!(parked("a{b}c", "g"), "a{b}c:parked:g");
        for key in ["orders", "a{b}c", "{x}", "a:b"] {
            assert!(can_share_slot(key));
            assert_eq!(slot(key), slot(&parked(key, "g{1}")), "{key}");
        }
        for key in ["{}a", "a}b", "a{b"] {
            assert!(!can_share_slot(key), "{key}");
        }
        // As `CLUSTER KEYSLOT` answers.
        assert_eq!(slot("123456789"), 12739);
        assert_eq!(slot("foo{bar}baz"), slot("bar"));
    }
}
