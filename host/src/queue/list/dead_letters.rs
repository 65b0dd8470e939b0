//! Dead letters, list to list: copied, then taken off the queue, by one script wherever one can.

use std::sync::Arc;

use bytes::Bytes;
use redis::Cmd;

use super::ListQueue;
use super::settle::Replies;
use super::token::Token;
use super::value::entry_of;
use crate::delivery::policy::Rejection;
use crate::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use crate::queue::dead_letters::Destination;
use crate::queue::{Claim, Reply, Settlement};
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::script_reply::{full, refused, word_reply};
use crate::wire::dead_letter::{self, Context};
use crate::wire::list::{self, Framing};

/// Most dead letters, and about how many bytes of them, in one round trip.
const PER_PIPELINE: usize = 100;
const BYTES_PER_PIPELINE: usize = 1 << 20;

/// A dead letter: the place of its settlement, why, and the handler.
pub(super) type Letter<'a> = (usize, &'a Rejection, &'a Arc<str>);

impl ListQueue {
    pub(super) async fn dead_letter_all(
        &self,
        settlements: &[Settlement],
        dead_letters: &[Letter<'_>],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let rules = self.rules.now();
        let Some(target) = &rules.dead_letter else {
            for (place, ..) in dead_letters {
                replies[*place] = Some(Reply::Refused("no dead-letter key is set".to_owned()));
            }
            return Ok(());
        };
        let now_ms = self.values.time.now_ms();
        let (mut calls, mut copies, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (place, rejection, handler) in dead_letters {
            let settlement = &settlements[*place];
            let claim = &settlement.claim;
            let (to, copy) = match self.copy_of(settlement, target, rejection, handler, now_ms) {
                Ok(copy) => copy,
                Err(error) => {
                    replies[*place] = Some(Reply::Refused(error.to_string()));
                    continue;
                }
            };
            bytes += 2 * copy.len();
            calls.push(self.dead_letter_call(claim, target, &to.key, &copy));
            copies.push((*place, to, copy));
            if calls.len() >= PER_PIPELINE || bytes >= BYTES_PER_PIPELINE {
                let calls = std::mem::take(&mut calls);
                self.run_dead_letters(settlements, target, calls, &copies, replies)
                    .await?;
                copies.clear();
                bytes = 0;
            }
        }
        self.run_dead_letters(settlements, target, calls, &copies, replies)
            .await
    }

    /// Where a dead letter goes, and its value.
    fn copy_of(
        &self,
        settlement: &Settlement,
        target: &DeadLetterQueue,
        rejection: &Rejection,
        handler: &str,
        now_ms: u64,
    ) -> Result<(Destination, Bytes), list::Error> {
        let claim = &settlement.claim;
        let (headers, payload) = self.values.parts(claim);
        let context = Context {
            source: self.key(),
            source_id: &Token::of(claim.id).to_string(),
            group: None,
            rejection,
            handler,
            now_ms,
            expires_at_ms: settlement.expires_at_ms,
        };
        let to = Destination::of(target, &headers, &context);
        let mut headers = dead_letter::list_headers(&headers, &context);
        if self.options.framing == Framing::Raw {
            headers.push(dead_letter::FRAMING, "raw".to_owned());
        }
        let copy = list::encode(&headers, &payload, self.options.framing.codec())?;
        Ok((to, copy))
    }

    fn dead_letter_call(
        &self,
        claim: &Claim,
        target: &DeadLetterQueue,
        key: &str,
        copy: &Bytes,
    ) -> Cmd {
        let keys = &self.keys;
        let mut call = self.call(
            Script::ListDeadLetter,
            &[&keys.processing, &keys.started, key],
        );
        call.arg(&self.instance)
            .arg(entry_of(claim))
            .arg(&copy[..])
            .arg(target.bound(key, self.key()).unwrap_or(0))
            .arg(match target.on_full {
                OnFull::DropOldest => "drop-oldest",
                OnFull::Stop => "stop",
            });
        call
    }

    async fn run_dead_letters(
        &self,
        settlements: &[Settlement],
        target: &DeadLetterQueue,
        calls: Vec<Cmd>,
        copies: &[(usize, Destination, Bytes)],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let script = Script::ListDeadLetter;
        let answers = script::run_all(&self.commands, script, calls).await?;
        for ((place, to, copy), answer) in copies.iter().zip(answers) {
            let claim = &settlements[*place].claim;
            let reply = match reply::accepted(script.name(), answer) {
                Ok(answer) => {
                    let [word, dropped] = reply::tuple(script.name(), answer)?;
                    self.counts.dropped(reply::count(script.name(), &dropped)?);
                    word_reply(script.name(), word)?
                }
                // On a cluster, no script can carry it to another slot.
                Err(Error::Configuration { code, .. }) if code == "CROSSSLOT" => {
                    let moved = self.copy_then_remove(claim, target, &to.key, copy);
                    moved.await.or_else(refused)?
                }
                Err(error) => refused(error)?,
            };
            if reply == Reply::Done {
                self.counts.written(claim, to);
            }
            replies[*place] = Some(reply);
        }
        Ok(())
    }

    /// Copy first, then take it off the queue, so that a crash between the two leaves a duplicate,
    /// never a loss.
    async fn copy_then_remove(
        &self,
        claim: &Arc<Claim>,
        target: &DeadLetterQueue,
        key: &str,
        copy: &Bytes,
    ) -> Result<Reply, Error> {
        let mut length = Cmd::new();
        length.arg("LLEN").arg(key);
        let before = reply::count("LLEN", &self.commands.call("LLEN", &length).await?)?;
        let most = target.bound(key, self.key());
        if target.on_full == OnFull::Stop && most.is_some_and(|most| before >= most) {
            return Ok(full());
        }
        match self.holds(claim, most.map_or("", |_| key)).await? {
            Reply::Done => {}
            other => return Ok(other),
        }
        let mut push = Cmd::new();
        push.arg("LPUSH").arg(key).arg(&copy[..]);
        let length = reply::count("LPUSH", &self.commands.call("LPUSH", &push).await?)?;
        if let Some(most) = most
            && length > most
        {
            let mut trim = Cmd::new();
            trim.arg("LTRIM").arg(key).arg(0).arg(most - 1);
            self.commands.call("LTRIM", &trim).await?;
            self.counts.dropped(length - most);
        }
        self.remove(claim).await
    }

    /// Whether this instance holds a delivery, and may do all that comes behind its copy; `trimmed`
    /// is the dead-letter queue, if it has a bound.
    async fn holds(&self, claim: &Arc<Claim>, trimmed: &str) -> Result<Reply, Error> {
        let script = Script::ListHolds;
        let keys = &self.keys;
        let mut call = script.on(&[&keys.processing, &keys.started]);
        call.arg(entry_of(claim)).arg(trimmed);
        let word = script::run(&self.commands, script, &call).await?;
        word_reply(script.name(), word)
    }
}
