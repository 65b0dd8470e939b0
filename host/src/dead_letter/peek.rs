//! A look into a dead-letter queue that changes nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{DeadLetters, Entry, Error, Filter, Kind};
use crate::delivery::text::truncate_utf8;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::wire::dead_letter::REASON;

/// The most different reasons that are told apart; what hostler writes are ten.
const REASONS_MAX: usize = 100;
/// After how many bytes a reason is cut.
const REASON_MAX: usize = 64;
/// What counts an entry without a reason.
pub const UNKNOWN: &str = "unknown";
/// What counts the entries of further reasons, when there are more than can be told apart.
pub const OTHER: &str = "other";
/// How many entries one call of the script counts at most, and after how many bytes it stops: it
/// keeps everybody else waiting meanwhile.
const STRETCH_ENTRIES: usize = 1000;
const STRETCH_BYTES: usize = 4 * 1024 * 1024;
/// How many whole entries are read at once.
const PAGE: usize = 16;

/// What is in a dead-letter queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Peek {
    /// How many entries there were.
    pub total: u64,
    /// How many for each reason.
    pub by_reason: BTreeMap<String, u64>,
    /// The newest, newest first.
    pub entries: Vec<Entry>,
}

impl DeadLetters {
    /// Count the whole queue by reason, as it is now, and read the `limit` newest entries. A key
    /// that does not exist is an empty queue.
    ///
    /// # Errors
    /// [`Error`]; nothing was changed.
    pub async fn peek(&self, limit: usize) -> Result<Peek, Error> {
        if self.kind().await? == Kind::List {
            return self.peek_list(limit).await;
        }
        // Everything that is counted or read is at most as new as this.
        let Some(newest) = self.newest("+", 1).await?.pop() else {
            return Ok(Peek::default());
        };
        let by_reason = self.count(&newest.id).await?;
        let mut peek = Peek {
            total: by_reason.values().sum(),
            by_reason,
            entries: Vec::new(),
        };
        let mut from = newest.id;
        while peek.entries.len() < limit {
            let page = self
                .newest(&from, PAGE.min(limit - peek.entries.len()))
                .await?;
            let Some(oldest) = page.last() else { break };
            from = format!("({}", oldest.id);
            peek.entries.extend(page);
        }
        Ok(peek)
    }

    async fn peek_list(&self, limit: usize) -> Result<Peek, Error> {
        let mut scan = self.scan(Filter::default()).await?;
        let mut peek = Peek::default();
        while let Some(entries) = scan.next().await? {
            for entry in entries {
                let mut reason = entry.reason.unwrap_or_default();
                truncate_utf8(&mut reason, REASON_MAX);
                peek.total += 1;
                let reason = shown(reason.as_bytes(), &peek.by_reason);
                *peek.by_reason.entry(reason).or_default() += 1;
            }
        }
        while peek.entries.len() < limit {
            let seen = peek.entries.len();
            let page = self.newest_values(seen, PAGE.min(limit - seen)).await?;
            if page.is_empty() {
                break;
            }
            peek.entries.extend(page.into_iter().map(Entry::of_value));
        }
        Ok(peek)
    }

    /// How many entries up to `last` for each reason.
    async fn count(&self, last: &str) -> Result<BTreeMap<String, u64>, Error> {
        const COMMAND: &str = Script::CountReasons.name();
        let mut by_reason = BTreeMap::new();
        let mut from = "-".to_owned();
        loop {
            let mut call = Script::CountReasons.on(&[&self.key]);
            call.arg(&from).arg(last).arg(format!("h:{REASON}"));
            call.arg(STRETCH_ENTRIES).arg(STRETCH_BYTES);
            let stretch = async {
                let reply = script::run(&self.link, Script::CountReasons, &call).await?;
                let mut parts = reply::array(COMMAND, reply)?.into_iter();
                let seen = reply::text(COMMAND, parts.next().unwrap_or_default())?;
                while let (Some(reason), Some(count)) = (parts.next(), parts.next()) {
                    let reason = reply::bytes(COMMAND, reason)?;
                    let count = reply::count(COMMAND, &count)?;
                    *by_reason.entry(shown(&reason, &by_reason)).or_default() += count;
                }
                Ok(seen)
            };
            let seen = stretch.await.map_err(|error| self.failed(error))?;
            if seen.is_empty() {
                return Ok(by_reason);
            }
            from = format!("({seen}");
        }
    }
}

/// The name that a reason is counted under.
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
