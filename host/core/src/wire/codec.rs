//! The codec that every body of a queue must parse as. The parsed value is dropped: the guest gets
//! the bytes.

use std::io::Cursor;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The maximal depth of MessagePack. The reader needs stack for each level, and a hostile body must
/// not exhaust the host's stack.
pub const DEPTH_MAX: usize = 128;

/// A codec that a queue declares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyCodec {
    /// One JSON value, in UTF-8.
    Json,
    /// One MessagePack value, at most [`DEPTH_MAX`] levels deep.
    MsgPack,
    /// UTF-8 text.
    Utf8,
}

impl BodyCodec {
    /// Check that a body parses.
    ///
    /// # Errors
    /// Text for people: the defect and its position, without the body.
    pub fn check(self, body: &[u8]) -> Result<(), String> {
        match self {
            Self::Json => {
                // `IgnoredAny` does not check skipped text for UTF-8.
                Self::Utf8.check(body)?;
                let parsed = serde_json::from_slice::<IgnoredAny>(body);
                parsed.map(drop).map_err(|error| {
                    // The text of serde's error may repeat a part of the body.
                    let what = match error.classify() {
                        serde_json::error::Category::Eof => "ends too early",
                        _ => "is wrong",
                    };
                    let (line, column) = (error.line(), error.column());
                    format!("the body is not JSON: it {what} at line {line}, column {column}")
                })
            }
            Self::MsgPack => {
                let mut reader = rmp_serde::Deserializer::new(Cursor::new(body));
                reader.set_max_depth(DEPTH_MAX);
                let parsed = IgnoredAny::deserialize(&mut reader);
                let position = reader.position();
                match parsed {
                    Ok(_) if position == body.len() as u64 => Ok(()),
                    Ok(_) => Err(format!(
                        "the body is not MessagePack: extra bytes follow its value at byte {position}"
                    )),
                    Err(_) => Err(format!(
                        "the body is not MessagePack: it is wrong before byte {position}"
                    )),
                }
            }
            Self::Utf8 => std::str::from_utf8(body).map(drop).map_err(|error| {
                let position = error.valid_up_to();
                format!("the body is not UTF-8: it is wrong at byte {position}")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_codec_accepts_its_bodies_and_refuses_others() {
        let shallow = [vec![0x91; DEPTH_MAX - 2], vec![1]].concat();
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        for (codec, body, is_right) in [
            (BodyCodec::Json, &b"{\"id\":1}"[..], true),
            (BodyCodec::Json, b" null ", true),
            (BodyCodec::Json, b"", false),
            (BodyCodec::Json, b"{\"id\":", false),
            (BodyCodec::Json, b"{} {}", false),
            (BodyCodec::Json, b"\"\xff\"", false),
            (BodyCodec::Json, deep(100).as_bytes(), true),
            (BodyCodec::Json, deep(100_000).as_bytes(), true),
            (BodyCodec::MsgPack, b"\x81\xa2id\x01", true),
            (BodyCodec::MsgPack, b"\xc7\x01\x05\xff", true),
            (BodyCodec::MsgPack, b"\xc4\x02\xff\x00", true),
            (BodyCodec::MsgPack, b"", false),
            (BodyCodec::MsgPack, b"\x81\xa2id", false),
            (BodyCodec::MsgPack, b"\x01\x02", false),
            (BodyCodec::MsgPack, b"\xc1", false),
            (BodyCodec::MsgPack, &shallow, true),
            (BodyCodec::MsgPack, &[0x91; 100_000], false),
            (BodyCodec::MsgPack, b"\xdf\xff\xff\xff\xff", false),
            (BodyCodec::Utf8, "grün".as_bytes(), true),
            (BodyCodec::Utf8, b"", true),
            (BodyCodec::Utf8, b"gr\xfcn", false),
        ] {
            let shown = &body[..body.len().min(16)];
            assert_eq!(codec.check(body).is_ok(), is_right, "{codec:?} {shown:?}");
        }
        let error = BodyCodec::Json.check(b"{\"card\": 4111x}").unwrap_err();
        assert_eq!(
            error,
            "the body is not JSON: it is wrong at line 1, column 14"
        );
    }

    proptest! {
        #[test]
        fn any_body_is_checked_without_a_panic(body in any::<Vec<u8>>()) {
            for codec in [BodyCodec::Json, BodyCodec::MsgPack, BodyCodec::Utf8] {
                if let Err(detail) = codec.check(&body) {
                    prop_assert!(detail.len() < 200);
                }
            }
        }
    }
}
