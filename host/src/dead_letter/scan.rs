//! Going through a dead-letter queue, oldest first: exactly the entries that are there at the start.

use std::collections::VecDeque;
use std::time::Duration;

use redis::Cmd;

use super::peek::UNKNOWN;
use super::{DeadLetters, Entry, Error, Kind, list};
use crate::redis::{reply, server_ms};

/// How many entries are read at first, and at most at once.
const PAGE_FIRST: usize = 16;
const PAGE_MAX: usize = 256;
/// About how many bytes are read at once, where entries are large.
const PAGE_BYTES: usize = 4 << 20;

/// Which dead letters are meant: those that match everything that is set.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Filter {
    /// One of these reasons; [`UNKNOWN`] matches an entry without one. Empty = any.
    pub reasons: Vec<String>,
    /// One of these ids of the dead-letter queue. Empty = any.
    pub ids: Vec<String>,
    /// Died at least this long ago, by Redis' clock.
    pub older_than: Option<Duration>,
    /// With each of these headers: a name (ASCII case ignored) and its first value.
    pub headers: Vec<(String, String)>,
}

impl Filter {
    /// Whether an entry is meant, its age and id apart.
    fn matches(&self, entry: &Entry) -> bool {
        let reason = match entry.reason.as_deref() {
            None | Some("") => UNKNOWN,
            Some(reason) => reason,
        };
        let is_reason = self.reasons.is_empty() || self.reasons.iter().any(|r| r == reason);
        is_reason
            && self.headers.iter().all(|(name, value)| {
                let found = entry.headers.find(name);
                found.is_some_and(|found| found == value.as_bytes())
            })
    }
}

/// A walk through a dead-letter queue. What comes after its start is not in it;
/// a clone of a fresh one walks through the same entries again.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    letters: &'a DeadLetters,
    filter: Filter,
    walk: Walk,
}

#[derive(Clone, Debug)]
enum Walk {
    Stream(Range),
    /// And the time that an entry must have died at or before, if that matters.
    List(list::Walk, Option<u64>),
}

/// A walk through a stream.
#[derive(Clone, Debug)]
struct Range {
    from: String,
    /// The newest entry at the start, or the newest that is old enough.
    last: String,
    /// The ids still to look up, if the filter names some.
    ids: Option<VecDeque<String>>,
    page: usize,
    is_over: bool,
}

impl DeadLetters {
    /// Go through the entries that are there now and that `filter` means, oldest first.
    ///
    /// # Errors
    /// [`Error`]; nothing was changed. An id in the filter that is none is [`Error::NoId`].
    pub async fn scan(&self, filter: Filter) -> Result<Scan<'_>, Error> {
        if self.kind().await? == Kind::List {
            let died_before = match filter.older_than {
                Some(age) => Some(self.now_ms().await?.saturating_sub(millis(age))),
                None => None,
            };
            return Ok(Scan {
                letters: self,
                walk: Walk::List(list::Walk::begin(self).await?, died_before),
                filter,
            });
        }
        let ids = match filter.ids.is_empty() {
            true => None,
            false => Some(sorted(&filter.ids)?),
        };
        let newest = self.newest("+", 1).await?.pop();
        let mut range = Range {
            from: "-".to_owned(),
            is_over: newest.is_none(),
            last: newest.map_or_else(String::new, |newest| newest.id),
            ids,
            page: PAGE_FIRST,
        };
        if let Some(age) = filter.older_than {
            let cutoff = self.now_ms().await?.saturating_sub(millis(age));
            if cutoff < Entry::time_of(&range.last) {
                // Without a sequence number the end of a range is the last entry of that time.
                range.last = cutoff.to_string();
            }
        }
        Ok(Scan {
            letters: self,
            walk: Walk::Stream(range),
            filter,
        })
    }

    /// Delete entries. Says how many of them were still there.
    ///
    /// # Errors
    /// [`Error`]; after a lost connection whether they are gone is not known, and this may be
    /// repeated.
    pub async fn delete(&self, entries: &[Entry]) -> Result<u64, Error> {
        const COMMAND: &str = "XDEL";
        if entries.is_empty() {
            return Ok(0);
        }
        if self.kind().await? == Kind::List {
            return self.delete_values(entries).await;
        }
        let mut command = Cmd::new();
        command.arg(COMMAND).arg(&self.key);
        for entry in entries {
            command.arg(&entry.id);
        }
        let deleted = self.link.call(COMMAND, &command).await;
        deleted
            .and_then(|count| reply::count(COMMAND, &count))
            .map_err(|error| self.failed(error))
    }

    /// Delete the entries that are there now and that `filter` means. Says how many there were.
    ///
    /// # Errors
    /// [`Error`]; what was deleted before is gone.
    pub async fn purge_all(&self, filter: Filter) -> Result<u64, Error> {
        let mut scan = self.scan(filter).await?;
        let mut purged = 0;
        while let Some(entries) = scan.next().await? {
            purged += self.delete(&entries).await?;
        }
        Ok(purged)
    }

    /// One entry, if it is there.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NoId`] if `id` is none.
    pub async fn find(&self, id: &str) -> Result<Option<Entry>, Error> {
        if self.kind().await? == Kind::List {
            let mut scan = self
                .scan(Filter {
                    ids: vec![id.to_owned()],
                    ..Filter::default()
                })
                .await?;
            while let Some(mut entries) = scan.next().await? {
                if !entries.is_empty() {
                    return Ok(Some(entries.remove(0)));
                }
            }
            return Ok(None);
        }
        let (ms, seq) = parse(id)?;
        let id = format!("{ms}-{seq}");
        Ok(self.range(&id, &id, 1).await?.pop())
    }

    /// How many entries there are now.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn length(&self) -> Result<u64, Error> {
        let name = match self.kind().await? {
            Kind::Stream => "XLEN",
            Kind::List => "LLEN",
        };
        let mut command = Cmd::new();
        command.arg(name).arg(&self.key);
        let length = self.link.call(name, &command).await;
        length
            .and_then(|length| reply::count(name, &length))
            .map_err(|error| self.failed(error))
    }

    async fn now_ms(&self) -> Result<u64, Error> {
        let time = server_ms(&self.link).await;
        time.map_err(|error| self.failed(error))
    }
}

impl Scan<'_> {
    /// The next entries that are meant, oldest first; perhaps none of a stretch. `None`: the walk
    /// is over.
    ///
    /// # Errors
    /// [`Error`]; the walk may go on with another call.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        let (letters, filter) = (self.letters, &self.filter);
        let mut entries = match &mut self.walk {
            Walk::Stream(range) => match range.next(letters).await? {
                Some(entries) => entries,
                None => return Ok(None),
            },
            Walk::List(walk, died_before) => {
                let Some(mut entries) = walk.next(letters).await? else {
                    return Ok(None);
                };
                let ids = &filter.ids;
                entries.retain(|entry| {
                    let is_old = died_before.is_none_or(|before| {
                        let died = entry.died_ms();
                        died > 0 && died <= before
                    });
                    is_old && (ids.is_empty() || ids.contains(&entry.id))
                });
                entries
            }
        };
        entries.retain(|entry| filter.matches(entry));
        Ok(Some(entries))
    }
}

impl Range {
    async fn next(&mut self, letters: &DeadLetters) -> Result<Option<Vec<Entry>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let entries = match &mut self.ids {
            Some(ids) => {
                let Some(id) = ids.front() else {
                    self.is_over = true;
                    return Ok(None);
                };
                let found = match parse(id)? <= bound(&self.last) {
                    true => letters.range(id, id, 1).await?,
                    false => Vec::new(),
                };
                ids.pop_front();
                found
            }
            None => {
                let page = letters.range(&self.from, &self.last, self.page).await?;
                let Some(newest) = page.last() else {
                    self.is_over = true;
                    return Ok(None);
                };
                self.from = format!("({}", newest.id);
                self.adapt(&page);
                page
            }
        };
        Ok(Some(entries))
    }

    /// Read more at once where entries are small.
    fn adapt(&mut self, page: &[Entry]) {
        let bytes: usize = page.iter().map(Entry::size).sum();
        let average = (bytes / page.len().max(1)).max(1);
        self.page = (PAGE_BYTES / average).clamp(1, PAGE_MAX);
    }
}

/// An id as its two numbers; the second may be missing.
fn parse(id: &str) -> Result<(u64, u64), Error> {
    let (ms, seq) = id.split_once('-').unwrap_or((id, "0"));
    match (ms.parse(), seq.parse()) {
        (Ok(ms), Ok(seq)) => Ok((ms, seq)),
        _ => Err(Error::NoId { id: id.to_owned() }),
    }
}

/// The end of a range as two numbers.
fn bound(last: &str) -> (u64, u64) {
    match last.contains('-') {
        true => parse(last).unwrap_or((u64::MAX, u64::MAX)),
        false => (last.parse().unwrap_or(u64::MAX), u64::MAX),
    }
}

/// Oldest first, each once, written as Redis writes them.
fn sorted(ids: &[String]) -> Result<VecDeque<String>, Error> {
    let mut parsed: Vec<(u64, u64)> = ids.iter().map(|id| parse(id)).collect::<Result<_, _>>()?;
    parsed.sort_unstable();
    parsed.dedup();
    let ids = parsed.into_iter().map(|(ms, seq)| format!("{ms}-{seq}"));
    Ok(ids.collect())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
