//! The lossless binary frame of list and Pub/Sub values.
//!
//! ```text
//! u32 header_count, (u32 len, name, u32 len, value) * header_count, payload
//! ```
//!
//! All numbers are big-endian. Names are UTF-8. The payload is the rest.

use bytes::{BufMut, Bytes, BytesMut};

use crate::delivery::message::Headers;

const NUMBER: usize = size_of::<u32>();

/// Why headers and payload do not fit into a frame.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the header with this index, from 0, is not UTF-8.
    #[error("the name of header {0} is not UTF-8")]
    Name(usize),
    /// A number of the frame does not fit into 32 bits.
    #[error("{what} of {size} is too large for a frame")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// Its size.
        size: usize,
    },
}

/// Write a frame.
pub fn encode(headers: &Headers, payload: &[u8]) -> Result<Bytes, Error> {
    let text: usize = headers
        .iter()
        .map(|(name, value)| 2 * NUMBER + name.len() + value.len())
        .sum();
    let mut frame = BytesMut::with_capacity(NUMBER + text + payload.len());
    frame.put_u32(number("a header count", headers.len())?);
    for (index, (name, value)) in headers.iter().enumerate() {
        if std::str::from_utf8(name).is_err() {
            return Err(Error::Name(index));
        }
        frame.put_u32(number("a header name", name.len())?);
        frame.put_slice(name);
        frame.put_u32(number("a header value", value.len())?);
        frame.put_slice(value);
    }
    frame.put_slice(payload);
    Ok(frame.freeze())
}

/// Read a frame. Returns `None` if the value is not a frame. The parts share the memory of `value`.
///
/// The function checks the whole frame before it allocates. It then allocates one pair for each
/// header that is present.
pub fn decode(value: &Bytes) -> Option<(Headers, Bytes)> {
    let (count, at) = read_number(value, 0)?;
    // A header takes at least two numbers, so a false count fails here.
    if count > (value.len() - at) / (2 * NUMBER) {
        return None;
    }
    let mut end = at;
    for _ in 0..count {
        let (name, after_name) = read_text(value, end)?;
        std::str::from_utf8(&value[name]).ok()?;
        (_, end) = read_text(value, after_name)?;
    }
    let mut headers = Vec::with_capacity(count);
    let mut next = at;
    for _ in 0..count {
        let (name, after_name) = read_text(value, next)?;
        let (text, after_text) = read_text(value, after_name)?;
        headers.push((value.slice(name), value.slice(text)));
        next = after_text;
    }
    Some((Headers::new(headers), value.slice(end..)))
}

fn number(what: &'static str, size: usize) -> Result<u32, Error> {
    u32::try_from(size).map_err(|_| Error::TooLarge { what, size })
}

/// The number at this position, and the position after it.
fn read_number(value: &[u8], at: usize) -> Option<(usize, usize)> {
    let bytes = value.get(at..)?.first_chunk::<NUMBER>()?;
    let number = usize::try_from(u32::from_be_bytes(*bytes)).ok()?;
    Some((number, at + NUMBER))
}

/// The range of the text whose length is at this position, and the position after the text.
pub fn read_text(value: &[u8], at: usize) -> Option<(std::ops::Range<usize>, usize)> {
    let (len, start) = read_number(value, at)?;
    let end = start.checked_add(len).filter(|end| *end <= value.len())?;
    Some((start..end, end))
}

#[cfg(test)]
mod tests;
