//! Entries of a stream as a script packs them: MessagePack, several entries in one string. Redis writes one
//! string instead of many, the client reads one, and the parts of all entries share its memory.

use bytes::Bytes;

use crate::redis::error::Error;
use crate::redis::reply::invalid;

/// An entry: its id, and its fields.
pub(crate) type Entry = (Bytes, Vec<(Bytes, Bytes)>);

/// The entries that are packed here.
pub(crate) fn entries(command: &'static str, packed: &Bytes) -> Result<Vec<Entry>, Error> {
    let mut unpack = Unpack { packed, at: 0 };
    let entries = unpack.entries();
    entries.ok_or_else(|| invalid(command, "entries that are not packed as expected"))
}

struct Unpack<'a> {
    packed: &'a Bytes,
    at: usize,
}

impl Unpack<'_> {
    fn entries(&mut self) -> Option<Vec<Entry>> {
        let count = self.array()?;
        let mut entries = Vec::with_capacity(self.at_most(count));
        for _ in 0..count {
            entries.push(self.entry()?);
        }
        (self.at == self.packed.len()).then_some(entries)
    }

    fn entry(&mut self) -> Option<Entry> {
        if self.array()? != 2 {
            return None;
        }
        let id = self.string()?;
        let parts = self.array()?;
        if !parts.is_multiple_of(2) {
            return None;
        }
        let mut fields = Vec::with_capacity(self.at_most(parts) / 2);
        for _ in 0..parts / 2 {
            fields.push((self.string()?, self.string()?));
        }
        Some((id, fields))
    }

    /// So many values need a byte each: a count that cannot be true takes no memory.
    fn at_most(&self, count: usize) -> usize {
        count.min(self.packed.len() - self.at)
    }

    fn array(&mut self) -> Option<usize> {
        match self.number(1)? {
            short @ 0x90..=0x9f => Some(short & 0xf),
            0xdc => self.number(2),
            0xdd => self.number(4),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Bytes> {
        let length = match self.number(1)? {
            short @ 0xa0..=0xbf => short & 0x1f,
            0xd9 => self.number(1)?,
            0xda => self.number(2)?,
            0xdb => self.number(4)?,
            _ => return None,
        };
        let end = self.at.checked_add(length)?;
        if end > self.packed.len() {
            return None;
        }
        let string = self.packed.slice(self.at..end);
        self.at = end;
        Some(string)
    }

    /// A number of this many bytes.
    fn number(&mut self, length: usize) -> Option<usize> {
        let bytes = self.packed.get(self.at..self.at + length)?;
        self.at += length;
        let number = bytes
            .iter()
            .fold(0, |number, byte| number << 8 | usize::from(*byte));
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Plain = Vec<(Vec<u8>, Vec<Vec<u8>>)>;

    fn unpacked(packed: Vec<u8>) -> Option<Plain> {
        let entries = entries("fetch", &packed.into()).ok()?;
        let parts = |fields: Vec<(Bytes, Bytes)>| {
            let parts = fields.into_iter().flat_map(|(name, value)| [name, value]);
            parts.map(Vec::from).collect()
        };
        let plain = entries
            .into_iter()
            .map(|(id, fields)| (id.into(), parts(fields)));
        Some(plain.collect())
    }

    /// As Redis packs: the shortest form.
    fn string(out: &mut Vec<u8>, text: &[u8]) {
        let length = u32::try_from(text.len()).unwrap();
        match u8::try_from(length) {
            Ok(length @ 0..=31) => out.push(0xa0 | length),
            Ok(length) => out.extend([0xd9, length]),
            Err(_) => match u16::try_from(length) {
                Ok(length) => {
                    out.push(0xda);
                    out.extend(length.to_be_bytes());
                }
                Err(_) => {
                    out.push(0xdb);
                    out.extend(length.to_be_bytes());
                }
            },
        }
        out.extend(text);
    }

    fn array(out: &mut Vec<u8>, length: usize) {
        match u8::try_from(length) {
            Ok(length @ 0..=15) => out.push(0x90 | length),
            _ => {
                out.push(0xdc);
                out.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
        }
    }

    fn packed(entries: &Plain) -> Vec<u8> {
        let mut out = Vec::new();
        array(&mut out, entries.len());
        for (id, parts) in entries {
            array(&mut out, 2);
            string(&mut out, id);
            array(&mut out, parts.len());
            for part in parts {
                string(&mut out, part);
            }
        }
        out
    }

    fn plain() -> impl Strategy<Value = Plain> {
        let part = || vec(any::<u8>(), 0..300);
        let pairs = vec((part(), part()), 0..9);
        let parts = pairs.prop_map(|pairs| pairs.into_iter().flat_map(|(a, b)| [a, b]).collect());
        vec((vec(any::<u8>(), 1..44), parts), 0..20)
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(entries in plain()) {
            prop_assert_eq!(unpacked(packed(&entries)), Some(entries));
        }

        #[test]
        fn what_is_cut_or_followed_by_more_is_refused(entries in plain(), cut in any::<prop::sample::Index>()) {
            let whole = packed(&entries);
            prop_assert_eq!(unpacked(whole[..cut.index(whole.len())].to_vec()), None);
            prop_assert_eq!(unpacked([whole, vec![0]].concat()), None);
        }

        #[test]
        fn any_bytes_are_entries_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            if let Some(entries) = unpacked(bytes.clone()) {
                prop_assert!(entries.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn long_strings_and_counts_are_read() {
        let long = vec![7; 70_000];
        let entries = vec![(b"1-0".to_vec(), vec![b"f".to_vec(), long]); 20];
        assert_eq!(unpacked(packed(&entries)), Some(entries));
        // A count of entries that are not there.
        assert_eq!(unpacked(vec![0xdd, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
