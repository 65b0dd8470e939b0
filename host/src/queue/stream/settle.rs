//! What becomes of claims: starts recorded, leases renewed, deliveries settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Pipeline};

use super::{PARKED_CONSUMER, StreamQueue};
use crate::wire::entry_id::entry_id;

use crate::queue::{Claim, Record, Reply, SettleAction, Settlement};
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::script_reply::{incomplete, refused, word_reply};

/// Most deliveries in one call of a script: they block Redis.
const PER_CALL: usize = 100;
/// Most calls in one round trip.
const PER_PIPELINE: usize = 20;
/// Most ids in one `XACK`.
const PER_XACK: usize = 1000;

/// The calls that send deliveries away, by number, and up to which of them there was an answer.
///
/// A call without an answer may still be carried out, at any time: it is stuck in a connection that
/// this host has given up. Asked again, the deliveries may be back here soon, owner and count as
/// they were; if the first call came then, they would go again, and this host would not know. So
/// whatever comes behind a call without an answer voids it first.
#[derive(Debug, Default)]
pub(super) struct Calls {
    begun: AtomicU64,
    answered: AtomicU64,
}

impl Calls {
    /// The number of the next call, and whether one before it had no answer.
    fn begin(&self) -> (u64, bool) {
        let before = self.begun.fetch_add(1, Ordering::Relaxed);
        (before + 1, self.answered.load(Ordering::Relaxed) < before)
    }

    /// It was answered; what was sent before was as well, or is void.
    fn end(&self, number: u64) {
        self.answered.fetch_max(number, Ordering::Relaxed);
    }
}

/// A call of a script about several deliveries, and which ones.
struct Batch {
    call: Cmd,
    places: Vec<usize>,
}

/// One reply for each delivery, until all are known.
pub(super) type Replies = Vec<Option<Reply>>;

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
            match &settlement.action {
                SettleAction::Park { .. } | SettleAction::HandBack { .. } => park.push(place),
                SettleAction::Leave { .. } => leave.push(place),
                SettleAction::Discard(_) => discard.push(place),
                SettleAction::DeadLetter(rejection) => {
                    dead_letters.push((place, rejection, &settlement.handler));
                }
            }
        }
        let mut replies: Replies = vec![None; settlements.len()];

        self.send_away(settlements, &park, &leave, &mut replies)
            .await?;
        let id_and_count = |place: usize, call: &mut Cmd| {
            let settlement = &settlements[place];
            call.arg(entry_id(settlement.claim.id))
                .arg(settlement.count);
        };
        let batches = self.batches(Script::Discard, &discard, &[], id_and_count);
        self.run(Script::Discard, batches, &mut replies, refused)
            .await?;

        self.dead_letter_all(settlements, &dead_letters, &mut replies)
            .await?;
        all(Script::DeadLetter, replies)
    }

    /// Park deliveries, or leave them to others.
    async fn send_away(
        &self,
        settlements: &[Settlement],
        park: &[usize],
        leave: &[usize],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        if park.is_empty() && leave.is_empty() {
            return Ok(());
        }
        let number = match self.void_unanswered().await {
            Ok(number) => number,
            Err(error) => {
                let reply = refused(self.about(error))?;
                for &place in park.iter().chain(leave) {
                    replies[place] = Some(reply.clone());
                }
                return Ok(());
            }
        };
        let written = number.to_string();
        let batches = self.batches(
            Script::Park,
            park,
            &[&written, PARKED_CONSUMER],
            |place, call| {
                let settlement = &settlements[place];
                if let Some((keep, after)) = settlement.action.parking() {
                    call.arg(entry_id(settlement.claim.id))
                        .arg(settlement.count)
                        .arg(keep)
                        .arg(round_up_millis(after));
                }
            },
        );
        self.run(Script::Park, batches, replies, refused).await?;
        let idle = round_up_millis(self.options.min_idle).to_string();
        let batches = self.batches(Script::Leave, leave, &[&written, &idle], |place, call| {
            let settlement = &settlements[place];
            if let SettleAction::Leave { keep } = settlement.action {
                call.arg(entry_id(settlement.claim.id))
                    .arg(settlement.count)
                    .arg(keep);
            }
        });
        self.run(Script::Leave, batches, replies, refused).await?;
        self.calls.end(number);
        Ok(())
    }

    /// The number of the next call that sends deliveries away. What was sent before and had no
    /// answer is void from here on.
    ///
    /// Dies here: nothing was sent yet.
    async fn void_unanswered(&self) -> Result<u64, Error> {
        let (number, is_owed) = self.calls.begin();
        if is_owed {
            let script = Script::Fence;
            let mut call = script.on(&[&self.fences]);
            call.arg(&self.consumer).arg(number);
            script::run(&self.commands, script, &call).await?;
        }
        Ok(number)
    }

    /// Calls of a script about at most [`PER_CALL`] deliveries each.
    fn batches(
        &self,
        script: Script,
        places: &[usize],
        more: &[&str],
        each: impl Fn(usize, &mut Cmd),
    ) -> Vec<Batch> {
        let keys = match script {
            Script::Park => vec![self.key(), &self.parked, &self.fences],
            Script::Leave => vec![self.key(), &self.fences],
            _ => vec![self.key()],
        };
        places
            .chunks(PER_CALL)
            .map(|places| {
                let mut call = script.on(&keys);
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
}

fn all(script: Script, replies: Replies) -> Result<Vec<Reply>, Error> {
    let known: Option<Vec<Reply>> = replies.into_iter().collect();
    known.ok_or_else(|| incomplete(script.name()))
}

/// At least as long as was asked for.
fn round_up_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
