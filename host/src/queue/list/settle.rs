//! What becomes of claims: starts recorded, leases renewed, deliveries settled.

use std::sync::Arc;

use redis::Cmd;

use super::token::Token;
use super::value::{Back, Written, entry_of, value_of};
use super::{ListQueue, round_up_millis};
use crate::queue::{Claim, Record, Reply, SettleAction, Settlement};
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::script_reply::{incomplete, refused, word_reply};

/// Most deliveries in one call of a script: they block Redis.
const PER_CALL: usize = 100;
/// About how many bytes of values are in one call.
const BYTES_PER_CALL: usize = 1 << 20;
/// Most calls in one round trip.
const PER_PIPELINE: usize = 8;

/// A call of a script about several deliveries, and which ones.
struct Batch {
    call: Cmd,
    places: Vec<usize>,
}

/// One reply for each delivery, until all are known.
pub(super) type Replies = Vec<Option<Reply>>;

impl ListQueue {
    pub(super) async fn record_starts(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        let held: Vec<Hold<'_>> = records
            .iter()
            .map(|record| Hold {
                claim: &record.claim,
                // Written = expected confirms the lease only.
                starts: (record.write != record.expect)
                    .then(|| self.values.starts(&record.claim, record.write)),
            })
            .collect();
        // What is about to start must be held now.
        self.hold(&held, self.options.recovery.is_none()).await
    }

    pub(super) async fn renew_leases(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        let open = self.given_up.open();
        let held: Vec<Hold<'_>> = claims
            .iter()
            .map(|claim| Hold {
                claim,
                starts: None,
            })
            .collect();
        // Where nothing records claims, the processing list tells once others may have taken some.
        let look = self.options.recovery.is_none() && open.is_some();
        let replies = self.hold(&held, look).await?;
        if let Some(noticed) = open {
            // All that this host holds was looked at.
            self.given_up.close(noticed);
        }
        Ok(replies)
    }

    /// Confirm that deliveries are held, and record starts. Those that cannot be confirmed by
    /// their records, or all with `look`, are looked for on the processing list.
    async fn hold(&self, held: &[Hold<'_>], look: bool) -> Result<Vec<Reply>, Error> {
        let mut replies: Replies = vec![None; held.len()];
        if !look {
            let all: Vec<usize> = (0..held.len()).collect();
            self.hold_these(held, &all, false, &mut replies).await?;
        }
        let unsure: Vec<usize> = (0..held.len()).filter(|&i| replies[i].is_none()).collect();
        self.hold_these(held, &unsure, true, &mut replies).await?;
        all(Script::ListHold, replies)
    }

    async fn hold_these(
        &self,
        held: &[Hold<'_>],
        places: &[usize],
        look: bool,
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let script = Script::ListHold;
        let keys = &self.keys;
        let size = |place: usize| {
            if look {
                value_of(held[place].claim).len()
            } else {
                0
            }
        };
        let batches = batches(places, size, |places| {
            let mut call = self.call(script, &[&keys.processing, &keys.started, &keys.instances]);
            call.arg(&self.instance).arg(self.recovery_ttl());
            for &place in places {
                let Hold { claim, starts } = &held[place];
                call.arg(&Token::of(claim.id).0[..]);
                match starts {
                    Some(starts) => call.arg(*starts),
                    None => call.arg(""),
                };
                if look {
                    call.arg(entry_of(claim));
                } else {
                    call.arg("");
                }
            }
            call
        });
        for batches in batches.chunks(PER_PIPELINE) {
            let calls = batches.iter().map(|batch| batch.call.clone()).collect();
            let answers = script::run_all(&self.commands, script, calls).await?;
            for (batch, answer) in batches.iter().zip(answers) {
                let answer = reply::accepted(script.name(), answer)?;
                let [unknown, words] = reply::tuple(script.name(), answer)?;
                self.heed(reply::integer(script.name(), &unknown)?);
                let words = reply::array(script.name(), words)?;
                if words.len() != batch.places.len() {
                    return Err(incomplete(script.name()));
                }
                for (&place, word) in batch.places.iter().zip(words) {
                    replies[place] = match reply::text(script.name(), word)?.as_str() {
                        "done" => Some(Reply::Done),
                        "unsure" => None,
                        _ => Some(Reply::Stolen),
                    };
                }
            }
        }
        Ok(())
    }

    pub(super) async fn acknowledge_all(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        let places: Vec<usize> = (0..claims.len()).collect();
        let mut replies = vec![None; claims.len()];
        let batches = self.removals(&places, |place| &claims[place]);
        self.run(Script::ListRemove, batches, &mut replies, Err)
            .await
    }

    pub(super) async fn settle_all(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        let (mut back, mut front) = (Vec::new(), Vec::new());
        let (mut discard, mut dead_letters) = (Vec::new(), Vec::new());
        let mut replies: Replies = vec![None; settlements.len()];
        for (place, settlement) in settlements.iter().enumerate() {
            let claim = &settlement.claim;
            match &settlement.action {
                action @ (SettleAction::Park { .. } | SettleAction::HandBack { .. }) => {
                    let (keep, after) = action.parking().unwrap_or_default();
                    match self.values.back(claim, keep) {
                        Ok(Back::Charged(written)) if !after.is_zero() => {
                            back.push((place, round_up_millis(after).to_string(), written));
                        }
                        Ok(Back::Charged(written)) => {
                            back.push((place, side("back", &written), written))
                        }
                        Ok(Back::Unchanged(written)) => {
                            front.push((place, side("front", &written), written));
                        }
                        Err(error) => replies[place] = Some(Reply::Refused(error.to_string())),
                    }
                }
                // The mark of a suspect is in its value: it may go back to the list.
                SettleAction::Leave { .. } => match self.values.back(claim, 0) {
                    Ok(Back::Unchanged(written) | Back::Charged(written)) => {
                        front.push((place, side("front", &written), written));
                    }
                    Err(error) => replies[place] = Some(Reply::Refused(error.to_string())),
                },
                SettleAction::Discard(_) => discard.push(place),
                SettleAction::DeadLetter(rejection) => {
                    dead_letters.push((place, rejection, &settlement.handler));
                }
            }
        }
        // The last one put at the front is the first one claimed: the newest go back first.
        back.extend(front.into_iter().rev());
        let batches = self.returns(settlements, &back);
        self.run(Script::ListReturn, batches, &mut replies, refused)
            .await?;
        let batches = self.removals(&discard, |place| &settlements[place].claim);
        self.run(Script::ListRemove, batches, &mut replies, refused)
            .await?;
        self.dead_letter_all(settlements, &dead_letters, &mut replies)
            .await?;
        all(Script::ListReturn, replies)
    }

    fn returns(&self, settlements: &[Settlement], back: &[(usize, String, Written)]) -> Vec<Batch> {
        let script = Script::ListReturn;
        let keys = &self.keys;
        let indexes: Vec<usize> = (0..back.len()).collect();
        let size = |index: usize| 2 * back[index].2.value.len();
        let mut batches = batches(&indexes, size, |indexes| {
            let mut call = self.call(
                script,
                &[
                    &keys.processing,
                    &keys.started,
                    self.key(),
                    &keys.retry,
                    &keys.delayed,
                ],
            );
            call.arg(&self.instance);
            for &index in indexes {
                let (place, to, written) = &back[index];
                call.arg(entry_of(&settlements[*place].claim))
                    .arg(to)
                    .arg(&written.value[..]);
            }
            call
        });
        for batch in &mut batches {
            for place in &mut batch.places {
                *place = back[*place].0;
            }
        }
        batches
    }

    fn removals<'a>(
        &self,
        places: &[usize],
        claim: impl Fn(usize) -> &'a Arc<Claim>,
    ) -> Vec<Batch> {
        let keys = &self.keys;
        let size = |place| value_of(claim(place)).len();
        batches(places, size, |places| {
            let mut call = self.call(Script::ListRemove, &[&keys.processing, &keys.started]);
            call.arg(&self.instance);
            for &place in places {
                call.arg(entry_of(claim(place)));
            }
            call
        })
    }

    /// Take one delivery off, its copy standing elsewhere.
    pub(super) async fn remove(&self, claim: &Arc<Claim>) -> Result<Reply, Error> {
        let mut replies = vec![None];
        let batches = self.removals(&[0], |_| claim);
        self.run(Script::ListRemove, batches, &mut replies, refused)
            .await?;
        Ok(all(Script::ListRemove, replies)?.remove(0))
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
        for batches in batches.chunks(PER_PIPELINE) {
            let calls = batches.iter().map(|batch| batch.call.clone()).collect();
            let answers = script::run_all(&self.commands, script, calls).await?;
            for (batch, answer) in batches.iter().zip(answers) {
                match reply::accepted(command, answer) {
                    Ok(words) => {
                        let words = reply::array(command, words)?;
                        if words.len() != batch.places.len() {
                            return Err(incomplete(command));
                        }
                        for (&place, word) in batch.places.iter().zip(words) {
                            replies[place] = Some(word_reply(command, word)?);
                        }
                    }
                    Err(error) => {
                        let reply = refusal(error)?;
                        for &place in &batch.places {
                            replies[place] = Some(reply.clone());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// A delivery to confirm, and the starts to record for it, if any.
struct Hold<'a> {
    claim: &'a Arc<Claim>,
    starts: Option<u32>,
}

/// Which end of which list.
fn side(end: &str, written: &Written) -> String {
    if written.framed {
        format!("retry-{end}")
    } else {
        end.to_owned()
    }
}

/// Calls about at most [`PER_CALL`] deliveries and [`BYTES_PER_CALL`] each.
fn batches(
    places: &[usize],
    size: impl Fn(usize) -> usize,
    call: impl Fn(&[usize]) -> Cmd,
) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut rest = places;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take(PER_CALL).take_while(|&&place| {
            let first = bytes == 0;
            bytes += size(place) + 1;
            first || bytes <= BYTES_PER_CALL
        });
        let (batch, behind) = rest.split_at(fitting.count());
        batches.push(Batch {
            call: call(batch),
            places: batch.to_vec(),
        });
        rest = behind;
    }
    batches
}

fn all(script: Script, replies: Replies) -> Result<Vec<Reply>, Error> {
    let known: Option<Vec<Reply>> = replies.into_iter().collect();
    known.ok_or_else(|| incomplete(script.name()))
}
