//! An answer, as it stands in the inbox of a producer that waits: an entry of a stream.

use bytes::{BufMut, Bytes, BytesMut};

use crate::delivery::reply::{Answer, Status};

/// The fields of an entry. All but `id` and `status` may be missing.
const ID: &[u8] = b"id";
const GROUP: &[u8] = b"group";
const STATUS: &[u8] = b"status";
const REASON: &[u8] = b"reason";
const DETAIL: &[u8] = b"detail";
const VALUE: &[u8] = b"value";

/// One argument of a script that writes the answer: the key of the inbox, how long it is kept (ms), since when entries are
/// kept (epoch ms), then the fields and values of the entry; before each, its length in 32 bits, big-endian.
pub fn pack(key: &str, keep_ms: u64, now_ms: u64, answer: &Answer) -> Bytes {
    let mut packed = BytesMut::new();
    let mut put = |part: &[u8]| {
        // Ids, details and values are bounded.
        packed.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
        packed.put_slice(part);
    };
    put(key.as_bytes());
    put(keep_ms.to_string().as_bytes());
    put(now_ms.saturating_sub(keep_ms).to_string().as_bytes());
    let mut field = |name: &[u8], value: Option<&[u8]>| {
        if let Some(value) = value {
            put(name);
            put(value);
        }
    };
    field(ID, Some(answer.id.as_bytes()));
    field(GROUP, answer.group.as_deref().map(str::as_bytes));
    field(STATUS, Some(answer.status.label().as_bytes()));
    field(REASON, answer.reason.as_deref().map(str::as_bytes));
    field(DETAIL, answer.detail.as_deref().map(str::as_bytes));
    field(VALUE, answer.value.as_deref());
    packed.freeze()
}

/// The answer with these fields; `None` = it has no id, or a status that is not known.
pub fn read(fields: &[(Bytes, Bytes)]) -> Option<Answer> {
    let find = |name: &[u8]| {
        let mut fields = fields.iter();
        fields.find(|(field, _)| field == name).map(|(_, v)| v)
    };
    let text = |name| find(name).map(|value| String::from_utf8_lossy(value).into_owned());
    Some(Answer {
        id: text(ID)?,
        group: text(GROUP),
        status: Status::from_label(&text(STATUS)?)?,
        reason: text(REASON),
        detail: text(DETAIL),
        value: find(VALUE).cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(mut packed: &[u8]) -> Vec<Bytes> {
        let mut parts = Vec::new();
        while let Some((length, rest)) = packed.split_first_chunk() {
            let (part, behind) = rest.split_at(u32::from_be_bytes(*length) as usize);
            parts.push(Bytes::copy_from_slice(part));
            packed = behind;
        }
        parts
    }

    #[test]
    fn an_answer_is_read_as_it_was_packed() {
        let full = Answer {
            id: "\u{e4} 1".to_owned(),
            group: Some("g".to_owned()),
            status: Status::DeadLettered,
            reason: Some("expired".to_owned()),
            detail: Some("expired 5 ms ago".to_owned()),
            value: Some(Bytes::from_static(b"\0\xff")),
        };
        let bare = Answer {
            group: None,
            status: Status::Acked,
            reason: None,
            detail: None,
            value: None,
            ..full.clone()
        };
        for answer in [full, bare] {
            let parts = unpacked(&pack("{q}:replies:a", 5_000, 7_000, &answer));
            assert_eq!(parts[..3], ["{q}:replies:a", "5000", "2000"]);
            let fields = parts[3..].chunks(2).map(|f| (f[0].clone(), f[1].clone()));
            assert_eq!(read(&fields.collect::<Vec<_>>()), Some(answer));
        }
    }

    #[test]
    fn an_entry_without_id_or_with_a_strange_status_is_no_answer() {
        let field = |name: &'static str, value: &'static str| {
            (
                Bytes::from_static(name.as_bytes()),
                Bytes::from_static(value.as_bytes()),
            )
        };
        assert_eq!(read(&[field("status", "acked")]), None);
        assert_eq!(read(&[field("id", "1"), field("status", "lost")]), None);
        assert_eq!(read(&[field("id", "1")]), None);
    }
}
