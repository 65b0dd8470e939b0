//! The ids of stream entries: `<epoch milliseconds>-<sequence>`.

use std::io::Write;

use crate::delivery::message::DeliveryId;

/// The greatest id there is. Redis refuses an interval that begins behind it.
pub const GREATEST: DeliveryId = DeliveryId(u128::MAX);

/// Parse an entry's id. Returns the id and its epoch milliseconds.
pub fn parse_entry_id(entry: &str) -> Option<(DeliveryId, u64)> {
    // Each claim has one: a search for a byte is cheaper than `split_once`.
    let between = entry.bytes().position(|byte| byte == b'-')?;
    let ms: u64 = entry[..between].parse().ok()?;
    let seq: u64 = entry[between + 1..].parse().ok()?;
    Some((DeliveryId(u128::from(ms) << 64 | u128::from(seq)), ms))
}

/// An id as Redis writes it, without memory of its own on the heap.
#[derive(Clone, Copy, Debug)]
pub struct EntryId {
    text: [u8; ENTRY_ID_MAX],
    length: usize,
}

/// Two numbers of 64 bits, and what is between them.
const ENTRY_ID_MAX: usize = 41;

impl EntryId {
    /// The text of this id.
    pub fn new(id: DeliveryId) -> Self {
        let seq = id.0 & u128::from(u64::MAX);
        let mut text = [0; ENTRY_ID_MAX];
        let mut rest = &mut text[..];
        // It fits.
        let _is_whole = write!(rest, "{}-{seq}", id.0 >> 64).is_ok();
        let length = ENTRY_ID_MAX - rest.len();
        Self { text, length }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

/// Format an id as Redis does.
pub fn entry_id(id: DeliveryId) -> String {
    let id = EntryId::new(id);
    String::from_utf8_lossy(id.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_ids_keep_all_their_bits() {
        for text in [
            "0-0",
            "1700000000000-5",
            "18446744073709551615-18446744073709551615",
        ] {
            let (id, _) = parse_entry_id(text).unwrap();
            assert_eq!(entry_id(id), text);
        }
        assert!(parse_entry_id("1-0").unwrap().0 < parse_entry_id("2-0").unwrap().0);
        assert!(
            parse_entry_id("1-18446744073709551615").unwrap().0 < parse_entry_id("2-0").unwrap().0
        );
        for text in ["", "-", "1", "1-", "-1", "a-b", "18446744073709551616-0"] {
            assert_eq!(parse_entry_id(text), None, "{text}");
        }
    }
}
