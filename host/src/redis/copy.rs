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

/// Add this copy of `original` to the arguments of a script, without the large parts that stand in the
/// original. With no original, all of it is sent.
///
/// Fields: how many parts are not sent; for each, its place in the copy and in the original, from 1; then
/// the fields. A value: how many bytes at the end are those at the end of the original; then what is before.
pub(crate) fn push_shared(copy: &Raw, original: Option<&Raw>, command: &mut Cmd) {
    match (copy, original) {
        (Raw::Fields(copied), Some(Raw::Fields(original))) => {
            let shared = shared_fields(copied, original);
            command.arg(shared.len());
            for (here, there) in &shared {
                command.arg(2 * here + 2).arg(2 * there + 2);
            }
            let mut shared = shared.into_iter().map(|(here, _)| here).peekable();
            for (place, (name, value)) in copied.iter().enumerate() {
                let is_shared = shared.next_if_eq(&place).is_some();
                let value: &[u8] = if is_shared { &[] } else { value };
                command.arg(&name[..]).arg(value);
            }
        }
        (Raw::Value(copied), Some(Raw::Value(original))) => {
            let count = shared_end(copied, original);
            command.arg(count).arg(&copied[..copied.len() - count]);
        }
        _ => {
            command.arg(0);
            push(copy, command);
        }
    }
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

/// How many bytes are sent of this copy of `original`.
pub(crate) fn size_sent(copy: &Raw, original: &Raw) -> usize {
    let shared = match (copy, original) {
        (Raw::Fields(copied), Raw::Fields(original)) => shared_fields(copied, original)
            .iter()
            .map(|(here, _)| copied[*here].1.len())
            .sum(),
        (Raw::Value(copied), Raw::Value(original)) => shared_end(copied, original),
        _ => 0,
    };
    size(copy) - shared
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

    fn arguments(copy: &Raw, original: Option<&Raw>) -> Vec<Vec<u8>> {
        let mut command = Cmd::new();
        push_shared(copy, original, &mut command);
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
        let sent = arguments(&copy, Some(&original));
        let (f, none) = (b"f".to_vec(), Vec::new());
        let expected: [&[u8]; 5] = [b"2", b"2", b"4", b"4", b"8"];
        assert_eq!(sent[..5], expected);
        assert_eq!(sent[5..9], [f.clone(), none.clone(), f.clone(), none]);
        assert_eq!(sent[9..], [f.clone(), b"added".to_vec(), f, two.clone()]);
        assert_eq!(size_sent(&copy, &original), 4 + 5 + two.len());
        // All of it, if the original is gone.
        let sent = arguments(&copy, None);
        assert_eq!((sent.len(), &sent[2]), (9, &one));
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
            let sent = arguments(&Raw::Value(new), Some(&Raw::Value(old)));
            assert_eq!(sent, [body.len().to_string().as_bytes(), after]);
        }
        let small = Raw::Value(Bytes::from_static(b"small"));
        assert_eq!(arguments(&small, Some(&small)), [&b"0"[..], b"small"]);
    }
}
