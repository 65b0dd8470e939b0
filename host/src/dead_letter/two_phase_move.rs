//! Replays that one script cannot do: the target is in another slot, or the entry has too many fields.
//! They are two-phase moves: hold, copy, remove.
//!
//! | step | written | by |
//! |---|---|---|
//! | hold | `{orders:dead}:moving:<id>`: who moves it until when, a token, where it goes | `move_hold` |
//! | copy | the copy, and `{orders}:moved:<token>` with it | `move_copy` |
//! | done | the entry and the record of its move are removed | `move_done` |
//!
//! Crash windows: a process that dies on the way leaves the entry where it is, held for [`HOLD`] at
//! most. Then the next replay takes the move up with the same token. If the copy is written, its record
//! says so, and only the removal is left. So an interrupted move is finished, not repeated, to the same
//! target or to another one. A copy is written twice in three cases: a process stands still for that
//! long between two steps and then goes on; nobody replays for [`RECORDS_KEPT`]; an entry has so many
//! fields that its copy and the record are two commands. An entry is never lost.

use std::time::Duration;

use redis::{Cmd, Value, cmd};
use tokio::time::Instant;

use super::{DeadLetters, Entry};
use crate::delivery::millis::millis;
use crate::redis::script::{self, Script};
use crate::redis::{Class, Error, copy, reply};
use crate::wire::{Raw, keys};

/// For how long the process that moves an entry holds it.
const HOLD: Duration = Duration::from_secs(30);
/// For how long the records of an interrupted move are kept.
const RECORDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The record of a copy that is written. Any other text: the copy may be written or not.
const WRITTEN: &str = "1";

/// One entry to move.
pub(super) struct Move<'e> {
    pub(super) entry: &'e Entry,
    pub(super) target: String,
    pub(super) copy: Raw,
}

/// The result of a move.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Moved {
    /// It is in this queue.
    To(String),
    /// Somebody else moved or deleted it.
    Gone,
    /// Somebody else moves it, or was interrupted a moment ago.
    Held,
}

/// A hold of this process.
struct Hold {
    token: String,
    /// The target of the process that began this move.
    target: String,
    since: Instant,
}

/// Move an entry, as `owner`.
pub(super) async fn move_in_two_phases(
    letters: &DeadLetters,
    one: &Move<'_>,
    owner: &str,
) -> Result<Moved, Error> {
    let mut held = hold(letters, one, owner, false).await?;
    if let Ok(begun) = &held
        && begun.target != one.target
        && !is_copied(letters, begun).await?
    {
        // Somebody began it for another target, and wrote no copy.
        held = hold(letters, one, owner, true).await?;
    }
    let hold = match held {
        Ok(hold) => hold,
        Err(moved) => return Ok(moved),
    };
    if hold.target == one.target {
        // Another process may take it up soon.
        if hold.since.elapsed() > HOLD / 2 {
            return Ok(Moved::Held);
        }
        if let Err(error) = write(letters, one, &hold).await {
            // If Redis will never write it, another target may be tried at once. Else the next replay
            // finishes the move: the hold expires.
            if error.class() == Class::Configuration {
                let record = keys::moving(&letters.key, &one.entry.id);
                if let Err(error) = forget(letters, &record).await {
                    tracing::debug!(%error, record, "the hold of an entry stays for a while");
                }
            }
            return Err(error);
        }
    }
    let mut done = step(letters, Script::MoveDone, one.entry);
    done.arg(owner).arg(&hold.token);
    let word = script::run(&letters.link, Script::MoveDone, &done).await?;
    let moved = match reply::text(Script::MoveDone.name(), word)?.as_str() {
        "done" => Moved::To(hold.target.clone()),
        "moving" => return Ok(Moved::Held),
        _ => Moved::Gone,
    };
    // No process has this token anymore: a record that cannot be deleted now expires.
    let record = keys::moved(&hold.target, &hold.token);
    if let Err(error) = forget(letters, &record).await {
        tracing::debug!(%error, record, "the record of a copy stays for a day");
    }
    Ok(moved)
}

/// Hold an entry, or say why not. `anew`: drop the move that somebody else began.
async fn hold(
    letters: &DeadLetters,
    one: &Move<'_>,
    owner: &str,
    anew: bool,
) -> Result<Result<Hold, Moved>, Error> {
    let name = Script::MoveHold.name();
    let token = format!("{:032x}", fastrand::u128(..));
    let mut hold = step(letters, Script::MoveHold, one.entry);
    hold.arg(owner).arg(token).arg(&one.target);
    hold.arg(millis(HOLD)).arg(millis(RECORDS_KEPT));
    hold.arg(u8::from(anew));
    let since = Instant::now();
    let answer = script::run(&letters.link, Script::MoveHold, &hold).await?;
    let mut words = reply::array(name, answer)?
        .into_iter()
        .map(|word| reply::text(name, word));
    let mut next = || words.next().transpose().map(Option::unwrap_or_default);
    Ok(match next()?.as_str() {
        "held" => Ok(Hold {
            token: next()?,
            target: next()?,
            since,
        }),
        "moving" => Err(Moved::Held),
        _ => Err(Moved::Gone),
    })
}

/// Write the copy, unless it is written.
async fn write(letters: &DeadLetters, one: &Move<'_>, hold: &Hold) -> Result<(), Error> {
    let command = copy::command(&one.copy);
    let record = keys::moved(&one.target, &hold.token);
    if copy::fits_script(&one.copy) && keys::can_share_slot(&one.target) {
        let mut call = Script::MoveCopy.on(&[&one.target, &record]);
        call.arg(millis(RECORDS_KEPT)).arg(command);
        copy::push(&one.copy, &mut call);
        let written = script::run(&letters.link, Script::MoveCopy, &call).await;
        return written.map(drop);
    }
    // No script can write both.
    if is_copied(letters, hold).await? {
        return Ok(());
    }
    // A user that may not write the record leaves no copy either.
    write_record(letters, &record, "").await?;
    let mut add = cmd(command);
    add.arg(&one.target);
    if let Raw::Fields(_) = one.copy {
        add.arg("*");
    }
    copy::push(&one.copy, &mut add);
    letters.link.call(command, &add).await?;
    write_record(letters, &record, WRITTEN).await
}

async fn write_record(letters: &DeadLetters, record: &str, text: &str) -> Result<(), Error> {
    let mut set = cmd("SET");
    set.arg(record)
        .arg(text)
        .arg("PX")
        .arg(millis(RECORDS_KEPT));
    letters.link.call("SET", &set).await.map(drop)
}

async fn is_copied(letters: &DeadLetters, hold: &Hold) -> Result<bool, Error> {
    let mut get = cmd("GET");
    get.arg(keys::moved(&hold.target, &hold.token));
    Ok(match letters.link.call("GET", &get).await? {
        Value::Nil => false,
        text => reply::text("GET", text)? == WRITTEN,
    })
}

async fn forget(letters: &DeadLetters, key: &str) -> Result<(), Error> {
    letters
        .link
        .call("DEL", cmd("DEL").arg(key))
        .await
        .map(drop)
}

/// A call of a script about an entry; arguments follow.
fn step(letters: &DeadLetters, script: Script, entry: &Entry) -> Cmd {
    let moving = keys::moving(&letters.key, &entry.id);
    let mut call = script.on(&[&letters.key, &moving]);
    entry.name_in(&mut call);
    call
}
