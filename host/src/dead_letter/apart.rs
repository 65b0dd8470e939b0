//! Replays that no one script can do: the target is in another slot, or the entry has too many
//! fields. They go in steps: held, copied, removed.
//!
//! | step | written | by |
//! |---|---|---|
//! | hold | `{orders:dead}:moving:<id>`: who moves it until when, a token, where it goes | `move_hold` |
//! | copy | the copy, and `{orders}:moved:<token>` with it | `move_copy` |
//! | done | the entry and the record of its move are removed | `move_done` |
//!
//! Crash windows: whoever dies on the way leaves the entry where it is, held for [`HOLD`] at most.
//! Then the next replay takes it up with the same token: if the copy is written, its record says so,
//! and only the removal is left. So a move that was interrupted is finished, not repeated, whether
//! it comes to the same target or to another one. A copy is written twice where somebody stands
//! still for that long between two steps and then goes on, where nobody replays for [`KEPT`], and
//! where an entry has so many fields that its copy and the record are two commands: never lost.

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::replay::{Move, Written};
use super::{DeadLetters, Entry};
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::{Class, Error as RedisError};
use crate::wire::keys;

/// For how long an entry is held for who moves it in steps.
const HOLD: Duration = Duration::from_secs(30);
/// For how long is remembered how far an interrupted move came.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The record of a copy that is written; any other text: it is not known.
const WRITTEN: &str = "1";

/// How a move in steps came out.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Moved {
    /// It is in this queue.
    To(String),
    /// It is not there: moved or deleted by somebody else.
    Gone,
    /// Somebody else moves it, or was interrupted a moment ago.
    Held,
}

/// A hold.
enum Hold {
    Mine(Mine),
    Not(Moved),
}

struct Mine {
    token: String,
    /// Where whoever began this move meant it to go.
    target: String,
    since: Instant,
}

impl DeadLetters {
    /// Move an entry in steps, as `owner`.
    pub(super) async fn move_in_steps(
        &self,
        one: &Move<'_>,
        owner: &str,
    ) -> Result<Moved, RedisError> {
        let mut hold = match self.hold(one, owner, false).await? {
            Hold::Mine(hold) => hold,
            Hold::Not(moved) => return Ok(moved),
        };
        if hold.target != one.target && !self.is_copied(&hold).await? {
            // Begun by somebody who meant it to go elsewhere, and did not come that far.
            hold = match self.hold(one, owner, true).await? {
                Hold::Mine(hold) => hold,
                Hold::Not(moved) => return Ok(moved),
            };
        }
        if hold.target == one.target {
            // It may be somebody else's soon.
            if hold.since.elapsed() > HOLD / 2 {
                return Ok(Moved::Held);
            }
            if let Err(error) = self.copy(one, &hold).await {
                // Where it will never be written, nothing is to be finished, and another target may
                // be tried at once. Else who comes next finishes it: the hold goes by itself.
                if error.class() == Class::Configuration {
                    let record = keys::moving(&self.key, &one.entry.id);
                    if let Err(error) = self.forget(&record).await {
                        tracing::debug!(%error, record, "the hold of an entry stays for a while");
                    }
                }
                return Err(error);
            }
        }
        let mut done = self.step(Script::MoveDone, one.entry);
        done.arg(owner).arg(&hold.token);
        let word = script::run(&self.link, Script::MoveDone, &done).await?;
        let moved = match reply::text(Script::MoveDone.name(), word)?.as_str() {
            "done" => Moved::To(hold.target.clone()),
            "moving" => return Ok(Moved::Held),
            _ => Moved::Gone,
        };
        // Nobody has this token any more: what cannot be deleted now goes by itself.
        let record = keys::moved(&hold.target, &hold.token);
        if let Err(error) = self.forget(&record).await {
            tracing::debug!(%error, record, "the record of a copy stays for a day");
        }
        Ok(moved)
    }

    /// Hold an entry; `anew`: whatever somebody else had begun.
    async fn hold(&self, one: &Move<'_>, owner: &str, anew: bool) -> Result<Hold, RedisError> {
        let name = Script::MoveHold.name();
        let token = format!("{:032x}", fastrand::u128(..));
        let mut hold = self.step(Script::MoveHold, one.entry);
        hold.arg(owner).arg(token).arg(&one.target);
        hold.arg(milliseconds(HOLD)).arg(milliseconds(KEPT));
        hold.arg(u8::from(anew));
        let since = Instant::now();
        let answer = script::run(&self.link, Script::MoveHold, &hold).await?;
        let mut words = reply::array(name, answer)?
            .into_iter()
            .map(|word| reply::text(name, word));
        let mut next = || words.next().transpose().map(Option::unwrap_or_default);
        Ok(match next()?.as_str() {
            "held" => Hold::Mine(Mine {
                token: next()?,
                target: next()?,
                since,
            }),
            "moving" => Hold::Not(Moved::Held),
            _ => Hold::Not(Moved::Gone),
        })
    }

    /// Write the copy, unless it is written.
    async fn copy(&self, one: &Move<'_>, hold: &Mine) -> Result<(), RedisError> {
        let name = one.copy.command();
        let record = keys::moved(&one.target, &hold.token);
        if one.copy.is_too_long() || !keys::can_share_slot(&one.target) {
            return self.copy_and_record(one, hold, &record).await;
        }
        let mut copy = Script::MoveCopy.on(&[&one.target, &record]);
        copy.arg(milliseconds(KEPT)).arg(name);
        one.copy.push(&mut copy);
        script::run(&self.link, Script::MoveCopy, &copy)
            .await
            .map(drop)
    }

    /// The same where no script can write both.
    async fn copy_and_record(
        &self,
        one: &Move<'_>,
        hold: &Mine,
        record: &str,
    ) -> Result<(), RedisError> {
        if self.is_copied(hold).await? {
            return Ok(());
        }
        // Whoever may not write the record leaves no copy either.
        self.record(record, "").await?;
        let name = one.copy.command();
        let mut add = Cmd::new();
        add.arg(name).arg(&one.target);
        if let Written::Fields(_) = one.copy {
            add.arg("*");
        }
        one.copy.push(&mut add);
        self.link.call(name, &add).await?;
        self.record(record, WRITTEN).await
    }

    async fn record(&self, record: &str, text: &str) -> Result<(), RedisError> {
        let mut set = Cmd::new();
        set.arg("SET").arg(record).arg(text);
        set.arg("PX").arg(milliseconds(KEPT));
        self.link.call("SET", &set).await.map(drop)
    }

    async fn is_copied(&self, hold: &Mine) -> Result<bool, RedisError> {
        let mut get = Cmd::new();
        get.arg("GET").arg(keys::moved(&hold.target, &hold.token));
        Ok(match self.link.call("GET", &get).await? {
            Value::Nil => false,
            text => reply::text("GET", text)? == WRITTEN,
        })
    }

    async fn forget(&self, key: &str) -> Result<(), RedisError> {
        let mut delete = Cmd::new();
        delete.arg("DEL").arg(key);
        self.link.call("DEL", &delete).await.map(drop)
    }

    /// A call of a script about an entry; arguments follow.
    fn step(&self, script: Script, entry: &Entry) -> Cmd {
        let mut call = script.on(&[&self.key, &keys::moving(&self.key, &entry.id)]);
        match &entry.value {
            None => call.arg("stream").arg(&entry.id),
            Some(value) => call.arg("list").arg(&value[..]),
        };
        call
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
