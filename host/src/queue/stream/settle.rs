//! What becomes of claims: starts recorded, leases renewed, deliveries settled.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value};

use super::{DeadLetterQueue, OnFull, PARKED_CONSUMER, StreamQueue, entry_id};
use crate::delivery::policy::Rejection;
use crate::queue::error::Error;
use crate::queue::reply;
use crate::queue::script::{self, Script};
use crate::queue::{Claim, Record, Reply, Settlement, Step};
use crate::wire::Raw;
use crate::wire::dead_letter::{self, Context};

/// Most deliveries in one call of a script: they block Redis.
const PER_CALL: usize = 100;
/// Most calls in one round trip.
const PER_PIPELINE: usize = 20;
/// Most ids in one `XACK`.
const PER_XACK: usize = 1000;
/// Most dead letters, and about how many bytes of them, in one round trip.
const DEAD_LETTERS_PER_PIPELINE: usize = 100;
const DEAD_LETTER_BYTES_PER_PIPELINE: usize = 1 << 20;
/// Lua's `unpack` cannot pass more than about 8,000 values.
const FIELDS_IN_SCRIPT: usize = 3500;

/// A call of a script about several deliveries, and which ones.
struct Batch {
    call: Cmd,
    places: Vec<usize>,
}

/// A dead letter: the place of its settlement, why, and the handler.
type Letter<'a> = (usize, &'a Rejection, &'a Arc<str>);

/// One reply for each delivery, until all are known.
type Replies = Vec<Option<Reply>>;

impl StreamQueue {
    pub(super) async fn record_starts(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        let places: Vec<usize> = (0..records.len()).collect();
        let batches = self.batches(Script::Record, &places, &[], |place, call| {
            let record = &records[place];
            call.arg(entry_id(record.claim.id))
                .arg(record.expect)
                .arg(record.write);
        });
        let mut replies = vec![None; records.len()];
        self.run(Script::Record, batches, &mut replies, Err).await?;
        all(Script::Record, replies)
    }

    pub(super) async fn renew_leases(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        let places: Vec<usize> = (0..claims.len()).collect();
        let batches = self.batches(Script::Renew, &places, &[], |place, call| {
            call.arg(entry_id(claims[place].id));
        });
        let mut replies = vec![None; claims.len()];
        self.run(Script::Renew, batches, &mut replies, Err).await?;
        all(Script::Renew, replies)
    }

    pub(super) async fn acknowledge_all(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        const COMMAND: &str = "XACK";
        let mut pipeline = Pipeline::new();
        for chunk in claims.chunks(PER_XACK) {
            let cmd = pipeline.cmd(COMMAND).arg(self.key()).arg(self.group());
            for claim in chunk {
                cmd.arg(entry_id(claim.id));
            }
        }
        for reply in self.commands.pipeline(COMMAND, &pipeline).await? {
            reply::accepted(COMMAND, reply)?;
        }
        Ok(())
    }

    pub(super) async fn settle_all(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        let (mut park, mut leave, mut discard) = (Vec::new(), Vec::new(), Vec::new());
        let mut dead_letters = Vec::new();
        for (place, settlement) in settlements.iter().enumerate() {
            match &settlement.step {
                Step::Park { .. } => park.push(place),
                Step::Leave { .. } => leave.push(place),
                Step::Discard => discard.push(place),
                Step::DeadLetter { rejection, handler } => {
                    dead_letters.push((place, rejection, handler));
                }
            }
        }
        let mut replies: Replies = vec![None; settlements.len()];

        let batches = self.batches(Script::Park, &park, &[PARKED_CONSUMER], |place, call| {
            let settlement = &settlements[place];
            if let Step::Park { keep, after } = settlement.step {
                call.arg(entry_id(settlement.claim.id))
                    .arg(settlement.count)
                    .arg(keep)
                    .arg(round_up_millis(after));
            }
        });
        self.run(Script::Park, batches, &mut replies, refused)
            .await?;

        let id_and_count = |place: usize, call: &mut Cmd| {
            let settlement = &settlements[place];
            call.arg(entry_id(settlement.claim.id))
                .arg(settlement.count);
        };
        let idle = round_up_millis(self.options.min_idle).to_string();
        let batches = self.batches(Script::Leave, &leave, &[&idle], |place, call| {
            id_and_count(place, call);
            if let Step::Leave { keep } = settlements[place].step {
                call.arg(keep);
            }
        });
        self.run(Script::Leave, batches, &mut replies, refused)
            .await?;
        let batches = self.batches(Script::Discard, &discard, &[], id_and_count);
        self.run(Script::Discard, batches, &mut replies, refused)
            .await?;

        self.dead_letter_all(settlements, &dead_letters, &mut replies)
            .await?;
        all(Script::DeadLetter, replies)
    }

    /// Calls of a script about at most [`PER_CALL`] deliveries each.
    fn batches(
        &self,
        script: Script,
        places: &[usize],
        more: &[&str],
        each: impl Fn(usize, &mut Cmd),
    ) -> Vec<Batch> {
        let keys = [self.key(), self.parked.as_str()];
        let keys = if matches!(script, Script::Park) {
            &keys[..]
        } else {
            &keys[..1]
        };
        places
            .chunks(PER_CALL)
            .map(|places| {
                let mut call = script.on(keys);
                call.arg(self.group()).arg(&self.consumer).arg(more);
                for &place in places {
                    each(place, &mut call);
                }
                Batch {
                    call,
                    places: places.to_vec(),
                }
            })
            .collect()
    }

    /// Run batches and note their words; `refusal` says what a refused batch means.
    async fn run(
        &self,
        script: Script,
        batches: Vec<Batch>,
        replies: &mut Replies,
        refusal: impl Fn(Error) -> Result<Reply, Error>,
    ) -> Result<(), Error> {
        let command = script.name();
        let mut batches = batches.into_iter().peekable();
        while batches.peek().is_some() {
            let (calls, places): (Vec<_>, Vec<_>) = batches
                .by_ref()
                .take(PER_PIPELINE)
                .map(|batch| (batch.call, batch.places))
                .unzip();
            let answers = script::run_all(&self.commands, script, calls).await?;
            for (places, answer) in places.into_iter().zip(answers) {
                match reply::accepted(command, answer) {
                    Ok(words) => {
                        let words = reply::array(command, words)?;
                        if words.len() != places.len() {
                            return Err(incomplete(command));
                        }
                        for (place, word) in places.into_iter().zip(words) {
                            replies[place] = Some(word_reply(command, word)?);
                        }
                    }
                    Err(error) => {
                        let reply = refusal(self.about(error))?;
                        for place in places {
                            replies[place] = Some(reply.clone());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn dead_letter_all(
        &self,
        settlements: &[Settlement],
        dead_letters: &[Letter<'_>],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        if dead_letters.is_empty() {
            return Ok(());
        }
        let Some(target) = &self.options.dead_letter else {
            for (place, ..) in dead_letters {
                replies[*place] = Some(Reply::Refused("no dead-letter key is set".to_owned()));
            }
            return Ok(());
        };
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        let mut apart = Vec::new();
        let (mut calls, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        for letter @ (place, rejection, handler) in dead_letters {
            let settlement = &settlements[*place];
            let fields = self.copy_of(&settlement.claim, rejection, handler, now_ms);
            if fields.len() > FIELDS_IN_SCRIPT {
                apart.push(*letter);
                continue;
            }
            bytes += fields.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>();
            calls.push(self.dead_letter_call(settlement, target, &fields));
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
            let fields = self.copy_of(&settlement.claim, rejection, handler, now_ms);
            let reply = self.copy_then_discard(settlement, target, &fields).await;
            replies[place] = Some(reply.or_else(|error| refused(self.about(error)))?);
        }
        Ok(())
    }

    /// The fields of a dead letter.
    fn copy_of(
        &self,
        claim: &Claim,
        rejection: &Rejection,
        handler: &str,
        now_ms: u64,
    ) -> Vec<(Bytes, Bytes)> {
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
        };
        dead_letter::stream_fields(raw, &crate::wire::stream::headers(raw), &context)
    }

    fn dead_letter_call(
        &self,
        settlement: &Settlement,
        target: &DeadLetterQueue,
        fields: &[(Bytes, Bytes)],
    ) -> Cmd {
        let mut call = Script::DeadLetter.on(&[self.key(), &target.key]);
        call.arg(self.group())
            .arg(&self.consumer)
            .arg(entry_id(settlement.claim.id))
            .arg(settlement.count)
            .arg(target.max_len.unwrap_or(0))
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
                    self.count_dropped(dropped);
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
        fields: &[(Bytes, Bytes)],
    ) -> Result<Reply, Error> {
        const COMMAND: &str = "XADD";
        match self.ask_owned(Script::Holds, settlement).await? {
            Reply::Done => {}
            other => return Ok(other),
        }
        let mut length = Cmd::new();
        length.arg("XLEN").arg(&target.key);
        let before = reply::count("XLEN", &self.commands.call("XLEN", &length).await?)?;
        let mut add = Cmd::new();
        add.arg(COMMAND).arg(&target.key);
        match (target.max_len, target.on_full) {
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
        self.count_dropped((before + 1).saturating_sub(after));
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

    fn count_dropped(&self, dropped: u64) {
        self.dead_letters_dropped
            .fetch_add(dropped, Ordering::Relaxed);
    }
}

/// What Redis refused to write about a delivery: it is as it was. Everything else (no group, a
/// server that loads or follows) concerns more than this delivery.
fn refused(error: Error) -> Result<Reply, Error> {
    match &error {
        Error::Unavailable { code, .. }
            if matches!(code.as_str(), "OOM" | "MISCONF" | "NOREPLICAS") =>
        {
            Ok(Reply::Refused(error.to_string()))
        }
        Error::Configuration { code, .. } if code != "NOAUTH" => {
            Ok(Reply::Refused(error.to_string()))
        }
        _ => Err(error),
    }
}

fn full() -> Reply {
    Reply::Refused("the dead-letter queue is full".to_owned())
}

pub(super) fn word_reply(command: &'static str, word: Value) -> Result<Reply, Error> {
    let word = reply::text(command, word)?;
    Ok(match word.as_str() {
        "done" => Reply::Done,
        "gone" => Reply::Gone,
        "trimmed" => Reply::Trimmed,
        "stolen" => Reply::Stolen,
        "full" => full(),
        _ => {
            return Err(Error::Reply {
                command,
                detail: "a word that we do not know".to_owned(),
            });
        }
    })
}

fn all(script: Script, replies: Replies) -> Result<Vec<Reply>, Error> {
    let known: Option<Vec<Reply>> = replies.into_iter().collect();
    known.ok_or_else(|| incomplete(script.name()))
}

fn incomplete(command: &'static str) -> Error {
    Error::Reply {
        command,
        detail: "not one reply for each delivery".to_owned(),
    }
}

/// At least as long as was asked for.
fn round_up_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
