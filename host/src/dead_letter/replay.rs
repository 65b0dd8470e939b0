//! Replaying dead letters: scripts move them to their queues, with their attempts reset.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value, cmd};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::two_phase_move::{Move, Moved, move_in_two_phases};
use super::{DeadLetters, Entry, Error, list};
use crate::calls::copy::{self, Layout};
use crate::calls::words;
use crate::dead_letter::scripts;
use crate::redis::reply::{self, Info};
use crate::redis::script::PER_CALL;
use crate::redis::{Class, Error as RedisError};
use crate::wire::Raw;
use crate::wire::dead_letter::replay::{self, Replaying};
use crate::wire::dead_letter::{GROUP, SOURCE};
use crate::wire::{journal, keys};

/// Most targets in a report, and of those whose groups are known.
const TARGETS_MAX: usize = 100;
/// For how long the groups of a target are believed to be the same.
const GROUPS_BELIEVED: Duration = Duration::from_secs(1);
/// About how many bytes of entries one script moves.
const BYTES_IN_SCRIPT: usize = 1 << 20;
/// Under a rate, the entries of this long go at once.
const BURST: Duration = Duration::from_millis(100);

/// The options of a replay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReplayOptions {
    /// The target of all of them; `None` = for each the queue that it died in.
    pub to: Option<String>,
    /// After this number of replays an entry stays.
    pub max_replays: u64,
    /// Most entries to move.
    pub limit: Option<u64>,
    /// Most entries to move in a second.
    pub rate: Option<NonZeroU32>,
    /// Let hosts handle the copies although messages with their ids were handled already.
    pub again: bool,
    /// Leave out the journals of the messages: their handlers make all calls again.
    pub drops_journals: bool,
    /// The calls whose records are left out: their handlers make these again.
    pub forget: Vec<String>,
    /// Only report what would be done.
    pub dry_run: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            to: None,
            max_replays: 3,
            limit: None,
            rate: None,
            again: false,
            drops_journals: false,
            forget: Vec::new(),
            dry_run: false,
        }
    }
}

impl ReplayOptions {
    /// Whether the call with this name is made again: its name is given, or what follows the kind in it.
    fn forgets(&self, name: &str) -> bool {
        let bare = name.split_once(':').map_or(name, |(_, bare)| bare);
        self.forget
            .iter()
            .any(|known| known == name || known == bare)
    }
}

/// Why a dead letter was not replayed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Skip {
    /// It was replayed [`ReplayOptions::max_replays`] times.
    MaxReplays,
    /// It does not say which queue it died in.
    NoSource,
    /// The group that it died in is gone, and others read its queue: they would run it again.
    GroupGone,
    /// It was moved or deleted by another client meanwhile.
    Gone,
    /// Another process moves it across slots, or was interrupted. It is still there, and a replay half a
    /// minute later finishes the move.
    Moving,
    /// Redis refused to write it to its queue (another type, a missing right): see
    /// [`Replayed::refusal`].
    Refused,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Replayed {
    /// How many were moved, or would be moved.
    pub replayed: u64,
    /// How many to each queue; from the hundredth queue on, under [`super::peek::OTHER`].
    pub targets: BTreeMap<String, u64>,
    /// How many were not moved, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// The error of Redis for the first refused one.
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
    /// The groups of targets, and when they were asked for.
    targets: HashMap<String, (Instant, Groups)>,
    /// The name of this replay, for others that run at the same time.
    owner: String,
}

/// The consumer groups of a target, or why it cannot be one.
type Groups = Result<Vec<Bytes>, RedisError>;

impl<'a> Replay<'a> {
    pub(super) fn begin(letters: &'a DeadLetters, options: ReplayOptions) -> Self {
        Self {
            letters,
            report: Replayed {
                dry_run: options.dry_run,
                ..Replayed::default()
            },
            options,
            next: Instant::now(),
            targets: HashMap::new(),
            owner: format!("{:016x}", fastrand::u64(..)),
        }
    }

    /// The result so far.
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

    /// Wait until the rate allows the next. May be cancelled at any time.
    pub async fn pace(&self) {
        sleep_until(self.next).await;
    }

    /// Move these entries, in their order, and skip those that cannot be moved. Each is moved whole or
    /// not at all, also if this is cancelled half-way.
    ///
    /// # Errors
    /// [`Error`] if Redis is away or full. Entries moved before are in the report. Others can be sent
    /// again: nothing is moved twice.
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
        let mut targets = std::mem::take(&mut self.targets);
        targets.retain(|_, (asked, _)| asked.elapsed() < GROUPS_BELIEVED);
        if targets.len() > TARGETS_MAX {
            targets.clear();
        }
        for (entry, target) in &planned {
            if !targets.contains_key(target) {
                let groups = match entry.value {
                    None => groups(letters, target).await,
                    // A list has no groups.
                    Some(_) => Ok(Vec::new()),
                };
                let groups = match groups {
                    Err(error) if error.class() != Class::Configuration => {
                        return Err(letters.failed(error));
                    }
                    groups => groups,
                };
                targets.insert(target.clone(), (Instant::now(), groups));
            }
        }
        let mut planned = planned.into_iter();
        while !self.is_done() {
            let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
            let mut moves = Vec::new();
            for (entry, target) in planned.by_ref() {
                let groups = targets.get(&target);
                match groups.map(|(_, groups)| groups.as_ref()) {
                    Some(Ok(groups)) => match only_group(entry, &target, groups) {
                        Ok(only) => {
                            let replaying = Replaying {
                                only_group: only,
                                again: self.options.again,
                            };
                            match copy_of(entry, &target, replaying, &self.options) {
                                Ok(copy) => moves.push(Move {
                                    entry,
                                    target,
                                    copy,
                                }),
                                Err(why) => self.refuse(&why),
                            }
                        }
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
        self.targets = targets;
        Ok(())
    }

    fn left(&self) -> u64 {
        let limit = self.options.limit.unwrap_or(u64::MAX);
        limit.saturating_sub(self.report.replayed)
    }

    /// The target of an entry, as its headers say.
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
        let (scripted, mut others): (Vec<_>, Vec<_>) =
            moves.iter().partition(|one| copy::fits_script(&one.copy));
        let runs = runs(&scripted);
        let calls = runs.iter().map(|run| self.call(run)).collect();
        if let Some(rate) = self.options.rate {
            let took = Duration::from_secs(1) * u32::try_from(moves.len()).unwrap_or(u32::MAX);
            self.next = Instant::now() + took / rate.get();
        }
        let answers = self.letters.link.run_all(&scripts::REPLAY, calls).await;
        let answers = self.letters.checked(answers)?;
        let mut failure = None;
        for (run, answer) in runs.iter().zip(answers) {
            match words(run.moves.len(), answer) {
                Ok(words) => {
                    for (one, word) in run.moves.iter().zip(words) {
                        match word.as_str() {
                            "done" => self.done(Moved::To(one.target.clone())),
                            // A process has begun a two-phase move: the same way finishes it.
                            "moving" => others.push(one),
                            "gone" => self.done(Moved::Gone),
                            why => self.refuse(&why.strip_prefix('-').unwrap_or(why)),
                        }
                    }
                }
                Err(RedisError::Configuration { code, .. }) if code == "CROSSSLOT" => {
                    others.extend(&run.moves);
                }
                Err(error) if error.class() == Class::Configuration => {
                    run.moves.iter().for_each(|_| self.refuse(&error));
                }
                // Redis may have taken the entries behind it.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(self.letters.failed(error));
        }
        for one in others {
            match move_in_two_phases(self.letters, one, &self.owner).await {
                Ok(moved) => self.done(moved),
                Err(error) if error.class() == Class::Configuration => self.refuse(&error),
                Err(error) => return Err(self.letters.failed(error)),
            }
        }
        Ok(())
    }

    /// The call of a script that moves these.
    fn call(&self, run: &Run<'_>) -> Cmd {
        let key = &self.letters.key;
        let moving = |one: &&Move<'_>| keys::moving(key, &one.entry.id);
        let moving: Vec<String> = run.moves.iter().map(moving).collect();
        let target = run.moves.first().map_or("", |one| one.target.as_str());
        let mut keys = vec![key.as_str(), target];
        keys.extend(moving.iter().map(String::as_str));
        match run.fields[..] {
            [] => {
                let mut call = scripts::LIST_REPLAY.on(&keys);
                for one in &run.moves {
                    one.entry.name_in(&mut call);
                    copy::push(&one.copy, &mut call);
                }
                call
            }
            ref fields => {
                let mut call = scripts::REPLAY.on(&keys);
                let ids = run.moves.iter().map(|one| one.entry.id.as_str());
                run.layout
                    .push(fields, &ids.collect::<Vec<_>>(), &mut call, |_, _| {});
                call
            }
        }
    }

    fn done(&mut self, moved: Moved) {
        match moved {
            Moved::To(target) => self.moved(&target),
            Moved::Gone => self.skip(Skip::Gone, 1),
            // It stays.
            Moved::Held => return self.skip(Skip::Moving, 1),
        }
        // A walk must know that it is not there anymore.
        self.letters.note_removed(1);
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

/// Moves that one script carries out: to the same queue, in their order, with the same layout.
struct Run<'m> {
    layout: Layout,
    moves: Vec<&'m Move<'m>>,
    /// The fields of each copy; none of a list, which moves one value in a script.
    fields: Vec<&'m [(Bytes, Bytes)]>,
    bytes: usize,
}

/// These moves, in their order.
fn runs<'m>(moves: &[&'m Move<'m>]) -> Vec<Run<'m>> {
    let mut runs: Vec<Run<'m>> = Vec::new();
    for &one in moves {
        let (layout, fields) = match &one.copy {
            Raw::Fields(fields) => (
                Layout::of_move(fields, &one.entry.fields),
                Some(&fields[..]),
            ),
            Raw::Value(_) => (Layout::default(), None),
        };
        let bytes = copy::size(&one.copy);
        let goes_along = |run: &&mut Run<'_>| {
            fields.is_some()
                && run.layout == layout
                && run
                    .moves
                    .iter()
                    .take(1)
                    .all(|first| first.target == one.target)
                && run.moves.len() < PER_CALL
                && run.bytes + bytes <= BYTES_IN_SCRIPT
        };
        match runs.last_mut().filter(goes_along) {
            Some(run) => {
                run.moves.push(one);
                run.fields.extend(fields);
                run.bytes += bytes;
            }
            None => runs.push(Run {
                layout,
                moves: vec![one],
                fields: fields.into_iter().collect(),
                bytes,
            }),
        }
    }
    runs
}

/// The words about `count` moves.
fn words(count: usize, answer: Value) -> Result<Vec<String>, RedisError> {
    let command = scripts::REPLAY.name();
    let words = words::each(command, reply::accepted(command, answer)?, count)?;
    let text = |word| reply::text(command, word);
    words.into_iter().map(text).collect()
}

/// The one group that runs an entry, if several groups read its target.
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

/// The copy that a replay writes.
fn copy_of(
    entry: &Entry,
    target: &str,
    replaying: Replaying<'_>,
    options: &ReplayOptions,
) -> Result<Raw, crate::wire::list::Error> {
    Ok(match &entry.value {
        Some(value) => Raw::Value(list::copy_of(value, target, replaying, |text| {
            forgotten(journal::records(text), options)
        })?),
        None => {
            let mut fields = replay::stream_fields(&entry.fields, &entry.headers, replaying);
            forget(&mut fields, options);
            Raw::Fields(fields)
        }
    })
}

/// Leave out what its handler shall do again.
fn forget(fields: &mut Vec<(Bytes, Bytes)>, options: &ReplayOptions) {
    if !options.drops_journals && options.forget.is_empty() {
        return;
    }
    let records = journal::carried(fields);
    fields.retain(|(name, _)| name != journal::FIELD);
    let left = forgotten(records, options);
    fields.extend(left.map(|text| (Bytes::from_static(journal::FIELD), text)));
}

/// The text of these records, without those that are left out; `None` = none is left.
fn forgotten(mut records: BTreeMap<u32, Bytes>, options: &ReplayOptions) -> Option<Bytes> {
    records.retain(|number, record| {
        let stored = journal::decode(*number, record);
        stored.is_some_and(|stored| !options.forgets(&stored.record.name))
    });
    (!records.is_empty() && !options.drops_journals).then(|| journal::text(&records))
}

/// The consumer groups of a stream; none if there is no such key.
async fn groups(letters: &DeadLetters, key: &str) -> Groups {
    const COMMAND: &str = "XINFO GROUPS";
    let mut ask = cmd("XINFO");
    let groups = match letters.link.call(COMMAND, ask.arg("GROUPS").arg(key)).await {
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
