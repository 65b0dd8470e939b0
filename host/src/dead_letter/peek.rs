//! A look into a dead-letter queue that changes nothing.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

pub use super::entry::UNKNOWN;
use super::{DeadLetters, Entry, Error, Filter, Kind, Scan};
use crate::dead_letter::scripts;
use crate::delivery::text::truncate_utf8;
use crate::redis::reply;
use crate::wire::dead_letter::{REASON, SOURCE};

/// Most different reasons in a count; hostler itself writes ten.
const REASONS_MAX: usize = 100;
/// After how many bytes a reason is cut.
const REASON_MAX: usize = 64;
/// The reason of the entries of further reasons, when there are too many.
pub const OTHER: &str = "other";
/// How many entries one call of the script counts at most, and after how many bytes it stops: it blocks
/// Redis meanwhile.
const STRETCH_ENTRIES: usize = 1000;
const STRETCH_BYTES: usize = 4 * 1024 * 1024;
/// How many whole entries are read at once.
const PAGE: usize = 16;

/// The content of a dead-letter queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Peek {
    /// How many entries there were.
    pub total: u64,
    /// How many of them are dead letters.
    pub dead_letters: u64,
    /// How many for each reason.
    pub by_reason: BTreeMap<String, u64>,
    /// The newest, newest first.
    pub entries: Vec<Entry>,
}

impl Peek {
    pub(super) async fn read(
        letters: &DeadLetters,
        reasons: &[String],
        limit: usize,
    ) -> Result<Self, Error> {
        let filter = Filter {
            reasons: reasons.to_vec(),
            any_entry: true,
            ..Filter::default()
        };
        if letters.kind().await? == Kind::List {
            return Self::read_list(letters, filter, limit).await;
        }
        // Everything that is counted or read is at most as new as this.
        let Some(newest) = letters.newest("+", 1).await?.pop() else {
            return Ok(Self::default());
        };
        let by_reason = count(letters, &newest.id).await?;
        let mut peek = Self::of(by_reason, &filter);
        let mut from = newest.id;
        // A filter looks at every entry, as far as there are some that match.
        let wanted = usize::try_from(peek.total).unwrap_or(usize::MAX).min(limit);
        while peek.entries.len() < wanted {
            let page = letters.newest(&from, peek.page(wanted, &filter)).await?;
            let Some(oldest) = page.last() else { break };
            from = format!("({}", oldest.id);
            peek.add(page.into_iter(), wanted, &filter, letters);
        }
        Ok(peek)
    }

    async fn read_list(letters: &DeadLetters, filter: Filter, limit: usize) -> Result<Self, Error> {
        let all = Filter {
            any_entry: true,
            ..Filter::default()
        };
        let mut scan = Scan::begin(letters, all).await?;
        let mut by_reason = BTreeMap::new();
        // The newest come last.
        let mut newest = VecDeque::new();
        while let Some(entries) = scan.next().await? {
            for entry in entries {
                let mut reason = entry.reason_in(&letters.key).to_owned();
                truncate_utf8(&mut reason, REASON_MAX);
                let reason = shown(reason.as_bytes(), &by_reason);
                *by_reason.entry(reason).or_default() += 1;
                if limit > 0 && filter.matches(&entry, &letters.key) {
                    if newest.len() == limit {
                        newest.pop_front();
                    }
                    newest.push_back(letters.head_or_whole(entry));
                }
            }
        }
        let mut peek = Self::of(by_reason, &filter);
        peek.entries = newest.into_iter().rev().collect();
        Ok(peek)
    }

    /// How many of the next entries to read.
    fn page(&self, wanted: usize, filter: &Filter) -> usize {
        match filter.reasons.is_empty() {
            true => PAGE.min(wanted - self.entries.len()),
            false => PAGE,
        }
    }

    /// Add those that match, until there are as many as are wanted.
    fn add(
        &mut self,
        page: impl Iterator<Item = Entry>,
        wanted: usize,
        filter: &Filter,
        letters: &DeadLetters,
    ) {
        let matching = page.filter(|entry| filter.matches(entry, &letters.key));
        let room = wanted - self.entries.len();
        let matching = matching.take(room);
        self.entries
            .extend(matching.map(|entry| letters.head_or_whole(entry)));
    }

    /// The counts of these reasons that match a filter.
    fn of(mut by_reason: BTreeMap<String, u64>, filter: &Filter) -> Self {
        let is_meant = |r: &String| filter.reasons.is_empty() || filter.reasons.contains(r);
        by_reason.retain(|reason, _| is_meant(reason));
        let total = by_reason.values().sum();
        let others = by_reason.get(UNKNOWN).copied().unwrap_or_default();
        Self {
            total,
            dead_letters: total - others,
            by_reason,
            entries: Vec::new(),
        }
    }
}

/// The number of entries up to `last`, by reason.
async fn count(letters: &DeadLetters, last: &str) -> Result<BTreeMap<String, u64>, Error> {
    let command = scripts::COUNT_REASONS.name();
    let mut by_reason = BTreeMap::new();
    let mut from = "-".to_owned();
    loop {
        let mut call = scripts::COUNT_REASONS.on(&[&letters.key]);
        call.arg(&from).arg(last);
        call.arg(format!("h:{REASON}")).arg(format!("h:{SOURCE}"));
        call.arg(STRETCH_ENTRIES).arg(STRETCH_BYTES);
        let reply = letters.run(&scripts::COUNT_REASONS, &call).await?;
        let stretch = || {
            let mut parts = reply::array(command, reply)?.into_iter();
            let seen = reply::text(command, parts.next().unwrap_or_default())?;
            while let (Some(reason), Some(count)) = (parts.next(), parts.next()) {
                let reason = reply::bytes(command, reason)?;
                let count = reply::count(command, &count)?;
                *by_reason.entry(shown(&reason, &by_reason)).or_default() += count;
            }
            Ok(seen)
        };
        let seen = letters.checked(stretch())?;
        if seen.is_empty() {
            return Ok(by_reason);
        }
        from = format!("({seen}");
    }
}

/// The name of a reason in a count.
fn shown(reason: &[u8], known: &BTreeMap<String, u64>) -> String {
    let reason = match String::from_utf8_lossy(reason) {
        text if text.is_empty() => UNKNOWN.to_owned(),
        text => text.escape_debug().to_string(),
    };
    if known.contains_key(&reason) || known.len() < REASONS_MAX {
        reason
    } else {
        OTHER.to_owned()
    }
}
