//! The numbers of messages in what Redis holds: every message carries its number in its id.

use bytes::Bytes;
use hostler::delivery::message::Headers;
use hostler::wire::frame;

use crate::script::Script;

/// The header that names a message.
const ID: &[u8] = b"x-message-id";
/// A host with fault points ends at this point when it has a message with this header.
const ABORT: (&str, &str) = ("x-hostler-test-abort", "verdict");

/// The id of a message.
#[must_use]
pub fn id(number: u32) -> String {
    format!("m{number}")
}

/// The number of a message, by its id.
#[must_use]
pub fn number(id: &str) -> Option<u32> {
    id.strip_prefix('m')?.parse().ok()
}

/// The headers of a message.
#[must_use]
pub fn headers(number: u32, script: &Script) -> Vec<(&'static str, String)> {
    let mut headers = vec![("x-message-id", id(number))];
    if script.kills_host {
        headers.push((ABORT.0, ABORT.1.to_owned()));
    }
    headers
}

/// A message as a value of a list or a channel.
///
/// # Panics
///
/// If it is larger than a frame may be.
#[must_use]
pub fn framed(number: u32, script: &Script) -> Bytes {
    let mut all = Headers::default();
    for (name, value) in headers(number, script) {
        all.push(name, value);
    }
    frame::encode(&all, &script.body()).expect("messages are small")
}

/// The id in a value of a list, or in a delivery of it: whatever is before the frame.
#[must_use]
pub fn id_in(value: &[u8]) -> Option<String> {
    let place = value.windows(ID.len()).position(|window| window == ID)? + ID.len();
    let length = value.get(place..place + 4)?;
    let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
    let id = value.get(place + 4..place + 4 + length)?;
    String::from_utf8(id.to_vec()).ok()
}

/// All ids of messages of lists that these bytes hold.
#[must_use]
pub fn ids_in(bytes: &[u8]) -> Vec<String> {
    let mut ids = Vec::new();
    let mut rest = bytes;
    while let Some(place) = rest.windows(ID.len()).position(|window| window == ID) {
        ids.extend(id_in(&rest[place..]));
        rest = &rest[place + ID.len()..];
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Answer;

    #[test]
    fn the_id_of_a_value_is_found_behind_anything() {
        let value = framed(17, &Script::always(Answer::Ack));
        let delivery = [b"sixteen bytes...".as_slice(), &value].concat();
        for value in [&value[..], &delivery] {
            let id = id_in(value).unwrap();
            assert_eq!(number(&id), Some(17));
        }
        assert_eq!(id_in(b"x-message-id"), None);
        let both = [delivery, framed(4, &Script::always(Answer::Ack)).to_vec()].concat();
        assert_eq!(ids_in(&both), ["m17", "m4"]);
        assert_eq!(number("1-1"), None);
    }
}
