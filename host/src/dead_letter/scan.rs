//! Scanning a dead-letter queue, oldest first: exactly the entries that are there at the start.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::maybe_done;
use futures_util::poll;
use tokio::task::yield_now;

use super::{DeadLetters, Entry, Error, Kind, groups, list};
use crate::delivery::millis::millis;
use crate::redis::connection::Link;
use crate::redis::walk::{Entries, Order, PAGE, PAGE_BYTES};

/// Redis writes 64 KiB of a reply, then serves other connections. A page that is not larger is here before Redis begins
/// what is sent beside it. These are the bytes of its fields: their lengths are about a quarter more.
const WRITTEN_AT_ONCE: usize = 48 << 10;

/// How many entries are read at first.
const PAGE_FIRST: usize = 16;

/// A filter for dead letters: each field that is set must match. Entries that are no dead letters match
/// only if they are named: by `any_entry`, or by [`UNKNOWN`](super::peek::UNKNOWN) as a reason.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Filter {
    /// One of these reasons; [`UNKNOWN`](super::peek::UNKNOWN) matches what is no dead letter. Empty =
    /// any.
    pub reasons: Vec<String>,
    /// One of these ids of the dead-letter queue. Empty = any.
    pub ids: Vec<String>,
    /// Died at least this long ago, by Redis' clock.
    pub older_than: Option<Duration>,
    /// With each of these headers: a name (ASCII case ignored) and its first value.
    pub headers: Vec<(String, String)>,
    /// One of these signatures ([`Entry::signature_in`]), or of their ids ([`groups::id_of`]). Empty = any.
    ///
    /// [`groups::id_of`]: super::groups::id_of
    pub signatures: Vec<String>,
    /// Entries that are no dead letters as well.
    pub any_entry: bool,
}

impl Filter {
    /// Whether an entry matches, without its age and id, and without the question whether it is a dead
    /// letter.
    pub(super) fn matches(&self, entry: &Entry, key: &str) -> bool {
        let reason = entry.reason_in(key);
        let is_reason = self.reasons.is_empty() || self.reasons.iter().any(|r| r == reason);
        is_reason
            && self.is_signature(entry, key)
            && self.headers.iter().all(|(name, value)| {
                let found = entry.headers.find(name);
                found.is_some_and(|found| found == value.as_bytes())
            })
    }

    fn is_signature(&self, entry: &Entry, key: &str) -> bool {
        if self.signatures.is_empty() {
            return true;
        }
        let signature = entry.signature_in(key);
        let id = groups::id_of(&signature);
        let is_this = |wanted: &String| match groups::is_id(wanted) {
            true => *wanted == id,
            false => *wanted == signature,
        };
        self.signatures.iter().any(is_this)
    }

    /// Whether it is a dead letter, or entries like it are named.
    fn means(&self, entry: &Entry, key: &str) -> bool {
        self.any_entry || !self.reasons.is_empty() || entry.is_dead_letter_in(key)
    }
}

/// A walk through a dead-letter queue, without entries that come after its start. A clone of a fresh one
/// walks through the same entries again.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    letters: &'a DeadLetters,
    filter: Filter,
    walk: Walk,
    others: u64,
}

#[derive(Clone, Debug)]
enum Walk {
    Stream(Range),
    /// And the latest time of death, if the filter has one.
    List(list::Walk, Option<u64>),
}

/// A walk through a stream.
#[derive(Clone, Debug)]
struct Range {
    entries: Entries,
    /// The newest entry at the start, or the newest that is old enough.
    last: String,
    /// The ids still to look up, if the filter names some.
    ids: Option<VecDeque<String>>,
}

impl<'a> Scan<'a> {
    pub(super) async fn begin(letters: &'a DeadLetters, filter: Filter) -> Result<Self, Error> {
        let cutoff = match filter.older_than {
            Some(age) => Some(letters.now_ms().await?.saturating_sub(millis(age))),
            None => None,
        };
        let walk = match letters.kind().await? {
            Kind::List => Walk::List(list::Walk::begin(letters).await?, cutoff),
            Kind::Stream => Walk::Stream(Range::begin(letters, &filter.ids, cutoff).await?),
        };
        Ok(Self {
            letters,
            filter,
            walk,
            others: 0,
        })
    }

    /// The next entries that match, oldest first; a stretch may have none. `None`: the walk is over.
    ///
    /// # Errors
    /// [`Error`]; the walk may go on with another call.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        self.next_by(&self.letters.link).await
    }

    async fn next_by(&mut self, link: &Link) -> Result<Option<Vec<Entry>>, Error> {
        let (letters, filter) = (self.letters, &self.filter);
        let mut entries = match &mut self.walk {
            Walk::Stream(range) => match range.next(letters, link).await? {
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
        entries.retain(|entry| filter.matches(entry, &letters.key));
        let matching = entries.len();
        entries.retain(|entry| filter.means(entry, &letters.key));
        self.others += (matching - entries.len()) as u64;
        Ok(Some(entries))
    }

    /// Do some work with the last entries, and read the next ones at the same time: Redis reads them before it does
    /// that work. A walk through a list reads after the work: it must know what the work removed.
    ///
    /// The work returns whether it wants more. `None`: it does not, or the walk is over.
    ///
    /// # Errors
    /// Of the work, or as [`Scan::next`].
    pub async fn next_beside<E: From<Error>>(
        &mut self,
        work: impl Future<Output = Result<bool, E>>,
    ) -> Result<Option<Vec<Entry>>, E> {
        let (wants_more, next) = match self.walk {
            Walk::Stream(_) => {
                let ahead = &self.letters.ahead;
                let mut next = Box::pin(maybe_done(self.next_by(ahead)));
                // The request for the next ones goes out first. Later, work comes first.
                let _is_here = poll!(&mut next).is_ready();
                yield_now().await;
                let (wants_more, ()) = tokio::join!(biased; work, &mut next);
                (wants_more?, next.as_mut().take_output())
            }
            Walk::List(..) => (work.await?, None),
        };
        Ok(match (wants_more, next) {
            (true, Some(next)) => next?,
            (true, None) => self.next().await?,
            (false, _) => None,
        })
    }

    /// How many entries matched so far, but were left because they are no dead letters.
    pub fn others(&self) -> u64 {
        self.others
    }
}

impl Range {
    async fn begin(
        letters: &DeadLetters,
        ids: &[String],
        cutoff: Option<u64>,
    ) -> Result<Self, Error> {
        let mut ids = match ids.is_empty() {
            true => None,
            false => Some(sorted(ids)?),
        };
        let newest = letters.newest("+", 1).await?.pop();
        let most = match newest {
            Some(_) => usize::MAX,
            None => {
                ids = None;
                0
            }
        };
        let mut last = newest.map_or_else(String::new, |newest| newest.id);
        if let Some(cutoff) = cutoff.filter(|cutoff| *cutoff < Entry::time_of(&last)) {
            // Without a sequence number the end of a range is the last entry of that time.
            last = cutoff.to_string();
        }
        let mut entries = letters.walk(Order::Up, "-", &last).most(most);
        entries.page = PAGE_FIRST;
        Ok(Self { entries, last, ids })
    }

    async fn next(
        &mut self,
        letters: &DeadLetters,
        link: &Link,
    ) -> Result<Option<Vec<Entry>>, Error> {
        let Some(ids) = &mut self.ids else {
            let page = letters.read(link, &mut self.entries).await?;
            let bytes: usize = page.iter().map(Entry::size).sum();
            let average = (bytes / page.len().max(1)).max(1);
            let at_once = (WRITTEN_AT_ONCE / average).max(PAGE_FIRST);
            self.entries.page = at_once.min((PAGE_BYTES / average).clamp(1, PAGE));
            return Ok((!page.is_empty()).then_some(page));
        };
        let Some(id) = ids.front() else {
            return Ok(None);
        };
        let found = match parse(id)? <= bound(&self.last) {
            true => {
                let mut one = letters.walk(Order::Up, id, id);
                letters.read(link, &mut one).await?
            }
            false => Vec::new(),
        };
        ids.pop_front();
        Ok(Some(found))
    }
}

/// An id as its two numbers; the second may be missing.
fn parse(id: &str) -> Result<(u64, u64), Error> {
    let (ms, seq) = id.split_once('-').unwrap_or((id, "0"));
    match (ms.parse(), seq.parse()) {
        (Ok(ms), Ok(seq)) => Ok((ms, seq)),
        _ => Err(Error::NoId(id.to_owned())),
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

/// An id as Redis writes it.
pub(super) fn normalized(id: &str) -> Result<String, Error> {
    let (ms, seq) = parse(id)?;
    Ok(format!("{ms}-{seq}"))
}
