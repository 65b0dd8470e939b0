//! Values of handlers: strings that are read, added to, swapped and listed by the rules of a grant.

use bytes::Bytes;
use redis::Value;

use crate::delivery::key_value::Seen;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::Script;

pub mod scripts;

/// What a key has.
#[derive(Debug)]
pub(crate) enum Found {
    /// No value.
    Nothing,
    /// A value, and its SHA-1 digest, if that was asked for.
    Value(Bytes, String),
    /// A value that is too large to read.
    TooLarge,
    /// Something else.
    OtherKind,
}

/// What became of a swap.
#[derive(Debug)]
pub(crate) enum Swapped {
    /// The value is set.
    Done,
    /// Another value is there.
    Changed,
    /// The key holds something else.
    OtherKind,
}

/// The most bytes of a value, and of all values of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) each: usize,
    pub(crate) all: usize,
}

/// What these keys have, all at the same time.
pub(crate) async fn read(
    link: &Link,
    keys: &[String],
    most: Most,
    digests: bool,
) -> Result<Vec<Found>, Error> {
    let script = &scripts::READ_VALUES;
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut call = script.on(&names);
    call.arg(most.each).arg(most.all).arg(u8::from(digests));
    let reply = link.run(script, &call).await?;
    let found = reply::array(script.name(), reply)?;
    if found.len() != keys.len() {
        return Err(reply::invalid(script.name(), "not one reply for each key"));
    }
    found.into_iter().map(|found| one(script, found)).collect()
}

fn one(script: &'static Script, found: Value) -> Result<Found, Error> {
    Ok(match found {
        Value::Nil | Value::Boolean(false) => Found::Nothing,
        Value::Int(_) => Found::TooLarge,
        pair @ Value::Array(_) => {
            let [value, digest] = reply::tuple(script.name(), pair)?;
            let value = reply::bytes(script.name(), value)?;
            Found::Value(value, reply::text(script.name(), digest)?)
        }
        _ => Found::OtherKind,
    })
}

/// Add to the number of a key. After a lost answer it is not known whether it happened.
pub(crate) async fn increment(link: &Link, key: &str, delta: i64) -> Result<i64, Error> {
    const COMMAND: &str = "INCRBY";
    let mut cmd = redis::cmd(COMMAND);
    cmd.arg(key).arg(delta);
    let reply = link.call(COMMAND, &cmd).await?;
    reply::integer(COMMAND, &reply)
}

/// Set a value, if the present one is the one that was seen. After a lost answer it is not known whether it
/// happened.
pub(crate) async fn swap(
    link: &Link,
    key: &str,
    seen: &Seen,
    value: &[u8],
) -> Result<Swapped, Error> {
    let script = &scripts::SWAP_VALUE;
    let mut call = script.on(&[key]);
    call.arg(value);
    if let Some((length, digest)) = &seen.value {
        call.arg(*length).arg(digest);
    }
    let reply = link.run(script, &call).await?;
    Ok(match &*reply::text(script.name(), reply)? {
        "done" => Swapped::Done,
        "changed" => Swapped::Changed,
        _ => Swapped::OtherKind,
    })
}

/// Some keys with values that begin so, and the cursor of the next ones; 0 = the first ones, or there are no
/// more. Looks at about `count` keys of the database.
pub(crate) async fn keys(
    link: &Link,
    prefix: &str,
    cursor: u64,
    count: usize,
) -> Result<(Vec<String>, u64), Error> {
    const COMMAND: &str = "SCAN";
    let mut cmd = redis::cmd(COMMAND);
    cmd.arg(cursor).arg("MATCH").arg(pattern(prefix));
    cmd.arg("COUNT").arg(count).arg("TYPE").arg("string");
    let reply = link.call(COMMAND, &cmd).await?;
    let [next, found] = reply::tuple(COMMAND, reply)?;
    let next = reply::text(COMMAND, next)?.parse();
    let next = next.map_err(|_| reply::invalid(COMMAND, "a cursor that is no number"))?;
    let found = reply::values(COMMAND, found)?.into_iter();
    // A name that is no text is not a handler's.
    let names = found.filter_map(|key| String::from_utf8(key.into()).ok());
    Ok((names.collect(), next))
}

/// The keys that begin so, as a pattern.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(pattern("{o}:kv:a*[b]?"), r"{o}:kv:a\*\[b\]\?*");
    }
}
