//! An entry of an outbox: what is written to the destination, in fields that people can read.
//!
//! | destination | fields |
//! |---|---|
//! | stream | `write` = `append`, then the fields of the entry |
//! | list | `write` = `push`, `value` |
//! | sharded channel | `write` = `announce-shard`, `value` |
//! | a stream or a list, later | `write` = `later`, `due` = epoch ms, `member` |

use std::borrow::Cow;

use bytes::Bytes;
use redis::Cmd;

use crate::outgoing::write::Write;
use crate::wire::keys;

/// The destination of an outbox.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct To {
    kind: Kind,
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Stream,
    List,
    Channel,
}

impl To {
    /// The destination of this label, such as `stream:invoices`.
    pub(super) fn parse(label: &str) -> Option<Self> {
        let (kind, name) = label.split_once(':')?;
        let kind = match kind {
            "stream" => Kind::Stream,
            "list" => Kind::List,
            "channel" => Kind::Channel,
            _ => return None,
        };
        (!name.is_empty()).then(|| Self {
            kind,
            name: name.to_owned(),
        })
    }

    /// The keys that these entries write. A channel has no key.
    pub(super) fn keys(&self, entries: &[Entry]) -> Vec<String> {
        let is_later = |entry: &Entry| entry.verb() == Some(b"later");
        let (later, now) = (entries.iter().any(is_later), !entries.iter().all(is_later));
        let mut all = Vec::new();
        if now && self.kind != Kind::Channel {
            all.push(self.name.clone());
        }
        if later {
            all.push(keys::delayed(&self.name));
        }
        all
    }

    /// Add what an entry writes to the arguments of a script; `place` is that of a key. Returns whether it
    /// could be read.
    pub(super) fn add(
        &self,
        entry: &Entry,
        place: impl Fn(&str) -> Option<usize>,
        call: &mut Cmd,
    ) -> bool {
        let rest = entry.fields.get(1..).unwrap_or_default();
        let key = place(&self.name);
        let (verb, place, arguments) = match (entry.verb(), self.kind, rest) {
            (Some(b"append"), Kind::Stream, fields) if !fields.is_empty() => {
                let flat = fields.iter().flat_map(|(name, value)| [name, value]);
                ("append", key, flat.map(Bytes::as_ref).collect())
            }
            (Some(b"push"), Kind::List, [(_, value)]) => ("push", key, vec![&value[..]]),
            (Some(b"announce-shard"), Kind::Channel, [(_, value)]) => {
                let announced = vec![self.name.as_bytes(), value];
                ("announce-shard", Some(0), announced)
            }
            (Some(b"later"), Kind::Stream | Kind::List, [(_, due), (_, member)]) => {
                let key = place(&keys::delayed(&self.name));
                ("due", key, vec![&due[..], member])
            }
            _ => return false,
        };
        let Some(place) = place else {
            return false;
        };
        // One write.
        call.arg(&entry.id).arg(1);
        call.arg(verb).arg(place).arg(arguments.len());
        for argument in arguments {
            call.arg(argument);
        }
        true
    }
}

/// An entry, as it was read.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) fields: Vec<(Bytes, Bytes)>,
}

impl Entry {
    fn verb(&self) -> Option<&[u8]> {
        let (name, verb) = self.fields.first()?;
        (name == "write").then_some(verb)
    }
}

/// The names and values of the entry for a write. A delay becomes a due time in the script.
pub(crate) fn encode(write: &Write) -> Vec<Cow<'_, [u8]>> {
    let word = |word: &'static str| Cow::Borrowed(word.as_bytes());
    let mut out = vec![word("write")];
    match write {
        Write::Append { fields, .. } => {
            out.push(word("append"));
            let flat = fields.iter().flat_map(|(name, value)| [name, value]);
            out.extend(flat.map(|part| Cow::Borrowed(&part[..])));
        }
        Write::Push { value, .. } => {
            out.extend([word("push"), word("value"), Cow::Borrowed(value)]);
        }
        Write::Announce { value, .. } => {
            out.extend([word("announce-shard"), word("value"), Cow::Borrowed(value)]);
        }
        Write::Later(later) => {
            let delay = later.delay_ms.to_string().into_bytes();
            out.extend([word("later"), word("due"), Cow::Owned(delay)]);
            out.extend([word("member"), Cow::Borrowed(&later.member[..])]);
        }
        // Keys of a handler, and inboxes, are in the slot of the queue: no outbox holds their writes.
        Write::Value { .. } | Write::Answer { .. } | Write::Expect { .. } => {}
        // An outbox holds no entries for outboxes.
        Write::Outbox { write, .. } => return encode(write),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(label: &str, parts: &[&str]) -> bool {
        let field = |pair: &[&str]| {
            (
                Bytes::from(pair[0].to_owned()),
                Bytes::from(pair[1].to_owned()),
            )
        };
        let entry = Entry {
            id: "1-0".to_owned(),
            fields: parts.chunks(2).map(field).collect(),
        };
        let to = To::parse(label).unwrap();
        let keys = to.keys(std::slice::from_ref(&entry));
        let place = |key: &str| keys.iter().position(|known| known == key).map(|at| at + 2);
        to.add(&entry, place, &mut Cmd::new())
    }

    #[test]
    fn an_entry_fits_its_destination() {
        assert!(read("stream:a", &["write", "append", "_payload", "x"]));
        assert!(read("list:a", &["write", "push", "value", "x"]));
        assert!(read(
            "channel:a",
            &["write", "announce-shard", "value", "x"]
        ));
        for label in ["stream:a", "list:a:b"] {
            assert!(read(label, &["write", "later", "due", "1", "member", "x"]));
        }
        for (label, parts) in [
            ("stream:a", &["write", "push", "value", "x"][..]),
            ("stream:a", &["write", "append"]),
            ("stream:a", &["_payload", "x"]),
            ("list:a", &["write", "append", "_payload", "x"]),
            ("channel:a", &["write", "later", "due", "1", "member", "x"]),
            ("list:a", &[]),
        ] {
            assert!(!read(label, parts), "{label} {parts:?}");
        }
        for label in ["", "stream", "stream:", "set:a"] {
            assert_eq!(To::parse(label), None, "{label}");
        }
    }
}
