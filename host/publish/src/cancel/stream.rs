//! Cancelling entries of a stream.

use std::collections::BTreeMap;

use redis::cmd;

use hostler_core::wire::keys::{self, PARKED_CONSUMER, UNPARKED_CONSUMER};
use hostler_redis::Error as RedisError;
use hostler_redis::reply;
use hostler_redis::script::PER_CALL;

use super::scan::Found;
use super::{
    CancelError, Cancelled, Canceller, NOTE_MS, NOTES_MAX, ROUNDS, Verdict, refusal, words,
};
use crate::scripts;

/// The most entries that are handed out because one behind them is cancelled, and in one script.
const AHEAD_MAX: usize = 10_000;
const AHEAD_ONCE: usize = 100;
const AHEAD_BYTES: usize = 4 << 20;

/// What became of each entry, by its place and the group; '' = all groups.
type Done = BTreeMap<(usize, String), Verdict>;

impl Canceller {
    /// Cancel entries, in each group apart.
    ///
    /// Dies here, or its answer is lost: each script has cancelled its entries in its group, or has not. The notes say so to
    /// the next try.
    pub(super) async fn entries(&self, found: &[&Found]) -> Result<Vec<Cancelled>, CancelError> {
        let mut done = Done::new();
        let mut open: Vec<usize> = (0..found.len()).collect();
        let groups: Vec<String> = match &self.group {
            Some(group) => vec![group.clone()],
            None => self.groups().await?.into_iter().map(|g| g.0).collect(),
        };
        for round in 0..ROUNDS {
            let mut unread = Vec::new();
            for group in &groups {
                for some in open.chunks(PER_CALL) {
                    unread.extend(self.in_group(found, some, group, &mut done).await?);
                }
            }
            if groups.is_empty() {
                unread.clone_from(&open);
            }
            unread.sort_unstable();
            unread.dedup();
            open.clear();
            for some in unread.chunks(PER_CALL) {
                open.extend(self.unread(found, some, &mut done).await?);
            }
            if open.is_empty() {
                break;
            }
            if round + 1 == ROUNDS {
                let moving = "it moves on all the time: try again";
                let refused = || Verdict::Refused(moving.to_owned());
                done.extend(open.drain(..).map(|at| ((at, String::new()), refused())));
            }
        }
        let cancelled = done.into_iter().map(|((at, group), verdict)| Cancelled {
            id: found[at].id.clone(),
            group: Some(group).filter(|group| !group.is_empty()),
            verdict,
        });
        Ok(cancelled.collect())
    }

    /// Cancel what a group has pending. Returns what it has not read.
    async fn in_group(
        &self,
        found: &[&Found],
        places: &[usize],
        group: &str,
        done: &mut Done,
    ) -> Result<Vec<usize>, CancelError> {
        let key = &self.key;
        let own = [
            keys::parked(key, group),
            keys::late(key, group),
            keys::cancelled(key, group),
            keys::written(key, group),
        ];
        let mut all = vec![key.as_str()];
        all.extend(own.iter().map(String::as_str));
        all.extend(self.kept.as_ref().map(|to| to.key.as_str()));
        let script = &scripts::CANCEL;
        let mut call = script.on(&all);
        call.arg(group)
            .arg(PARKED_CONSUMER)
            .arg(NOTE_MS)
            .arg(NOTES_MAX)
            .arg(keys::journals(key, group));
        self.bound(&mut call);
        let mut asked = Vec::new();
        for &at in places {
            // What is decided stays.
            if done.contains_key(&(at, group.to_owned())) {
                continue;
            }
            let id = found[at].entry().unwrap_or_default();
            let attempts = match self.kept {
                Some(_) => self.attempts(group, id).await?,
                None => 0,
            };
            match self.left(found[at], Some(group), attempts) {
                Ok([answer, copy]) => {
                    call.arg(id).arg(&answer[..]).arg(&copy[..]);
                    asked.push(at);
                }
                Err(error) => {
                    let refused = Verdict::Refused(error.to_string());
                    done.insert((at, group.to_owned()), refused);
                }
            }
        }
        let mut unread = Vec::new();
        if asked.is_empty() {
            return Ok(unread);
        }
        let answer = self.link.run(script, &call).await?;
        for (at, word) in asked.into_iter().zip(words(script.name(), answer)?) {
            let verdict = match word.split_once(' ').unwrap_or((&word, "")) {
                ("unread", _) => {
                    unread.push(at);
                    continue;
                }
                ("cancelled" | "before", _) => Verdict::Cancelled,
                ("running", host) => Verdict::Void(host.to_owned()),
                ("late", _) => Verdict::TooLate,
                ("absent", _) => Verdict::Unknown,
                _ => refusal(&word),
            };
            done.insert((at, group.to_owned()), verdict);
        }
        Ok(unread)
    }

    /// Cancel what no host has read. Returns what a group has read meanwhile.
    async fn unread(
        &self,
        found: &[&Found],
        places: &[usize],
        done: &mut Done,
    ) -> Result<Vec<usize>, CancelError> {
        let group = self.group.as_deref();
        let mut all = vec![self.key.as_str()];
        all.extend(self.kept.as_ref().map(|to| to.key.as_str()));
        let script = &scripts::CANCEL_UNREAD;
        let mut call = script.on(&all);
        call.arg(group.unwrap_or_default())
            .arg(keys::cancelled(&self.key, ""))
            .arg(NOTE_MS)
            .arg(NOTES_MAX);
        self.bound(&mut call);
        let mut asked = Vec::new();
        for &at in places {
            match self.left(found[at], group, 0) {
                Ok([answer, copy]) => {
                    let id = found[at].entry().unwrap_or_default();
                    call.arg(id).arg(&answer[..]).arg(&copy[..]);
                    asked.push(at);
                }
                Err(error) => {
                    let refused = Verdict::Refused(error.to_string());
                    done.insert((at, group.unwrap_or_default().to_owned()), refused);
                }
            }
        }
        let mut moved = Vec::new();
        if asked.is_empty() {
            return Ok(moved);
        }
        let answer = self.link.run(script, &call).await?;
        for (at, word) in asked.into_iter().zip(words(script.name(), answer)?) {
            let verdict = match word.as_str() {
                "delivered" => {
                    moved.push(at);
                    continue;
                }
                "shared" => match self.hand_out(found[at], group.unwrap_or_default()).await? {
                    true => {
                        moved.push(at);
                        continue;
                    }
                    false => Verdict::Refused(format!(
                        "more than {AHEAD_MAX} messages are before it, and another group needs it: \
                         cancel it in all groups, or later"
                    )),
                },
                "cancelled" | "before" => Verdict::Cancelled,
                "absent" => Verdict::Unknown,
                word => refusal(word),
            };
            done.insert((at, group.unwrap_or_default().to_owned()), verdict);
        }
        Ok(moved)
    }

    /// Hand out the entries up to this one, to no host. False: too many are before it.
    ///
    /// Dies here: those are parked, due now, and any host takes them.
    async fn hand_out(&self, found: &Found, group: &str) -> Result<bool, RedisError> {
        let parked = keys::parked(&self.key, group);
        let script = &scripts::CANCEL_AHEAD;
        let mut call = script.on(&[&self.key, &parked]);
        call.arg(group)
            .arg(PARKED_CONSUMER)
            .arg(UNPARKED_CONSUMER)
            .arg(found.entry().unwrap_or_default())
            .arg(AHEAD_ONCE)
            .arg(AHEAD_BYTES);
        let mut left = AHEAD_MAX;
        while left > 0 {
            let [moved, is_there] =
                reply::tuple(script.name(), self.link.run(script, &call).await?)?;
            if reply::integer(script.name(), &is_there)? == 1 {
                return Ok(true);
            }
            match usize::try_from(reply::count(script.name(), &moved)?).unwrap_or(left) {
                0 => return Ok(true),
                moved => left = left.saturating_sub(moved),
            }
        }
        Ok(false)
    }

    /// How often an entry was started: for its dead letter.
    async fn attempts(&self, group: &str, id: &str) -> Result<u32, RedisError> {
        const COMMAND: &str = "XPENDING";
        let mut read = cmd(COMMAND);
        read.arg(&self.key).arg(group).arg(id).arg(id).arg(1);
        let held = reply::array(COMMAND, self.link.call(COMMAND, &read).await?)?.pop();
        let Some(held) = held else {
            return Ok(0);
        };
        let [.., count] = reply::tuple::<4>(COMMAND, held)?;
        let count = reply::count(COMMAND, &count)?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}
