//! Replays that one script cannot do: the target is in another slot, or the entry has too many fields.
//! They are two-phase moves: hold, copy, remove.
//!
//! | step | written | by |
//! |---|---|---|
//! | hold | `{orders:dead}:moving:<id>`: who moves it until when, a token, where it goes | `move_hold` |
//! | copy | the copy, and `{orders}:moved:<token>` with it | `move_copy` |
//! | void | that record: this copy is written nowhere anymore | `move_void` |
//! | done | the entry and the record of its move are removed | `move_done` |
//!
//! Crash windows: a process that dies on the way leaves the entry where it is, held for [`HOLD`] at
//! most. Then the next replay takes the move up with the same token. If the copy is written, its record
//! says so, and only the removal is left. So an interrupted move is finished, not repeated, to the same
//! target or to another one.
//!
//! A process that stood still may go on at any time, and a call may come late. Such a former owner writes
//! no second copy: the record of a copy outlives a move that was taken up, and who moves the entry to
//! another target voids the first copy before. It ends no hold but its own.
//!
//! A copy is written twice in three cases: no process replays for [`RECORDS_KEPT`]; an entry has too many
//! fields for one command, so its copy and the record are two; a user who may not write the record of the
//! first copy moves the entry elsewhere. An entry is never lost.

use std::time::Duration;

use redis::{Cmd, Value, cmd};
use tokio::time::Instant;

use super::{DeadLetters, Entry};
use crate::calls::copy;
use crate::dead_letter::scripts;
use crate::delivery::millis::millis;
use crate::redis::script::Script;
use crate::redis::{Class, Error, reply};
use crate::wire::{Raw, keys};

/// For how long the process that moves an entry holds it.
const HOLD: Duration = Duration::from_secs(30);
/// For how long the records of an interrupted move are kept.
const RECORDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The record of a copy that is written, and of one that is not and must not be. Any other text: the
/// copy may be written or not.
const WRITTEN: &str = "1";
const VOID: &str = "void";

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
    /// Another process moved or deleted it.
    Gone,
    /// Another process moves it, or was interrupted a moment ago.
    Held,
}

/// A hold of this process.
struct Hold {
    token: String,
    /// The target of the process that began this move.
    target: String,
    /// The token is of an earlier hold: the process that had it may still write the copy.
    is_taken_up: bool,
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
        && !is_copied_or_void(letters, begun).await?
    {
        // A process began it for another target, and wrote no copy.
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
            if error.class() == Class::Configuration
                && let Err(error) = give_up(letters, one, owner, &hold).await
            {
                tracing::debug!(%error, id = &*one.entry.id, "the hold of an entry stays for a while");
            }
            return Err(error);
        }
    }
    let moved = match end(letters, one, owner, &hold, "remove").await?.as_str() {
        "done" => Moved::To(hold.target.clone()),
        "moving" => return Ok(Moved::Held),
        _ => Moved::Gone,
    };
    // Others who had this token must find the record. Else no process has it anymore, and a record that
    // cannot be deleted now expires.
    if !hold.is_taken_up {
        let record = keys::moved(&hold.target, &hold.token);
        let deleted = letters.link.call("DEL", cmd("DEL").arg(&record)).await;
        if let Err(error) = deleted {
            tracing::debug!(%error, record, "the record of a copy stays for a day");
        }
    }
    Ok(moved)
}

/// End the hold, and keep the entry.
async fn give_up(
    letters: &DeadLetters,
    one: &Move<'_>,
    owner: &str,
    hold: &Hold,
) -> Result<(), Error> {
    // This process has written nothing, but another one may still do so.
    if hold.is_taken_up && void(letters, hold).await? {
        return Ok(());
    }
    end(letters, one, owner, hold, "keep").await.map(drop)
}

/// End the move if this process still holds it; returns the word of the script.
async fn end(
    letters: &DeadLetters,
    one: &Move<'_>,
    owner: &str,
    hold: &Hold,
    entry: &str,
) -> Result<String, Error> {
    let mut done = step(letters, &scripts::MOVE_DONE, one.entry);
    done.arg(owner).arg(&hold.token).arg(entry);
    word(letters, &scripts::MOVE_DONE, &done).await
}

async fn word(letters: &DeadLetters, script: &'static Script, call: &Cmd) -> Result<String, Error> {
    reply::text(script.name(), letters.link.run(script, call).await?)
}

/// Let no process write the copy of this hold anymore. Returns whether it is written.
async fn void(letters: &DeadLetters, hold: &Hold) -> Result<bool, Error> {
    let script = &scripts::MOVE_VOID;
    let mut call = script.on(&[&keys::moved(&hold.target, &hold.token)]);
    call.arg(millis(RECORDS_KEPT));
    Ok(word(letters, script, &call).await? == "written")
}

/// Whether the copy of this hold is written. If not, no process writes it anymore, as far as this user
/// may say so.
async fn is_copied_or_void(letters: &DeadLetters, hold: &Hold) -> Result<bool, Error> {
    match void(letters, hold).await {
        Err(error) if error.class() == Class::Configuration => {
            Ok(record_of(letters, hold).await?.as_deref() == Some(WRITTEN))
        }
        other => other,
    }
}

/// Hold an entry, or say why not. `anew`: drop the move that another process began.
async fn hold(
    letters: &DeadLetters,
    one: &Move<'_>,
    owner: &str,
    anew: bool,
) -> Result<Result<Hold, Moved>, Error> {
    let name = scripts::MOVE_HOLD.name();
    let token = format!("{:032x}", fastrand::u128(..));
    let mut hold = step(letters, &scripts::MOVE_HOLD, one.entry);
    hold.arg(owner).arg(token).arg(&one.target);
    hold.arg(millis(HOLD)).arg(millis(RECORDS_KEPT));
    hold.arg(u8::from(anew));
    let since = Instant::now();
    let answer = letters.link.run(&scripts::MOVE_HOLD, &hold).await?;
    let mut words = reply::array(name, answer)?
        .into_iter()
        .map(|word| reply::text(name, word));
    let mut next = || words.next().transpose().map(Option::unwrap_or_default);
    Ok(match next()?.as_str() {
        "held" => Ok(Hold {
            token: next()?,
            target: next()?,
            is_taken_up: next()? == "1",
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
        let mut call = scripts::MOVE_COPY.on(&[&one.target, &record]);
        call.arg(millis(RECORDS_KEPT)).arg(command);
        copy::push(&one.copy, &mut call);
        let written = letters.link.run(&scripts::MOVE_COPY, &call).await;
        return written.map(drop);
    }
    // No script can write both.
    let found = record_of(letters, hold).await?;
    if matches!(found.as_deref(), Some(WRITTEN | VOID)) {
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
    set.arg(record).arg(text);
    set.arg("PX").arg(millis(RECORDS_KEPT));
    letters.link.call("SET", &set).await.map(drop)
}

/// The record of the copy of this hold.
async fn record_of(letters: &DeadLetters, hold: &Hold) -> Result<Option<String>, Error> {
    let mut get = cmd("GET");
    get.arg(keys::moved(&hold.target, &hold.token));
    match letters.link.call("GET", &get).await? {
        Value::Nil => Ok(None),
        text => reply::text("GET", text).map(Some),
    }
}

/// A call of a script about an entry; arguments follow.
fn step(letters: &DeadLetters, script: &'static Script, entry: &Entry) -> Cmd {
    let moving = keys::moving(&letters.key, &entry.id);
    let mut call = script.on(&[&letters.key, &moving]);
    entry.name_in(&mut call);
    call
}
