//! A delayed message: it waits as a member of the ZSET [`super::keys::delayed`] before it enters
//! its queue.
//!
//! ```text
//! 16 bytes that distinguish equal messages, then
//! of a list:    the value
//! of a stream:  u32 field_count, (u32 len, name, u32 len, value) * field_count
//! ```
//!
//! All numbers are big-endian, as in a frame. Names need not be UTF-8. The script `append_due.lua`
//! turns the member into an entry.

use bytes::{BufMut, Bytes, BytesMut};

use super::frame;

/// The number of bytes that distinguish equal messages.
pub const TOKEN_LEN: usize = 16;
/// The most fields of a delayed stream entry: a script gets each field as an argument.
pub const FIELDS_MAX: usize = 1000;

const NUMBER: usize = size_of::<u32>();

/// Why an entry cannot be delayed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The entry has this number of fields, which is too many.
    #[error("{0} fields are too many: the limit is {FIELDS_MAX}")]
    Fields(usize),
    /// A name or a value has this number of bytes, which is too many.
    #[error("a field of {0} bytes is too large")]
    TooLarge(usize),
}

/// The member of a delayed list value.
pub fn value(token: [u8; TOKEN_LEN], value: &[u8]) -> Bytes {
    [&token, value].concat().into()
}

/// The member of a delayed stream entry.
pub fn fields(token: [u8; TOKEN_LEN], fields: &[(Bytes, Bytes)]) -> Result<Bytes, Error> {
    let count = fields.len();
    let written = u32::try_from(count).ok().filter(|_| count <= FIELDS_MAX);
    let written = written.ok_or(Error::Fields(count))?;
    let texts = || fields.iter().flat_map(|(name, value)| [name, value]);
    let size: usize = texts().map(|text| NUMBER + text.len()).sum();
    let mut member = BytesMut::with_capacity(TOKEN_LEN + NUMBER + size);
    member.put_slice(&token);
    member.put_u32(written);
    for text in texts() {
        let size = text.len();
        member.put_u32(u32::try_from(size).map_err(|_| Error::TooLarge(size))?);
        member.put_slice(text);
    }
    Ok(member.freeze())
}

/// The fields behind the token of a delayed stream entry: as many as can be read.
pub fn fields_of(behind: &Bytes) -> Vec<(Bytes, Bytes)> {
    let mut at = NUMBER;
    let mut next = || {
        let (text, after) = frame::read_text(behind, at)?;
        at = after;
        Some(behind.slice(text))
    };
    let mut fields = Vec::new();
    while let (Some(name), Some(value)) = (next(), next()) {
        fields.push((name, value));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::message::Headers;
    use crate::wire::frame;

    #[test]
    fn the_layout_byte_for_byte() {
        let pairs = vec![(Bytes::from_static(b"\xff"), Bytes::from_static(b"vw"))];
        assert_eq!(
            fields([7; TOKEN_LEN], &pairs).unwrap(),
            [&[7; TOKEN_LEN][..], b"\0\0\0\x01\0\0\0\x01\xff\0\0\0\x02vw"].concat()
        );
        assert_eq!(
            value([7; TOKEN_LEN], b"v"),
            [&[7; TOKEN_LEN][..], b"v"].concat()
        );
    }

    #[test]
    fn it_is_a_frame_without_payload_where_names_are_text() {
        let pairs: Vec<_> = (0..FIELDS_MAX)
            .map(|n| (n.to_string().into(), Bytes::from(vec![0; n])))
            .collect();
        let member = fields([0; TOKEN_LEN], &pairs).unwrap();
        let frame = frame::decode(&member.slice(TOKEN_LEN..)).unwrap();
        assert_eq!(frame, (Headers::new(pairs.clone()), Bytes::new()));

        let more = [&pairs[..], &pairs[..1]].concat();
        let count = FIELDS_MAX + 1;
        assert_eq!(fields([0; TOKEN_LEN], &more), Err(Error::Fields(count)));
    }
}
