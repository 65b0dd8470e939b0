//! Dead letters: copied, then taken off the queue, by one script wherever one can do it.

use std::sync::Arc;

use bytes::Bytes;
use redis::Cmd;

use super::StreamQueue;
use super::settle::Replies;
use crate::delivery::policy::Rejection;
use crate::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use crate::queue::dead_letters::Destination;
use crate::queue::{Claim, Reply, Settlement};
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::script_reply::{full, refused, word_reply};
use crate::wire::Raw;
use crate::wire::dead_letter::{self, Context};
use crate::wire::entry_id::entry_id;

/// Most dead letters, and about how many bytes of them, in one round trip.
const DEAD_LETTERS_PER_PIPELINE: usize = 100;
const DEAD_LETTER_BYTES_PER_PIPELINE: usize = 1 << 20;
/// Lua's `unpack` cannot pass more than about 8,000 values.
const FIELDS_IN_SCRIPT: usize = 3500;

/// A dead letter: the place of its settlement, why, and the handler.
pub(super) type Letter<'a> = (usize, &'a Rejection, &'a Arc<str>);

impl StreamQueue {
    pub(super) async fn dead_letter_all(
        &self,
        settlements: &[Settlement],
        dead_letters: &[Letter<'_>],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        if dead_letters.is_empty() {
            return Ok(());
        }
        let rules = self.rules.now();
        let Some(target) = &rules.dead_letter else {
            for (place, ..) in dead_letters {
                replies[*place] = Some(Reply::Refused("no dead-letter key is set".to_owned()));
            }
            return Ok(());
        };
        let now_ms = self.time.now_ms();
        let mut apart = Vec::new();
        let mut ways = Vec::new();
        let (mut calls, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        for letter @ (place, rejection, handler) in dead_letters {
            let settlement = &settlements[*place];
            let (to, fields) = self.copy_of(settlement, target, rejection, handler, now_ms);
            ways.push((*place, to.clone()));
            if fields.len() > FIELDS_IN_SCRIPT {
                apart.push(*letter);
                continue;
            }
            bytes += fields.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>();
            calls.push(self.dead_letter_call(settlement, target, &to.key, &fields));
            places.push(*letter);
            if calls.len() >= DEAD_LETTERS_PER_PIPELINE || bytes >= DEAD_LETTER_BYTES_PER_PIPELINE {
                let calls = std::mem::take(&mut calls);
                apart.extend(self.run_dead_letters(calls, &places, replies).await?);
                places.clear();
                bytes = 0;
            }
        }
        apart.extend(self.run_dead_letters(calls, &places, replies).await?);
        for (place, rejection, handler) in apart {
            let settlement = &settlements[place];
            let (to, fields) = self.copy_of(settlement, target, rejection, handler, now_ms);
            let reply = self.copy_then_discard(settlement, target, &to.key, &fields);
            let reply = reply.await;
            replies[place] = Some(reply.or_else(|error| refused(self.about(error)))?);
        }
        for (place, to) in ways {
            if replies[place] == Some(Reply::Done) {
                self.counts.written(&settlements[place].claim, &to);
            }
        }
        Ok(())
    }

    /// Where a dead letter goes, and its fields.
    fn copy_of(
        &self,
        settlement: &Settlement,
        target: &DeadLetterQueue,
        rejection: &Rejection,
        handler: &str,
        now_ms: u64,
    ) -> (Destination, Vec<(Bytes, Bytes)>) {
        let claim: &Claim = &settlement.claim;
        let raw: &[(Bytes, Bytes)] = match &claim.raw {
            Raw::Fields(fields) => fields,
            // A stream's claims have fields; a value would be copied as a body without headers.
            Raw::Value(_) => &[],
        };
        let context = Context {
            source: self.key(),
            source_id: &entry_id(claim.id),
            group: Some(self.group()),
            rejection,
            handler,
            now_ms,
            expires_at_ms: settlement.expires_at_ms,
        };
        let headers = crate::wire::stream::headers(raw);
        let to = Destination::of(target, &headers, &context);
        (to, dead_letter::stream_fields(raw, &headers, &context))
    }

    fn dead_letter_call(
        &self,
        settlement: &Settlement,
        target: &DeadLetterQueue,
        key: &str,
        fields: &[(Bytes, Bytes)],
    ) -> Cmd {
        let mut call = Script::DeadLetter.on(&[self.key(), key]);
        call.arg(self.group())
            .arg(&self.consumer)
            .arg(entry_id(settlement.claim.id))
            .arg(settlement.count)
            .arg(target.bound(key, self.key()).unwrap_or(0))
            .arg(match target.on_full {
                OnFull::DropOldest => "drop-oldest",
                OnFull::Stop => "stop",
            });
        for (name, value) in fields {
            call.arg(name.as_ref()).arg(value.as_ref());
        }
        call
    }

    /// Run the script; returns those that it cannot carry, because their target is in another
    /// slot of a cluster.
    async fn run_dead_letters<'a>(
        &self,
        calls: Vec<Cmd>,
        letters: &[Letter<'a>],
        replies: &mut Replies,
    ) -> Result<Vec<Letter<'a>>, Error> {
        let script = Script::DeadLetter;
        let answers = script::run_all(&self.commands, script, calls).await?;
        let mut apart = Vec::new();
        for (&letter, answer) in letters.iter().zip(answers) {
            let reply = match reply::accepted(script.name(), answer) {
                Ok(answer) => {
                    let [word, dropped] = reply::tuple(script.name(), answer)?;
                    let dropped = reply::count(script.name(), &dropped)?;
                    self.counts.dropped(dropped);
                    word_reply(script.name(), word)?
                }
                Err(Error::Configuration { code, .. }) if code == "CROSSSLOT" => {
                    apart.push(letter);
                    continue;
                }
                Err(error) => refused(self.about(error))?,
            };
            replies[letter.0] = Some(reply);
        }
        Ok(apart)
    }

    /// A dead letter that no script can carry: copy first, then take it off the queue, so that a
    /// crash between the two leaves a duplicate, never a loss.
    async fn copy_then_discard(
        &self,
        settlement: &Settlement,
        target: &DeadLetterQueue,
        key: &str,
        fields: &[(Bytes, Bytes)],
    ) -> Result<Reply, Error> {
        const COMMAND: &str = "XADD";
        match self.ask_owned(Script::Holds, settlement).await? {
            Reply::Done => {}
            other => return Ok(other),
        }
        let mut length = Cmd::new();
        length.arg("XLEN").arg(key);
        let before = reply::count("XLEN", &self.commands.call("XLEN", &length).await?)?;
        let mut add = Cmd::new();
        add.arg(COMMAND).arg(key);
        match (target.bound(key, self.key()), target.on_full) {
            (Some(max), OnFull::Stop) if before >= max => return Ok(full()),
            (Some(max), OnFull::DropOldest) => {
                add.arg("MAXLEN").arg("~").arg(max);
            }
            _ => {}
        }
        add.arg("*");
        for (name, value) in fields {
            add.arg(name.as_ref()).arg(value.as_ref());
        }
        self.commands.call(COMMAND, &add).await?;
        let after = reply::count("XLEN", &self.commands.call("XLEN", &length).await?)?;
        self.counts.dropped((before + 1).saturating_sub(after));
        self.ask_owned(Script::Discard, settlement).await
    }

    /// The word of a script about one delivery that this host must own.
    async fn ask_owned(&self, script: Script, settlement: &Settlement) -> Result<Reply, Error> {
        let mut call = script.on(&[self.key()]);
        call.arg(self.group())
            .arg(&self.consumer)
            .arg(entry_id(settlement.claim.id))
            .arg(settlement.count);
        let reply = script::run(&self.commands, script, &call).await?;
        let [word] = reply::tuple(script.name(), reply)?;
        word_reply(script.name(), word)
    }
}
