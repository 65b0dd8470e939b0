//! One logical queue in several parts: `orders` in 16 parts is `{orders:0}` to `{orders:15}`. Each part is a queue
//! of its own, in a slot of its own.
//!
//! A producer chooses the part by a key of the message: the CRC-32 of the key (IEEE 802.3, the one of zlib and
//! PNG, which every language has) modulo the number of parts.

use std::num::NonZeroU32;

/// The key of a part.
pub fn part(queue: &str, number: u32) -> String {
    format!("{{{queue}:{number}}}")
}

/// The number of the part for messages with this key.
pub fn part_of(key: &[u8], parts: NonZeroU32) -> u32 {
    crc32fast::hash(key) % parts
}

/// Whether a queue of this name can have parts: its name goes between braces.
pub fn can_have_parts(queue: &str) -> bool {
    !(queue.is_empty() || queue.contains(['{', '}']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::keys;

    #[test]
    fn the_part_of_a_key_is_its_crc_32_modulo_the_parts() {
        // The check value of CRC-32: `zlib.crc32(b"123456789")` of Python.
        let parts = |n| NonZeroU32::new(n).unwrap();
        assert_eq!(part_of(b"123456789", parts(u32::MAX)), 0xcbf4_3926);
        assert_eq!(part_of(b"customer-7", parts(1)), 0);
        let mut filled = [0; 16];
        for customer in 0..16_000 {
            let key = format!("customer-{customer}");
            filled[part_of(key.as_bytes(), parts(16)) as usize] += 1;
        }
        assert!(filled.iter().all(|n| (800..1200).contains(n)), "{filled:?}");
    }

    #[test]
    fn each_part_has_a_slot_that_its_other_keys_share() {
        assert_eq!(part("orders", 3), "{orders:3}");
        let slots: std::collections::BTreeSet<u16> =
            (0..16).map(|n| keys::slot(&part("orders", n))).collect();
        assert_eq!(slots.len(), 16);
        let delayed = keys::delayed(&part("orders", 3));
        assert_eq!(keys::slot(&delayed), keys::slot("{orders:3}"));
        assert!(can_have_parts("orders:eu") && !can_have_parts("{orders}") && !can_have_parts(""));
    }
}
