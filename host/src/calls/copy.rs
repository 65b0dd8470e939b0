//! How a copy of a message is written: a stream takes its fields, a list its value.

use bytes::Bytes;
use redis::Cmd;

use crate::redis::connection::{ENTRY_HELD, PART_HELD};
use crate::wire::Raw;

/// Lua's `unpack` cannot pass more than about 8,000 values.
const FIELDS_IN_SCRIPT: usize = 3500;

/// Part of scripts: copies of entries, as [`Layout::push`] lays them out.
pub(crate) const COPIES: &str = include_str!("lua/parts/copies.lua");

/// The command that writes this copy.
pub(crate) fn command(copy: &Raw) -> &'static str {
    match copy {
        Raw::Fields(_) => "XADD",
        Raw::Value(_) => "LPUSH",
    }
}

/// Whether a script can write this copy.
pub(crate) fn fits_script(copy: &Raw) -> bool {
    !matches!(copy, Raw::Fields(fields) if fields.len() > FIELDS_IN_SCRIPT)
}

/// A part of a copy is not sent if it is at least so large and stands in the original: the script takes it
/// from there.
const SHARED_MIN: usize = 4 << 10;

/// How a copy is laid out: copies with the same layout go into one call.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Layout {
    fields: usize,
    /// The values that the script takes from the original: the places of their fields here and there.
    shared: Vec<(usize, usize)>,
}

impl Layout {
    /// The layout of this copy of `original`. With no original, no part is taken from there.
    pub(crate) fn of(copy: &Raw, original: Option<&Raw>) -> Self {
        match (copy, original) {
            (Raw::Fields(copied), Some(Raw::Fields(original))) => Self {
                fields: copied.len(),
                shared: shared_fields(copied, original, SHARED_MIN),
            },
            (Raw::Fields(copied), _) => Self {
                fields: copied.len(),
                shared: Vec::new(),
            },
            (Raw::Value(_), _) => Self::default(),
        }
    }

    /// The layout of a copy whose script reads the original anyway: it takes all values from there that it can.
    pub(crate) fn of_move(copied: &[(Bytes, Bytes)], original: &[(Bytes, Bytes)]) -> Self {
        Self {
            fields: copied.len(),
            shared: shared_fields(copied, original, 0),
        }
    }

    /// Add copies of the entries with these ids, which have this layout, to the arguments of a script: first what they
    /// have in common, as the script says; then of each its id, what `one` adds, and the values that differ. Redis
    /// takes most of its time for arguments.
    pub(crate) fn push(
        &self,
        copies: &[&[(Bytes, Bytes)]],
        ids: &[impl AsRef<str>],
        command: &mut Cmd,
        one: impl Fn(usize, &mut Cmd),
    ) {
        let is_shared = |place| self.shared.iter().any(|(here, _)| 2 * here + 1 == place);
        let first = copies.first().copied().unwrap_or_default();
        let differs = |&place: &usize| {
            !is_shared(place)
                && copies
                    .iter()
                    .any(|copy| part(copy, place) != part(first, place))
        };
        let is_id = |&place: &usize| {
            let mut all = copies.iter().zip(ids);
            all.all(|(copy, id)| part(copy, place) == id.as_ref().as_bytes())
        };
        let (of_ids, differing): (Vec<usize>, Vec<usize>) =
            (0..2 * self.fields).filter(differs).partition(is_id);
        command.arg(2 * self.fields);
        for place in 0..2 * self.fields {
            command.arg(match is_shared(place) {
                true => &[],
                false => part(first, place),
            });
        }
        command.arg(differing.len());
        command.arg(of_ids.len());
        for place in &of_ids {
            command.arg(place + 1);
        }
        for place in &differing {
            command.arg(1).arg(place + 1);
        }
        command.arg(self.shared.len());
        for (here, there) in &self.shared {
            command.arg(2 * here + 2).arg(2 * there + 2);
        }
        for (at, copy) in copies.iter().enumerate() {
            command.arg(ids[at].as_ref());
            one(at, command);
            for place in &differing {
                command.arg(part(copy, *place));
            }
        }
    }
}

/// The field or value at this place, where they stand one behind the other.
fn part(fields: &[(Bytes, Bytes)], place: usize) -> &[u8] {
    let (field, value) = &fields[place / 2];
    if place.is_multiple_of(2) {
        field
    } else {
        value
    }
}

/// Add this copy of a value to the arguments of a script: how many bytes at the end are those at the end of the
/// original, if they are many; then what is before them.
pub(crate) fn push_value(copied: &[u8], original: Option<&Raw>, command: &mut Cmd) {
    let count = match original {
        Some(Raw::Value(original)) => shared_end(copied, original),
        _ => 0,
    };
    command.arg(count).arg(&copied[..copied.len() - count]);
}

/// The fields that stand in both, with values of at least this number of bytes: their places. A copy keeps the order
/// of the original.
fn shared_fields(
    copied: &[(Bytes, Bytes)],
    original: &[(Bytes, Bytes)],
    min: usize,
) -> Vec<(usize, usize)> {
    let mut from = 0;
    let mut shared = Vec::new();
    for (here, field) in copied.iter().enumerate() {
        if field.1.len() < min {
            continue;
        }
        let place = original[from..].iter().position(|other| other == field);
        if let Some(place) = place {
            shared.push((here, from + place));
            from += place + 1;
        }
    }
    shared
}

/// How many bytes at the end of a copy are those at the end of the original, if they are many.
pub(crate) fn shared_end(copied: &[u8], original: &[u8]) -> usize {
    let mut count = 0;
    for (here, there) in copied.rchunks(SHARED_MIN).zip(original.rchunks(SHARED_MIN)) {
        if here == there {
            count += here.len();
            continue;
        }
        let pairs = here.iter().rev().zip(there.iter().rev());
        count += pairs.take_while(|(here, there)| here == there).count();
        break;
    }
    if count < SHARED_MIN { 0 } else { count }
}

/// How many bytes an argument of a script takes beside its text.
const ARGUMENT_BYTES: usize = 32;

/// How many bytes are sent of this copy of `original`, with what each argument takes.
pub(crate) fn size_sent(copy: &Raw, original: &Raw) -> usize {
    let shared = match (copy, original) {
        (Raw::Fields(copied), Raw::Fields(original)) => shared_fields(copied, original, SHARED_MIN)
            .iter()
            .map(|(here, _)| copied[*here].1.len())
            .sum(),
        (Raw::Value(copied), Raw::Value(original)) => shared_end(copied, original),
        _ => 0,
    };
    let arguments = match copy {
        Raw::Fields(fields) => 2 * fields.len(),
        Raw::Value(_) => 1,
    };
    size(copy) - shared + arguments * ARGUMENT_BYTES
}

/// The bytes of this copy.
pub(crate) fn size(copy: &Raw) -> usize {
    match copy {
        Raw::Fields(fields) => fields.iter().map(|(n, v)| n.len() + v.len()).sum(),
        Raw::Value(value) => value.len(),
    }
}

/// What an entry with these fields takes in a process that has read it: its bytes, and what is kept of each field.
pub(crate) fn held(fields: &[(Bytes, Bytes)]) -> usize {
    let bytes: usize = fields.iter().map(|(n, v)| n.len() + v.len()).sum();
    bytes + ENTRY_HELD + 2 * PART_HELD * fields.len()
}

/// Add this copy to the arguments of a command.
pub(crate) fn push(copy: &Raw, command: &mut Cmd) {
    match copy {
        Raw::Fields(fields) => {
            for (name, value) in fields {
                command.arg(&name[..]).arg(&value[..]);
            }
        }
        Raw::Value(value) => {
            command.arg(&value[..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Arg;

    use super::*;

    fn arguments(command: &Cmd) -> Vec<Vec<u8>> {
        let bytes = |argument: Arg<&[u8]>| match argument {
            Arg::Simple(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        command.args_iter().map(bytes).collect()
    }

    /// What is sent of these copies, with their numbers.
    fn sent(layout: &Layout, copies: &[&Raw]) -> Vec<Vec<u8>> {
        let mut command = Cmd::new();
        let copies: Vec<_> = copies
            .iter()
            .map(|copy| match copy {
                Raw::Fields(fields) => &fields[..],
                Raw::Value(_) => &[],
            })
            .collect();
        let ids: Vec<String> = (0..copies.len()).map(|at| format!("id {at}")).collect();
        layout.push(&copies, &ids, &mut command, |at, command| {
            command.arg(format!("number {at}"));
        });
        arguments(&command)
    }

    fn fields(values: &[&[u8]]) -> Raw {
        let field = |value: &&[u8]| (Bytes::from_static(b"f"), Bytes::copy_from_slice(value));
        Raw::Fields(values.iter().map(field).collect())
    }

    #[test]
    fn large_fields_that_stand_in_the_original_are_not_sent() {
        let (one, two) = (vec![1; SHARED_MIN], vec![2; SHARED_MIN]);
        let original = fields(&[b"dropped", &one, &two, &one]);
        let copy = fields(&[&one, &one, b"added", &two]);
        let layout = Layout::of(&copy, Some(&original));
        let all = sent(&layout, &[&copy]);
        assert_eq!(all[..5], [&b"8"[..], b"f", b"", b"f", b""]);
        assert_eq!(all[5..9], [&b"f"[..], b"added", b"f", &two]);
        assert_eq!(
            all[9..],
            [
                &b"0"[..],
                b"0",
                b"2",
                b"2",
                b"4",
                b"4",
                b"8",
                b"id 0",
                b"number 0"
            ]
        );
        let count = 8 * ARGUMENT_BYTES;
        assert_eq!(size_sent(&copy, &original), 4 + 5 + two.len() + count);
        // All of it, if the original is gone.
        let all = sent(&Layout::of(&copy, None), &[&copy]);
        assert_eq!((all.len(), &all[2]), (14, &one));
    }

    #[test]
    fn what_copies_have_in_common_is_sent_once() {
        let first = fields(&[b"id 0", b"one", b"same", b"x"]);
        let second = fields(&[b"id 1", b"two", b"same", b"y"]);
        let layout = Layout::of(&first, None);
        assert_eq!(layout, Layout::of(&second, None));
        let all = sent(&layout, &[&first, &second]);
        let common = [
            &b"8"[..],
            b"f",
            b"id 0",
            b"f",
            b"one",
            b"f",
            b"same",
            b"f",
            b"x",
        ];
        assert_eq!(all[..9], common);
        let places = [&b"2"[..], b"1", b"2", b"1", b"4", b"1", b"8", b"0"];
        assert_eq!(all[9..17], places);
        let each = [b"id 0", &b"number 0"[..], b"one", b"x"];
        assert_eq!(all[17..21], each);
        assert_eq!(all[21..], [b"id 1", &b"number 1"[..], b"two", b"y"]);
    }

    #[test]
    fn copies_with_other_fields_have_another_layout() {
        let large = vec![1; SHARED_MIN];
        let original = fields(&[&large]);
        let [with, small] = [&large[..], b"small"].map(|value| fields(&[b"a", b"b", value]));
        let layout = |copy| Layout::of(copy, Some(&original));
        assert_ne!(layout(&with), layout(&small));
        assert_ne!(layout(&with), Layout::of(&with, None));
        assert_ne!(layout(&small), layout(&fields(&[b"a", b"b"])));
    }

    #[test]
    fn the_end_of_a_value_that_the_original_ends_with_is_not_sent() {
        let body: Vec<u8> = (0..3 * SHARED_MIN).map(|n| n.to_le_bytes()[0]).collect();
        for (before, after) in [
            (&b"old"[..], &b"new and longer"[..]),
            (b"", b""),
            (b"x", b""),
        ] {
            let [old, new] = [before, after].map(|head| Bytes::from([head, &body].concat()));
            assert_eq!(shared_end(&new, &old), body.len());
            let sent = |original| {
                let mut command = Cmd::new();
                push_value(&new, original, &mut command);
                arguments(&command)
            };
            let old = Raw::Value(old);
            assert_eq!(sent(Some(&old)), [body.len().to_string().as_bytes(), after]);
            assert_eq!(sent(None), [&b"0"[..], &new]);
        }
        let mut command = Cmd::new();
        let small = Bytes::from_static(b"small");
        push_value(&small, Some(&Raw::Value(small.clone())), &mut command);
        assert_eq!(arguments(&command), [&b"0"[..], b"small"]);
    }
}
