//! A schedule as people and their programs see it: `hostler schedule list`, `inspect`, `queues`, `watch`, the dashboard.

use serde::Serialize;

use crate::redis::error::Error;
use crate::schedule::store::{Listed, Store};
use crate::schedule::ticks::LATE_MS;

/// How many of the next ticks are shown.
const NEXT_MAX: usize = 3;

/// A schedule.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ScheduleSeen {
    /// Its name.
    pub name: String,
    /// The cron expression.
    pub cron: String,
    /// The time zone.
    pub zone: String,
    /// Which missed ticks are published.
    pub catch_up: String,
    /// `allow` or `skip`.
    pub overlap: &'static str,
    /// The file that has it, or `cli`.
    pub source: String,
    /// It has no ticks until it is resumed.
    pub paused: bool,
    /// Its next ticks, in epoch milliseconds.
    pub next_ms: Vec<u64>,
    /// The last tick that was published, in epoch milliseconds.
    pub last_ms: Option<u64>,
    /// The id of its message.
    pub last_id: Option<String>,
    /// How many messages it has published.
    pub published: u64,
    /// How many ticks were missed.
    pub missed: u64,
    /// How many were skipped, because the message before was not settled.
    pub skipped: u64,
    /// What is wrong with it.
    pub problem: Option<String>,
}

impl ScheduleSeen {
    fn of(now_ms: u64, listed: Listed) -> Self {
        let record = listed.record;
        let mut seen = Self {
            name: listed.name,
            paused: record.paused,
            next_ms: listed.next_ms.into_iter().collect(),
            last_ms: record.tick,
            last_id: record.id,
            published: record.published,
            missed: record.missed,
            skipped: record.skipped,
            ..Self::default()
        };
        let Some(known) = listed.definition else {
            seen.problem = Some("its definition cannot be read".to_owned());
            return seen;
        };
        match (known.timing(), listed.next_ms) {
            (Ok(timing), Some(next)) => {
                seen.next_ms
                    .extend(timing.all_after(next).take(NEXT_MAX - 1));
                if now_ms.saturating_sub(next) > LATE_MS {
                    seen.problem = Some("its tick is overdue: no host publishes it".to_owned());
                }
            }
            (Ok(_), None) => {}
            (Err(error), _) => seen.problem = Some(error.to_string()),
        }
        seen.overlap = if known.skip_in.is_some() {
            "skip"
        } else {
            "allow"
        };
        seen.cron = known.cron;
        seen.zone = known.zone;
        seen.catch_up = known.catch_up;
        seen.source = known.source;
        seen
    }
}

/// The schedules of a queue, by name.
///
/// # Errors
/// Any error of Redis.
pub async fn seen(store: &Store) -> Result<Vec<ScheduleSeen>, Error> {
    let (now_ms, all) = store.all().await?;
    let seen = all.into_iter().map(|one| ScheduleSeen::of(now_ms, one));
    Ok(seen.collect())
}
