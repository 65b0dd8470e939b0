//! Bringing dead letters back: each moved by one script, its attempts reset.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use redis::Cmd;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::apart::Moved;
use super::{DeadLetters, Entry, Error, Filter, Kind, list};
use crate::redis::reply::{self, Info};
use crate::redis::script::{self, Script};
use crate::redis::{Class, Error as RedisError};
use crate::wire::dead_letter::{GROUP, SOURCE, replay};
use crate::wire::keys;

/// Lua's `unpack` cannot pass more than about 8,000 values.
const FIELDS_IN_SCRIPT: usize = 3500;
/// How many targets are told apart in a report.
const TARGETS_MAX: usize = 100;
/// Under a rate, the entries of this long go at once.
const BURST: Duration = Duration::from_millis(100);

/// How dead letters are replayed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReplayOptions {
    /// Where all of them go; `None` = each to the queue that it died in.
    pub to: Option<String>,
    /// An entry that was replayed so often stays.
    pub max_replays: u64,
    /// How many are moved at most.
    pub limit: Option<u64>,
    /// How many are moved in a second at most.
    pub rate: Option<NonZeroU32>,
    /// Say what would be done, and change nothing.
    pub dry_run: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            to: None,
            max_replays: 3,
            limit: None,
            rate: None,
            dry_run: false,
        }
    }
}

/// Why a dead letter was not replayed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Skip {
    /// It was replayed as often as it may be.
    MaxReplays,
    /// It does not say which queue it died in.
    NoSource,
    /// The group that it died in is gone, and others read its queue: they would run it again.
    GroupGone,
    /// It was moved or deleted by somebody else meanwhile.
    Gone,
    /// Somebody else is moving it across slots, or was interrupted at that: it is still there, and a
    /// replay half a minute later finishes it.
    Moving,
    /// Redis would not write it to its queue (another type, no right): see [`Replayed::refusal`].
    Refused,
}

/// What a replay has done.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Replayed {
    /// How many were moved, or would be.
    pub replayed: u64,
    /// How many to each queue; from the hundredth queue on, under [`super::peek::OTHER`].
    pub targets: BTreeMap<String, u64>,
    /// How many were not, and why.
    pub skipped: BTreeMap<Skip, u64>,
    /// What Redis said to the first that it refused.
    pub refusal: Option<String>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// A replay under way.
#[derive(Debug)]
pub struct Replay<'a> {
    letters: &'a DeadLetters,
    options: ReplayOptions,
    report: Replayed,
    /// When the next may be moved, under a rate.
    next: Instant,
    /// Who this is, for others that replay at the same time.
    owner: String,
}

/// What a target looks like: its consumer groups, or why it is no target.
type Groups = Result<Vec<Bytes>, RedisError>;

/// One entry on its way.
pub(super) struct Move<'e> {
    pub(super) entry: &'e Entry,
    pub(super) target: String,
    pub(super) copy: Written,
}

/// What is written there.
pub(super) enum Written {
    Fields(Vec<(Bytes, Bytes)>),
    Value(Bytes),
}

impl Written {
    pub(super) fn command(&self) -> &'static str {
        match self {
            Self::Fields(_) => "XADD",
            Self::Value(_) => "LPUSH",
        }
    }

    pub(super) fn is_too_long(&self) -> bool {
        matches!(self, Self::Fields(fields) if fields.len() > FIELDS_IN_SCRIPT)
    }

    pub(super) fn push(&self, command: &mut Cmd) {
        match self {
            Self::Fields(fields) => {
                for (name, value) in fields {
                    command.arg(name.as_ref()).arg(value.as_ref());
                }
            }
            Self::Value(value) => {
                command.arg(value.as_ref());
            }
        }
    }
}

impl DeadLetters {
    /// Replay the entries that are there now and that `filter` means, oldest first, to the end.
    ///
    /// # Errors
    /// [`Error`]; what was moved before is moved, and a second call goes on with the rest.
    pub async fn replay_all(
        &self,
        filter: Filter,
        options: ReplayOptions,
    ) -> Result<Replayed, Error> {
        let mut replay = self.replay(options);
        let mut scan = self.scan(filter).await?;
        while !replay.is_done()
            && let Some(entries) = scan.next().await?
        {
            let mut rest = entries.as_slice();
            while !rest.is_empty() && !replay.is_done() {
                let (chunk, behind) = rest.split_at(replay.chunk().min(rest.len()));
                replay.pace().await;
                replay.send(chunk).await?;
                rest = behind;
            }
        }
        Ok(replay.report)
    }

    /// Begin a replay. Nothing is moved yet.
    pub fn replay(&self, options: ReplayOptions) -> Replay<'_> {
        Replay {
            letters: self,
            report: Replayed {
                dry_run: options.dry_run,
                ..Replayed::default()
            },
            options,
            next: Instant::now(),
            owner: format!("{:016x}", fastrand::u64(..)),
        }
    }
}

impl Replay<'_> {
    /// What was done so far.
    pub fn report(&self) -> &Replayed {
        &self.report
    }

    /// Whether the limit is reached.
    pub fn is_done(&self) -> bool {
        self.left() == 0
    }

    /// How many entries to hand to [`Replay::send`] at once under the rate; at least one.
    pub fn chunk(&self) -> usize {
        match self.options.rate.filter(|_| !self.options.dry_run) {
            None => usize::MAX,
            Some(rate) => {
                let burst = f64::from(rate.get()) * BURST.as_secs_f64();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a positive number below 2^32"
                )]
                let burst = burst as usize;
                burst.max(1)
            }
        }
    }

    /// Wait until the rate allows the next. May be given up at any time.
    pub async fn pace(&self) {
        sleep_until(self.next).await;
    }

    /// Move these entries, in their order, those apart that cannot be moved. Each is moved whole or
    /// not at all, also if this is given up half-way.
    ///
    /// # Errors
    /// [`Error`] if Redis is away or full; what was moved before is in the report, and what is not
    /// known can be sent again: nothing is moved twice.
    pub async fn send(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let letters = self.letters;
        let to = self.options.to.clone();
        let mut planned: Vec<(&Entry, String)> = Vec::new();
        for entry in entries {
            match self.target(entry, to.as_deref()) {
                Ok(target) => planned.push((entry, target)),
                Err(skip) => self.skip(skip, 1),
            }
        }
        let mut targets: HashMap<String, Groups> = HashMap::new();
        for (entry, target) in &planned {
            if !targets.contains_key(target) {
                let groups = match entry.value {
                    None => letters.groups(target).await,
                    // A list has no groups.
                    Some(_) => Ok(Vec::new()),
                };
                let groups = match groups {
                    Err(error) if error.class() != Class::Configuration => {
                        return Err(letters.failed(error));
                    }
                    groups => groups,
                };
                targets.insert(target.clone(), groups);
            }
        }
        let mut planned = planned.into_iter();
        while !self.is_done() {
            let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
            let mut moves = Vec::new();
            for (entry, target) in planned.by_ref() {
                let groups = targets.get(&target).map(Result::as_ref);
                match groups {
                    Some(Ok(groups)) => match only_group(entry, &target, groups) {
                        Ok(only) => match copy_of(entry, &target, only) {
                            Ok(copy) => moves.push(Move {
                                entry,
                                target,
                                copy,
                            }),
                            Err(why) => self.refuse(&why),
                        },
                        Err(skip) => self.skip(skip, 1),
                    },
                    Some(Err(error)) => self.refuse(error),
                    None => {}
                }
                if moves.len() == left {
                    break;
                }
            }
            if moves.is_empty() {
                break;
            }
            self.carry_out(&moves).await?;
        }
        Ok(())
    }

    fn left(&self) -> u64 {
        let limit = self.options.limit.unwrap_or(u64::MAX);
        limit.saturating_sub(self.report.replayed)
    }

    /// Where an entry goes, as far as it says.
    fn target(&self, entry: &Entry, to: Option<&str>) -> Result<String, Skip> {
        if replay::count(&entry.headers) >= self.options.max_replays {
            return Err(Skip::MaxReplays);
        }
        let target = match entry.value {
            Some(_) => list::target(&entry.headers, to),
            None => to.or(entry.headers.find_str(SOURCE)).map(str::to_owned),
        };
        let target = target.filter(|target| !target.is_empty());
        target.ok_or(Skip::NoSource)
    }

    async fn carry_out(&mut self, moves: &[Move<'_>]) -> Result<(), Error> {
        if self.options.dry_run {
            for one in moves {
                self.moved(&one.target);
            }
            return Ok(());
        }
        let script = match self.letters.kind().await? {
            Kind::Stream => Script::Replay,
            Kind::List => Script::ReplayList,
        };
        let (mut calls, mut scripted, mut apart) = (Vec::new(), Vec::new(), Vec::new());
        for one in moves {
            if one.copy.is_too_long() {
                apart.push(one);
                continue;
            }
            let moving = keys::moving(&self.letters.key, &one.entry.id);
            let mut call = script.on(&[&self.letters.key, &one.target, &moving]);
            match &one.entry.value {
                None => call.arg(&one.entry.id),
                Some(value) => call.arg(&value[..]),
            };
            one.copy.push(&mut call);
            calls.push(call);
            scripted.push(one);
        }
        if let Some(rate) = self.options.rate {
            let took = Duration::from_secs(1) * u32::try_from(moves.len()).unwrap_or(u32::MAX);
            self.next = Instant::now() + took / rate.get();
        }
        let answers = script::run_all(&self.letters.link, script, calls).await;
        let answers = answers.map_err(|error| self.letters.failed(error))?;
        let mut failure = None;
        for (one, answer) in scripted.into_iter().zip(answers) {
            let word = reply::accepted(script.name(), answer);
            match word.and_then(|word| reply::text(script.name(), word)) {
                Ok(word) => match word.as_str() {
                    "done" => self.done(Moved::To(one.target.clone())),
                    // What was begun in steps is finished in steps.
                    "moving" => apart.push(one),
                    _ => self.done(Moved::Gone),
                },
                Err(RedisError::Configuration { code, .. }) if code == "CROSSSLOT" => {
                    apart.push(one);
                }
                Err(error) if error.class() == Class::Configuration => self.refuse(&error),
                // Redis may have taken those behind it.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(self.letters.failed(error));
        }
        for one in apart {
            match self.letters.move_in_steps(one, &self.owner).await {
                Ok(moved) => self.done(moved),
                Err(error) if error.class() == Class::Configuration => self.refuse(&error),
                Err(error) => return Err(self.letters.failed(error)),
            }
        }
        Ok(())
    }

    fn done(&mut self, moved: Moved) {
        match moved {
            Moved::To(target) => self.moved(&target),
            Moved::Gone => self.skip(Skip::Gone, 1),
            // It is where it was.
            Moved::Held => return self.skip(Skip::Moving, 1),
        }
        // A walk must know that it is not there anymore.
        self.letters.removed.add(1);
    }

    fn moved(&mut self, target: &str) {
        self.report.replayed += 1;
        let targets = &mut self.report.targets;
        let target = match targets.contains_key(target) || targets.len() < TARGETS_MAX {
            true => target,
            false => super::peek::OTHER,
        };
        *targets.entry(target.to_owned()).or_default() += 1;
    }

    fn skip(&mut self, skip: Skip, count: u64) {
        *self.report.skipped.entry(skip).or_default() += count;
    }

    fn refuse(&mut self, error: &dyn std::fmt::Display) {
        self.skip(Skip::Refused, 1);
        if self.report.refusal.is_none() {
            self.report.refusal = Some(error.to_string());
        }
    }
}

/// The group that alone is to run an entry, where several read its target.
fn only_group<'e>(
    entry: &'e Entry,
    target: &str,
    groups: &[Bytes],
) -> Result<Option<&'e str>, Skip> {
    let group = entry.headers.find_str(GROUP);
    let Some(group) = group.filter(|_| !groups.is_empty()) else {
        return Ok(None);
    };
    let is_there = groups.iter().any(|name| *name == group);
    let is_home = entry.headers.find_str(SOURCE) == Some(target);
    match (is_there, is_home) {
        (true, _) if groups.len() > 1 => Ok(Some(group)),
        (false, true) => Err(Skip::GroupGone),
        _ => Ok(None),
    }
}

/// What a replay writes.
fn copy_of(
    entry: &Entry,
    target: &str,
    only: Option<&str>,
) -> Result<Written, crate::wire::list::Error> {
    Ok(match &entry.value {
        Some(value) => Written::Value(list::copy_of(value, target)?),
        None => Written::Fields(replay::stream_fields(&entry.fields, &entry.headers, only)),
    })
}

impl DeadLetters {
    /// The consumer groups of a stream; none if there is no such key.
    async fn groups(&self, key: &str) -> Groups {
        const COMMAND: &str = "XINFO GROUPS";
        let mut command = Cmd::new();
        command.arg("XINFO").arg("GROUPS").arg(key);
        let groups = match self.link.call(COMMAND, &command).await {
            Err(RedisError::Configuration { code, detail, .. })
                if code == "ERR" && detail.starts_with("no such key") =>
            {
                return Ok(Vec::new());
            }
            groups => reply::array(COMMAND, groups?)?,
        };
        groups
            .into_iter()
            .map(|info| reply::bytes(COMMAND, Info::new(COMMAND, info)?.take("name")))
            .collect()
    }
}
