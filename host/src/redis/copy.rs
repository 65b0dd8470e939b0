//! How a copy of a message is written: a stream takes its fields, a list its value.

use bytes::Bytes;
use redis::Cmd;

use crate::wire::Raw;

/// Lua's `unpack` cannot pass more than about 8,000 values.
const FIELDS_IN_SCRIPT: usize = 3500;

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

/// Adds copies to the arguments of a script, one behind the other, without what the script has already: large
/// parts that stand in the original, and fields of the copy before.
#[derive(Default)]
pub(crate) struct Copies<'a> {
    /// The parts of the copy before; `None` where the script took one from an original.
    before: Vec<Option<&'a [u8]>>,
}

impl<'a> Copies<'a> {
    /// Add this copy of `original`. With no original, no part is taken from there.
    ///
    /// Fields: how many parts the copy has, and how many of them follow: all of them; or, for each, its place in
    /// the copy, from 1, and itself. Then how many parts stand in the original; for each, its place in the copy
    /// and in the original. A value: as [`push_value`].
    pub(crate) fn push(&mut self, copy: &'a Raw, original: Option<&Raw>, command: &mut Cmd) {
        match copy {
            Raw::Fields(copied) => {
                let shared = match original {
                    Some(Raw::Fields(original)) => shared_fields(copied, original),
                    _ => Vec::new(),
                };
                self.push_fields(copied, &shared, command);
            }
            Raw::Value(copied) => push_value(copied, original, command),
        }
    }

    fn push_fields(
        &mut self,
        copied: &'a [(Bytes, Bytes)],
        shared: &[(usize, usize)],
        command: &mut Cmd,
    ) {
        let mut parts: Vec<Option<&[u8]>> = copied
            .iter()
            .flat_map(|(name, value)| [Some(&name[..]), Some(&value[..])])
            .collect();
        for (here, _) in shared {
            parts[2 * here + 1] = None;
        }
        let is_new = |place: usize| {
            parts[place].is_some_and(|part| self.before.get(place) != Some(&Some(part)))
        };
        let new: Vec<usize> = (0..parts.len()).filter(|place| is_new(*place)).collect();
        command.arg(parts.len());
        if 2 * new.len() < parts.len() {
            command.arg(new.len());
            for place in new {
                command.arg(place + 1).arg(parts[place].unwrap_or_default());
            }
        } else {
            command.arg(parts.len());
            for part in &parts {
                command.arg(part.unwrap_or_default());
            }
        }
        command.arg(shared.len());
        for (here, there) in shared {
            command.arg(2 * here + 2).arg(2 * there + 2);
        }
        self.before = parts;
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

/// The large values that stand in both: their places. A copy keeps the order of the original.
fn shared_fields(copied: &[(Bytes, Bytes)], original: &[(Bytes, Bytes)]) -> Vec<(usize, usize)> {
    let mut rest = original.iter().enumerate();
    let mut shared = Vec::new();
    for (here, (_, value)) in copied.iter().enumerate() {
        if value.len() < SHARED_MIN {
            continue;
        }
        if let Some((there, _)) = rest.find(|(_, (_, other))| other == value) {
            shared.push((here, there));
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
        (Raw::Fields(copied), Raw::Fields(original)) => shared_fields(copied, original)
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

    /// What is sent of copies, each with its original.
    fn arguments(copies: &[(&Raw, Option<&Raw>)]) -> Vec<Vec<u8>> {
        let (mut command, mut sent) = (Cmd::new(), Copies::default());
        for (copy, original) in copies {
            sent.push(copy, *original, &mut command);
        }
        let bytes = |argument: Arg<&[u8]>| match argument {
            Arg::Simple(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        command.args_iter().map(bytes).collect()
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
        let sent = arguments(&[(&copy, Some(&original))]);
        assert_eq!(sent[..2], [b"8", b"8"]);
        assert_eq!(sent[2..6], [&b"f"[..], b"", b"f", b""]);
        assert_eq!(sent[6..10], [&b"f"[..], b"added", b"f", &two]);
        assert_eq!(sent[10..], [b"2", b"2", b"4", b"4", b"8"]);
        let count = 8 * ARGUMENT_BYTES;
        assert_eq!(size_sent(&copy, &original), 4 + 5 + two.len() + count);
        // All of it, if the original is gone.
        let sent = arguments(&[(&copy, None)]);
        assert_eq!((sent.len(), &sent[3]), (11, &one));
    }

    #[test]
    fn fields_that_the_copy_before_has_are_not_sent() {
        let first = fields(&[b"same", b"one", b"same", b"same"]);
        let second = fields(&[b"same", b"two", b"same", b"same", b"more"]);
        let sent = arguments(&[(&first, None), (&second, None), (&first, None)]);
        assert_eq!(sent[..2], [b"8", b"8"]);
        let second = &sent[11..];
        assert_eq!(second[..2], [b"10", &b"3"[..]]);
        assert_eq!(
            second[2..8],
            [&b"4"[..], b"two", b"9", b"f", b"10", b"more"]
        );
        // A copy of fewer fields takes the first ones.
        assert_eq!(second[8..], [&b"0"[..], b"8", b"1", b"4", b"one", b"0"]);
    }

    #[test]
    fn what_the_copy_before_had_from_its_original_is_sent() {
        let large = vec![1; SHARED_MIN];
        let original = fields(&[&large]);
        let [with, other] = [&large[..], b"small"].map(|value| fields(&[b"a", b"b", value]));
        let sent = arguments(&[(&with, Some(&original)), (&with, None), (&other, None)]);
        assert_eq!(
            sent[..8],
            [&b"6"[..], b"6", b"f", b"a", b"f", b"b", b"f", b""]
        );
        assert_eq!(sent[8..11], [b"1", b"6", b"2"]);
        assert_eq!(sent[11..16], [&b"6"[..], b"1", b"6", &large, b"0"]);
        assert_eq!(sent[16..], [&b"6"[..], b"1", b"6", b"small", b"0"]);
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
            let sent = arguments(&[(&Raw::Value(new), Some(&Raw::Value(old)))]);
            assert_eq!(sent, [body.len().to_string().as_bytes(), after]);
        }
        let small = Raw::Value(Bytes::from_static(b"small"));
        assert_eq!(arguments(&[(&small, Some(&small))]), [&b"0"[..], b"small"]);
    }
}
