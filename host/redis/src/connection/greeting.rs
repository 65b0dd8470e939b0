//! What a server says of itself when a connection is opened: the reply of `HELLO`.

use redis::Value;

/// What a server says of itself, as far as the user may know it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Greeting {
    /// The id of the connection.
    pub(super) client_id: Option<i64>,
    /// It is a node of a cluster.
    pub(super) is_cluster: bool,
    /// It is no primary.
    pub(super) is_replica: bool,
}

impl Greeting {
    /// From the reply of `HELLO`: a map, or its names and values in a row.
    pub(super) fn of(reply: &Value) -> Self {
        let is = |value: &Value, text: &str| match value {
            Value::BulkString(bytes) => bytes == text.as_bytes(),
            Value::SimpleString(found) | Value::VerbatimString { text: found, .. } => found == text,
            _ => false,
        };
        let mut greeting = Self::default();
        let mut note = |name: &Value, value: &Value| {
            if is(name, "mode") {
                greeting.is_cluster = is(value, "cluster");
            } else if is(name, "role") {
                greeting.is_replica = is(value, "replica") || is(value, "slave");
            }
        };
        match reply {
            Value::Map(entries) => entries.iter().for_each(|(name, value)| note(name, value)),
            Value::Array(parts) => {
                for pair in parts.chunks_exact(2) {
                    note(&pair[0], &pair[1]);
                }
            }
            _ => {}
        }
        greeting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_the_reply_are_understood() {
        let text = |text: &str| Value::BulkString(text.into());
        let pairs = [
            ("server", "redis"),
            ("mode", "cluster"),
            ("role", "replica"),
        ];
        let map = Value::Map(pairs.map(|(n, v)| (text(n), text(v))).to_vec());
        let row = Value::Array(pairs.iter().flat_map(|(n, v)| [text(n), text(v)]).collect());
        for reply in [map, row] {
            let greeting = Greeting::of(&reply);
            assert!(greeting.is_cluster && greeting.is_replica, "{reply:?}");
        }
        let greeting = Greeting::of(&Value::Okay);
        assert!(!greeting.is_cluster && !greeting.is_replica);
    }
}
