//! The least that a consumer of a stream can do: what a host is compared with. Only the client library is used.

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value, cmd};

/// How many entries one read asks for: more makes it no faster.
const COUNT: usize = 256;

/// Read this many entries of a stream as one consumer of a group, and acknowledge each. One connection reads
/// ahead while the other acknowledges. Returns the bytes of all fields.
///
/// # Errors
/// The connections fail, or the stream has fewer entries.
pub async fn consume(
    reads: &mut impl ConnectionLike,
    acknowledgements: &mut impl ConnectionLike,
    (key, group): (&str, &str),
    messages: u64,
) -> RedisResult<usize> {
    let mut read = cmd("XREADGROUP");
    read.arg("GROUP").arg(group).arg("bare").arg("COUNT");
    read.arg(COUNT).arg("STREAMS").arg(key).arg(">");
    let (mut left, mut bytes) = (messages, 0);
    let mut entries = reads.req_packed_command(&read).await?;
    loop {
        let mut acknowledge = cmd("XACK");
        acknowledge.arg(key).arg(group);
        let count = take(entries, &mut acknowledge, &mut bytes)?;
        if count == 0 {
            return Err(unexpected("an end of the stream"));
        }
        left = left.saturating_sub(count);
        let acknowledged = acknowledgements.req_packed_command(&acknowledge);
        if left == 0 {
            return acknowledged.await.map(|_| bytes);
        }
        let next = reads.req_packed_command(&read);
        (entries, _) = futures_util::future::try_join(next, acknowledged).await?;
    }
}

/// The ids of these entries as arguments, and how many there are.
fn take(reply: Value, acknowledge: &mut Cmd, bytes: &mut usize) -> RedisResult<u64> {
    let entries = match reply {
        Value::Nil => return Ok(0),
        // RESP3: a map from the key to its entries.
        Value::Map(mut streams) => streams.pop().map(|(_, entries)| entries),
        Value::Array(mut streams) => match streams.pop() {
            Some(Value::Array(mut stream)) => stream.pop(),
            _ => None,
        },
        _ => None,
    };
    let Some(Value::Array(entries)) = entries else {
        return Err(unexpected("no entries"));
    };
    let count = entries.len() as u64;
    for entry in entries {
        let Value::Array(entry) = entry else {
            return Err(unexpected("no entry"));
        };
        let [Value::BulkString(id), Value::Array(fields)] = &entry[..] else {
            return Err(unexpected("no id and fields"));
        };
        acknowledge.arg(id);
        for field in fields {
            if let Value::BulkString(field) = field {
                *bytes += field.len();
            }
        }
    }
    Ok(count)
}

fn unexpected(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, what))
}
