//! What waits for its time before it is a message of a queue: a member of the ZSET
//! [`super::keys::delayed`].
//!
//! ```text
//! 16 bytes that tell equal ones apart, then
//! of a list:    the value
//! of a stream:  u32 field_count, (u32 len, name, u32 len, value) * field_count
//! ```
//!
//! All numbers are big-endian, as in a frame; names need not be UTF-8. The script that makes an
//! entry of it is `append_due.lua`.

use bytes::{BufMut, Bytes, BytesMut};

/// How many bytes tell equal ones apart.
pub const TOKEN_LEN: usize = 16;
/// Most fields of a stream entry that waits: a script handles each as an argument.
pub const FIELDS_MAX: usize = 1000;

const NUMBER: usize = size_of::<u32>();

/// Why an entry cannot wait.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It has too many fields.
    #[error("{count} fields are more than {FIELDS_MAX}")]
    Fields {
        /// How many it has.
        count: usize,
    },
    /// A name or a value is too large.
    #[error("a field of {size} bytes is too large")]
    TooLarge {
        /// How large it is.
        size: usize,
    },
}

/// A value of a list that waits.
pub fn value(token: [u8; TOKEN_LEN], value: &[u8]) -> Bytes {
    [&token, value].concat().into()
}

/// The fields of a stream entry that waits.
pub fn fields(token: [u8; TOKEN_LEN], fields: &[(Bytes, Bytes)]) -> Result<Bytes, Error> {
    let count = fields.len();
    let written = u32::try_from(count).ok().filter(|_| count <= FIELDS_MAX);
    let written = written.ok_or(Error::Fields { count })?;
    let texts = || fields.iter().flat_map(|(name, value)| [name, value]);
    let size: usize = texts().map(|text| NUMBER + text.len()).sum();
    let mut member = BytesMut::with_capacity(TOKEN_LEN + NUMBER + size);
    member.put_slice(&token);
    member.put_u32(written);
    for text in texts() {
        let size = text.len();
        member.put_u32(u32::try_from(size).map_err(|_| Error::TooLarge { size })?);
        member.put_slice(text);
    }
    Ok(member.freeze())
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
        assert_eq!(fields([0; TOKEN_LEN], &more), Err(Error::Fields { count }));
    }
}
