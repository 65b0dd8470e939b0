//! What becomes of claims: starts recorded, leases renewed, deliveries settled.

use std::sync::Arc;

use std::time::Duration;

use redis::{Cmd, Pipeline};

use super::{PARKED_CONSUMER, StreamQueue, entry_id};

use crate::queue::error::Error;
use crate::queue::reply;
use crate::queue::script::{self, Script};
use crate::queue::words::{incomplete, refused, word_reply};
use crate::queue::{Claim, Record, Reply, Settlement, Step};

/// Most deliveries in one call of a script: they block Redis.
const PER_CALL: usize = 100;
/// Most calls in one round trip.
const PER_PIPELINE: usize = 20;
/// Most ids in one `XACK`.
const PER_XACK: usize = 1000;

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
            match &settlement.step {
                Step::Park { .. } => park.push(place),
                Step::Leave { .. } => leave.push(place),
                Step::Discard => discard.push(place),
                Step::DeadLetter {
                    rejection, handler, ..
                } => {
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
}

fn all(script: Script, replies: Replies) -> Result<Vec<Reply>, Error> {
    let known: Option<Vec<Reply>> = replies.into_iter().collect();
    known.ok_or_else(|| incomplete(script.name()))
}

/// At least as long as was asked for.
fn round_up_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
