//! Settling: how deliveries leave the pending list, and what is removed behind them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use redis::Cmd;

use crate::calls::words::{refused, word_reply};
use crate::calls::{self, Replies};
use crate::delivery::millis::millis_up;
use crate::queue::at_least_once::{AtLeastOnce, Base, Destination};
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::stream::scripts;
use crate::queue::{Claim, Maintenance, Reply, SettleAction, Settlement, Sweep};
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::Script;
use crate::wire::dead_letter::{self, Context};
use crate::wire::entry_id::entry_id;
use crate::wire::keys::{self, EPOCH_CONSUMER, UNPARKED_CONSUMER};
use crate::wire::stream::header_field;
use crate::wire::{self, Raw, list};

use super::options::Retention;
use super::{PARKED_CONSUMER, StreamQueue};

/// For how long Redis keeps what the last request of a host has acknowledged with effects: longer than a
/// host that lost an answer is away.
const ACTED_MS: u64 = 24 * 60 * 60 * 1000;
/// For how long a consumer must not have been seen before it is removed.
const CONSUMER_IDLE_MS: u64 = 60 * 60 * 1000;
/// Most consumers removed in one go.
const CONSUMERS_MAX: usize = 100;
/// How many records of holds one look is about.
const HELD_SWEPT_MAX: u64 = 100;
/// Most entries trimmed by one script: it blocks Redis. And most scripts in one go.
const TRIM_MAX: u64 = 10_000;
const TRIM_CALLS_MAX: usize = 10;

impl AtLeastOnce for StreamQueue {
    const DEAD_LETTER: &'static Script = &scripts::DEAD_LETTER;
    const ACKNOWLEDGE: (&'static Script, &'static Script) =
        (&scripts::ACKNOWLEDGE, &scripts::ACKNOWLEDGE_ONLY);

    fn base(&self) -> &Base {
        &self.base
    }

    fn key(&self) -> &str {
        &self.options.key
    }

    fn group(&self) -> Option<&str> {
        Some(&self.options.group)
    }

    fn source_id(&self, claim: &Claim) -> String {
        entry_id(claim.id)
    }

    fn about(&self, error: Error) -> Error {
        error.about(&self.options.key, &self.options.group)
    }

    fn starts_before(&self, claim: &Claim) -> u32 {
        claim.header
    }

    async fn send_away(
        &self,
        settlements: &[Settlement],
        places: &[usize],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        if places.is_empty() {
            return Ok(());
        }
        // Until the answer is here.
        let mut under_way = self.calls.lock().await;
        let number = match self.void_unanswered(&mut under_way).await {
            Ok(number) => number,
            Err(error) => {
                let reply = refused(error)?;
                for &place in places {
                    replies[place] = Some(reply.clone());
                }
                return Ok(());
            }
        };
        let (parked, left): (Vec<_>, Vec<_>) = places
            .iter()
            .copied()
            .partition(|place| settlements[*place].action.parking().is_some());
        let id = |place: usize| settlements[place].claim.id;
        let refusal = |error| refused(self.about(error));
        let mut park = self.call_in_epoch(&scripts::PARK, &[&self.fences, &self.parked]);
        park.arg(number).arg(PARKED_CONSUMER).arg(UNPARKED_CONSUMER);
        let batches = self.batches(&parked, park, id, |place, call| {
            let settlement = &settlements[place];
            if let Some((keep, after)) = settlement.action.parking() {
                call.arg(settlement.count).arg(keep);
                let delay = millis_up(after);
                match (&settlement.action, settlement.reserved_ms) {
                    (SettleAction::Hold { .. }, _) => call.arg(format!("-{delay}")),
                    (SettleAction::HandBack { .. }, Some(start)) if delay > 0 => {
                        call.arg(format!("+{start}"))
                    }
                    _ => call.arg(delay),
                };
            }
        });
        let link = &self.base.commands;
        calls::run(link, &scripts::PARK, batches, replies, refusal).await?;
        let mut leave = self.call_in_epoch(&scripts::LEAVE, &[&self.fences]);
        leave.arg(number).arg(millis_up(self.base.terms.largest()));
        let batches = self.batches(&left, leave, id, |place, call| {
            let settlement = &settlements[place];
            if let SettleAction::Leave { keep } = settlement.action {
                call.arg(settlement.count).arg(keep);
            }
        });
        calls::run(link, &scripts::LEAVE, batches, replies, refusal).await?;
        under_way.end();
        Ok(())
    }

    async fn discard(
        &self,
        settlements: &[Settlement],
        places: &[usize],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let script = &scripts::DISCARD;
        let mut call = self.call_in_epoch(script, &[&self.parked]);
        call.arg(self.journal_index());
        let id = |place: usize| settlements[place].claim.id;
        let batches = self.batches(places, call, id, |place, call| {
            call.arg(settlements[place].count);
        });
        let refusal = |error| refused(self.about(error));
        calls::run(&self.base.commands, script, batches, replies, refusal).await
    }

    fn acknowledge_call(&self, script: &'static Script, keys: &[&str]) -> (Cmd, usize) {
        let keys = [&[self.acted.as_str(), &self.written, &self.parked], keys].concat();
        (self.call_in_epoch(script, &keys), 4)
    }

    fn acknowledge_arguments(&self, call: &mut Cmd) {
        call.arg(self.base.acts.number())
            .arg(ACTED_MS)
            .arg(self.journal_index());
    }

    fn acknowledge_one(&self, settlement: &Settlement, call: &mut Cmd) {
        call.arg(entry_id(settlement.claim.id))
            .arg(settlement.count);
    }

    fn copy_of(
        &self,
        claim: &Claim,
        target: &DeadLetterQueue,
        context: &Context<'_>,
        _records: &BTreeMap<u32, Bytes>,
    ) -> Result<(Destination, Raw), list::Error> {
        let fields = match &claim.raw {
            Raw::Fields(fields) => &fields[..],
            // A stream's claims have fields.
            Raw::Value(_) => &[],
        };
        let headers = wire::stream::headers(fields);
        let (copy, died) = dead_letter::stream_fields(fields, &headers, context);
        Ok((Destination::of(target, &died, context), Raw::Fields(copy)))
    }

    fn dead_letter_call(&self, key: &str) -> Cmd {
        let mut call = self.call_in_epoch(&scripts::DEAD_LETTER, &[key, &self.parked]);
        call.arg(self.journal_index());
        call
    }

    fn dead_letter_one(&self, settlement: &Settlement, call: &mut Cmd) {
        call.arg(settlement.count);
    }

    fn discard_copied_call(
        &self,
        settlement: &Settlement,
        key: &str,
    ) -> Option<(&'static Script, Cmd)> {
        let script = &scripts::DISCARD_COPIED;
        let mut call = self.call_in_epoch(script, &[key, &self.parked]);
        let id = entry_id(settlement.claim.id);
        let (name, value) = header_field(dead_letter::SOURCE_ID.as_bytes(), id.clone().into());
        call.arg(id)
            .arg(settlement.count)
            .arg(&name[..])
            .arg(&value[..])
            .arg(self.journal_index());
        Some((script, call))
    }

    async fn journal_field(&self, claim: &Claim) -> Result<Option<(Bytes, Bytes)>, Error> {
        let Some(journals) = &self.journals else {
            return Ok(None);
        };
        // The records that the entry holds are in the copy already.
        let (records, _) = journals
            .records(&self.base.commands, &entry_id(claim.id))
            .await?;
        let field = || {
            (
                Bytes::from_static(wire::journal::FIELD),
                wire::journal::text(&records),
            )
        };
        Ok((!records.is_empty()).then(field))
    }

    async fn holds(
        &self,
        settlement: &Settlement,
        _trimmed: Option<&str>,
        is_wide: bool,
    ) -> Result<Reply, Error> {
        let script = &scripts::HOLDS;
        let mut call = self.call_in_epoch(script, &[]);
        call.arg(entry_id(settlement.claim.id))
            .arg(settlement.count)
            .arg(u8::from(is_wide));
        word_reply(script.name(), self.run(script, &call).await?)
    }

    async fn check_overflow(
        &self,
        length: u64,
        target: Option<&DeadLetterQueue>,
    ) -> Result<Reply, Error> {
        let is_over = self.find_over(length).await?;
        match target {
            _ if !is_over => Ok(Reply::Gone),
            None => Ok(Reply::Done),
            Some(target) => {
                let looked = self.look_at_target(target).await;
                looked.or_else(|error| refused(self.about(error)))
            }
        }
    }

    async fn claim_over(&self, _length: u64, want: usize) -> Result<(Vec<Claim>, u64), Error> {
        self.claim_unread_over(want).await
    }

    async fn keep_tidy(&self, done: &mut Maintenance) -> Result<(), Error> {
        // A host that made the group again may have died before it was done.
        self.park_again().await?;
        let length = match self.options.retention {
            Retention::Keep => None,
            Retention::Acked => Some(String::new()),
            Retention::MaxLen(length) => Some(length.to_string()),
        };
        if let Some(length) = length {
            self.trim(&length, done).await?;
        }
        let script = &scripts::CONSUMERS;
        let mut call = script.on(&[self.key(), &self.fences]);
        call.arg(self.group())
            .arg(CONSUMER_IDLE_MS)
            .arg(CONSUMERS_MAX)
            .arg("")
            .arg(EPOCH_CONSUMER)
            .arg(&self.base.consumer)
            .arg(PARKED_CONSUMER)
            .arg(UNPARKED_CONSUMER);
        let removed = self.run(script, &call).await?;
        done.consumers_removed = reply::count(script.name(), &removed)?;
        if done.consumers_removed >= CONSUMERS_MAX as u64 {
            done.unfinished.push(Sweep::Consumers);
        }
        if self.some_on_hold.load(Ordering::Relaxed) {
            let script = &scripts::HELD_SWEEP;
            let mut call = self.call_in_epoch(script, &[&self.parked]);
            call.arg(HELD_SWEPT_MAX)
                .arg(fastrand::f64())
                .arg(UNPARKED_CONSUMER);
            self.run(script, &call).await?;
        }
        if let Some(journals) = &self.journals {
            let script = &scripts::JOURNAL_SWEEP;
            let call = self.call_in_epoch(script, &[&journals.index]);
            let link = &self.base.commands;
            let swept = journals.sweep(link, script, call, done).await;
            swept.map_err(|error| self.about(error))?;
        }
        Ok(())
    }
}

impl StreamQueue {
    /// Trim what every group has acknowledged: all of it, or down to a length.
    async fn trim(&self, length: &str, done: &mut Maintenance) -> Result<(), Error> {
        let script = &scripts::RETAIN;
        let mut call = script.on(&[self.key()]);
        call.arg(TRIM_MAX)
            .arg(length)
            .arg(UNPARKED_CONSUMER)
            .arg(PARKED_CONSUMER)
            .arg(keys::parked(self.key(), ""))
            .arg(self.group())
            .arg(match self.cursors().seen_entry {
                Some(_) => self.base.consumer.as_str(),
                None => "",
            });
        for _ in 0..TRIM_CALLS_MAX {
            let reply = self.run(script, &call).await?;
            let [trimmed, held, more] = reply::tuple(script.name(), reply)?;
            done.trimmed += reply::count(script.name(), &trimmed)?;
            done.held_back = reply::integer(script.name(), &held)? == 1;
            if reply::integer(script.name(), &more)? == 0 {
                return Ok(());
            }
        }
        done.unfinished.push(Sweep::Retention);
        Ok(())
    }
}
