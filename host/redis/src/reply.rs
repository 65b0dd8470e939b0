//! Replies of Redis in parts, of RESP2 and RESP3. Buffers are moved, not copied.

use bytes::Bytes;
use redis::Value;

use crate::error::Error;

/// A reply of a wrong shape.
pub fn invalid(command: &'static str, detail: impl Into<String>) -> Error {
    Error::Reply {
        command,
        detail: detail.into(),
    }
}

/// A reply of a wrong shape: only its kind is named.
pub fn unexpected(command: &'static str, found: &Value) -> Error {
    // The kind only: the content may be a payload.
    let kind = match found {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::BulkString(_) | Value::SimpleString(_) | Value::VerbatimString { .. } => "a string",
        Value::Array(_) | Value::Set(_) => "an array",
        Value::Okay => "OK",
        Value::Map(_) => "a map",
        Value::Push { .. } => "a push",
        _ => "something else",
    };
    invalid(command, kind)
}

/// A reply in a pipeline, if it is not an error.
pub fn accepted(command: &'static str, value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(Error::refused(
            command,
            error.code(),
            error.details().unwrap_or_default(),
        )),
        value => Ok(value),
    }
}

/// A string.
pub fn bytes(command: &'static str, value: Value) -> Result<Bytes, Error> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.into()),
        Value::Okay => Ok(Bytes::from_static(b"OK")),
        other => Err(unexpected(command, &other)),
    }
}

/// A string that is UTF-8, or a number.
pub fn text(command: &'static str, value: Value) -> Result<String, Error> {
    match value {
        Value::BulkString(bytes) => {
            String::from_utf8(bytes).map_err(|_| invalid(command, "a string that is not UTF-8"))
        }
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text),
        Value::Okay => Ok("OK".to_owned()),
        Value::Int(number) => Ok(number.to_string()),
        other => Err(unexpected(command, &other)),
    }
}

/// A number.
pub fn integer(command: &'static str, value: &Value) -> Result<i64, Error> {
    let parsed = match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok()),
        Value::SimpleString(text) => text.parse().ok(),
        _ => None,
    };
    parsed.ok_or_else(|| unexpected(command, value))
}

/// A number that is never negative.
pub fn count(command: &'static str, value: &Value) -> Result<u64, Error> {
    let number = integer(command, value)?;
    u64::try_from(number).map_err(|_| invalid(command, "a negative number"))
}

/// An array; nil is an empty one.
pub fn array(command: &'static str, value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::Array(items) | Value::Set(items) => Ok(items),
        Value::Nil => Ok(Vec::new()),
        other => Err(unexpected(command, &other)),
    }
}

/// An array of strings.
pub fn values(command: &'static str, value: Value) -> Result<Vec<Bytes>, Error> {
    array(command, value)?
        .into_iter()
        .map(|value| bytes(command, value))
        .collect()
}

/// An array of exactly this many values.
pub fn tuple<const N: usize>(command: &'static str, value: Value) -> Result<[Value; N], Error> {
    array(command, value)?
        .try_into()
        .map_err(|items: Vec<Value>| Error::Reply {
            command,
            detail: format!("an array of {} where {N} were expected", items.len()),
        })
}

/// Pairs: a map, or an array of alternating names and values.
pub fn pairs(command: &'static str, value: Value) -> Result<Vec<(Value, Value)>, Error> {
    match value {
        Value::Map(pairs) => Ok(pairs),
        Value::Nil => Ok(Vec::new()),
        other => {
            let items = array(command, other)?;
            let mut pairs = Vec::with_capacity(items.len() / 2);
            let mut items = items.into_iter();
            while let Some(name) = items.next() {
                let value = items
                    .next()
                    .ok_or_else(|| invalid(command, "an odd number of names and values"))?;
                pairs.push((name, value));
            }
            Ok(pairs)
        }
    }
}

/// The fields of an entry, in order.
pub fn fields(command: &'static str, value: Value) -> Result<Vec<(Bytes, Bytes)>, Error> {
    pairs(command, value)?
        .into_iter()
        .map(|(name, value)| Ok((bytes(command, name)?, bytes(command, value)?)))
        .collect()
}

/// The members of a sorted set with their scores.
pub fn scored(command: &'static str, value: Value) -> Result<Vec<(Bytes, u64)>, Error> {
    let items = array(command, value)?;
    // RESP3 has pairs, RESP2 a flat array.
    let is_paired = items.iter().all(|item| matches!(item, Value::Array(_)));
    let pairs = match is_paired {
        true => {
            let pairs = items.into_iter().map(|pair| tuple(command, pair));
            pairs
                .map(|pair| pair.map(|[member, score]| (member, score)))
                .collect::<Result<Vec<_>, Error>>()?
        }
        false => pairs(command, Value::Array(items))?,
    };
    let scored = pairs
        .into_iter()
        .map(|(member, found)| Ok((bytes(command, member)?, score(command, &found)?)));
    scored.collect()
}

/// The score of a member of such a set: its whole part, at least 0. Other writers may use fractions and `inf`.
pub fn score(command: &'static str, value: &Value) -> Result<u64, Error> {
    let number = exact_score(command, value)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    Ok(number as u64)
}

/// The same with its fraction.
pub fn exact_score(command: &'static str, value: &Value) -> Result<f64, Error> {
    match value {
        Value::Double(number) => Ok(*number),
        other => text(command, other.clone())?
            .parse()
            .map_err(|_| invalid(command, "a score that is not a number")),
    }
}

/// The time of a server (`TIME`), in epoch milliseconds.
pub fn time_ms(command: &'static str, value: Value) -> Result<u64, Error> {
    let [seconds, micros] = tuple(command, value)?;
    Ok(count(command, &seconds)? * 1000 + count(command, &micros)? / 1000)
}

/// Named values of an `XINFO`-like reply, looked up by name.
pub struct Info {
    command: &'static str,
    pairs: Vec<(Value, Value)>,
}

impl Info {
    /// Of the reply to this command.
    pub fn new(command: &'static str, value: Value) -> Result<Self, Error> {
        Ok(Self {
            command,
            pairs: pairs(command, value)?,
        })
    }

    /// The value of this name, moved out; nil if it is missing.
    pub fn take(&mut self, name: &str) -> Value {
        let mut pairs = self.pairs.iter_mut();
        pairs
            .find(|(key, _)| is_named(key, name))
            .map_or(Value::Nil, |(_, value)| std::mem::take(value))
    }

    /// The value of this name; nil if it is missing.
    pub fn get(&self, name: &str) -> Value {
        let mut pairs = self.pairs.iter();
        pairs
            .find(|(key, _)| is_named(key, name))
            .map_or(Value::Nil, |(_, value)| value.clone())
    }

    /// The number of this name, which is never negative.
    pub fn count(&mut self, name: &str) -> Result<u64, Error> {
        count(self.command, &self.take(name))
    }

    /// The text of this name.
    pub fn text(&mut self, name: &str) -> Result<String, Error> {
        text(self.command, self.take(name))
    }
}

fn is_named(key: &Value, name: &str) -> bool {
    match key {
        Value::BulkString(bytes) => bytes == name.as_bytes(),
        Value::SimpleString(text) => text == name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_same_number_in_both_protocols() {
        for (text, number) in [
            ("1795560295925", 1_795_560_295_925),
            ("1795560295925.75", 1_795_560_295_925),
            ("1.7e+12", 1_700_000_000_000),
            ("-3", 0),
            ("inf", u64::MAX),
        ] {
            let double = Value::Double(text.parse().unwrap());
            for value in [Value::BulkString(text.into()), double] {
                assert_eq!(score("ZSCORE", &value).unwrap(), number, "{text}");
            }
        }
        assert!(score("ZSCORE", &Value::BulkString("soon".into())).is_err());
    }
}
