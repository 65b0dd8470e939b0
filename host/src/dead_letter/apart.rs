//! Replays that no script can carry: copied first, then deleted.

use std::time::Duration;

use redis::{Cmd, Value};

use super::replay::{Move, Written};
use super::{DeadLetters, Entry};
use crate::queue::reply;
use crate::queue::{Class, Error as RedisError};
use crate::wire::keys;

/// How long a move that no script can do holds its entry, at most.
const MOVE_MAX: Duration = Duration::from_secs(60);

impl DeadLetters {
    /// Move an entry that no script can carry: its target is in another slot, or it has too many
    /// fields. Copied first, then deleted, so that a crash in between leaves a duplicate, never a
    /// loss; a record keeps a second replay from doing the same meanwhile.
    pub(super) async fn copy_then_delete(&self, one: &Move<'_>) -> Result<Value, RedisError> {
        let id = &one.entry.id;
        let moving = keys::derived(&self.key, &format!("moving:{id}"));
        let mut hold = Cmd::new();
        hold.arg("SET").arg(&moving).arg(1).arg("NX");
        hold.arg("PX").arg(MOVE_MAX.as_millis().to_string());
        if self.link.call("SET", &hold).await? == Value::Nil {
            return Ok(Value::SimpleString("gone".to_owned()));
        }
        let moved = async {
            if !self.holds(one.entry).await? {
                return Ok("gone");
            }
            let name = one.copy.command();
            let mut add = Cmd::new();
            add.arg(name).arg(&one.target);
            if let Written::Fields(_) = one.copy {
                add.arg("*");
            }
            one.copy.push(&mut add);
            self.link.call(name, &add).await?;
            let (name, delete) = self.removal(one.entry);
            self.link.call(name, &delete).await?;
            Ok("done")
        };
        let moved: Result<&str, RedisError> = moved.await;
        // Unless the reply was lost: then the record goes by itself.
        if !matches!(&moved, Err(error) if error.class() == Class::Reconnect) {
            let mut release = Cmd::new();
            release.arg("DEL").arg(&moving);
            self.link.call("DEL", &release).await?;
        }
        moved.map(|word| Value::SimpleString(word.to_owned()))
    }

    /// Whether an entry is there.
    async fn holds(&self, entry: &Entry) -> Result<bool, RedisError> {
        let mut look = Cmd::new();
        if let Some(value) = &entry.value {
            look.arg("LPOS").arg(&self.key).arg(&value[..]);
            look.arg("RANK").arg(-1);
            return Ok(self.link.call("LPOS", &look).await? != Value::Nil);
        }
        look.arg("XRANGE").arg(&self.key);
        look.arg(&entry.id).arg(&entry.id);
        let there = self.link.call("XRANGE", &look).await?;
        Ok(!reply::array("XRANGE", there)?.is_empty())
    }

    /// The command that takes it away.
    fn removal(&self, entry: &Entry) -> (&'static str, Cmd) {
        let mut removal = Cmd::new();
        match &entry.value {
            Some(value) => {
                removal.arg("LREM").arg(&self.key).arg(-1).arg(&value[..]);
                ("LREM", removal)
            }
            None => {
                removal.arg("XDEL").arg(&self.key).arg(&entry.id);
                ("XDEL", removal)
            }
        }
    }
}
