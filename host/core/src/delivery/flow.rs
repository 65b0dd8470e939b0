//! Limits of starts: how many messages may start in a time, over all hosts.
//!
//! A limit is a *generic cell rate algorithm*: Redis keeps one number for it (for each key of it), the time at which all that
//! was taken is paid for. `admit.lua` computes the same; a test compares both. Times are in microseconds of the server's clock.

use std::fmt;

/// The most starts in a second that a rate allows: a start takes a microsecond at least.
pub const PER_SECOND_MAX: u64 = 1_000_000;
/// The most starts at once, and the most units of one message.
pub const BURST_MAX: u32 = 1_000_000;
/// For how long a start that was allowed may wait for a slot. Then it must be allowed anew.
pub const ADMITTED_MS: u64 = 30;
/// For how long the start of a message that was parked for its limit is kept for it.
pub const RESERVED_MS: u64 = 1000;

/// A number of starts in a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    count: u32,
    per: Per,
}

/// The time of a rate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Per {
    Second,
    Minute,
    Hour,
}

impl Per {
    const ALL: [(&'static str, Self); 3] = [
        ("s", Self::Second),
        ("min", Self::Minute),
        ("h", Self::Hour),
    ];

    const fn seconds(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }
}

/// Why a text is no rate.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidRate {
    /// It has another form.
    #[error("is no rate: write one like `100/s`, `600/min` or `5000/h`")]
    Form,
    /// It allows more than can be counted.
    #[error("is more than {PER_SECOND_MAX} in a second")]
    TooFast,
}

impl Rate {
    /// Read a text such as `600/min`.
    ///
    /// # Errors
    /// It is no rate.
    pub fn parse(text: &str) -> Result<Self, InvalidRate> {
        let (count, per) = text.split_once('/').ok_or(InvalidRate::Form)?;
        let per = Per::ALL.into_iter().find(|(word, _)| *word == per);
        let (_, per) = per.ok_or(InvalidRate::Form)?;
        // `+5` is no number here.
        let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = Some(count).filter(|_| is_number).ok_or(InvalidRate::Form)?;
        match count.parse::<u64>() {
            Ok(0) => Err(InvalidRate::Form),
            Ok(count) if count <= PER_SECOND_MAX * u64::from(per.seconds()) => Ok(Self {
                count: u32::try_from(count).map_err(|_| InvalidRate::TooFast)?,
                per,
            }),
            Ok(_) => Err(InvalidRate::TooFast),
            Err(_) if count.is_empty() => Err(InvalidRate::Form),
            Err(_) => Err(InvalidRate::TooFast),
        }
    }

    /// How many starts there are in the time.
    pub fn count(self) -> u32 {
        self.count
    }

    /// The time, in microseconds.
    pub fn period(self) -> u64 {
        u64::from(self.per.seconds()) * 1_000_000
    }

    /// The starts of 20 ms, at least one: what may start at once if nothing else is said.
    pub fn usual_burst(self) -> u32 {
        (self.count / (self.per.seconds() * 50)).max(1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = Per::ALL.into_iter().find(|(_, per)| *per == self.per);
        write!(f, "{}/{}", self.count, per.map_or("", |(word, _)| word))
    }
}

/// A rate, and how much of it may be used at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pace {
    /// The rate.
    pub rate: Rate,
    /// The most units at once.
    pub burst: u32,
}

impl Pace {
    /// How long this number of units takes.
    pub fn cost(self, units: u32) -> u64 {
        (u64::from(units) * self.rate.period()).div_ceil(u64::from(self.rate.count))
    }

    /// How long the largest message takes: this much may be unpaid when the next one starts.
    pub fn slack(self) -> u64 {
        self.cost(self.burst)
    }

    /// How late a start may be that is not lost: a host that waits for it wakes up late, and asks. A reserved start is
    /// never late: no host waits for it.
    pub fn grace(self) -> u64 {
        self.cost(1).min(ADMITTED_MS * 1000)
    }

    /// When a message of this number of units may start, if all is paid at `paid`: now, or later. More units than the burst
    /// count as the burst, or it would never start. `grace`: [`Self::grace`], or 0.
    pub fn start(self, paid: u64, now: u64, units: u32, grace: u64) -> u64 {
        let unpaid = self.paid(paid, now, units, grace);
        unpaid.saturating_sub(self.slack()).max(now)
    }

    /// When all is paid after such a message has started, or has reserved its start.
    pub fn paid(self, paid: u64, now: u64, units: u32, grace: u64) -> u64 {
        paid.max(now.saturating_sub(grace)) + self.cost(units.min(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace(rate: &str, burst: u32) -> Pace {
        let rate = Rate::parse(rate).unwrap();
        Pace { rate, burst }
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        for text in [
            "1/s",
            "100/s",
            "600/min",
            "5000/h",
            "1000000/s",
            "3600000000/h",
        ] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", "100", "/s", "0/s", "+1/s", "1.5/s", "1/sec", "1/d", "-1/s", "1 /s",
        ] {
            assert_eq!(Rate::parse(text), Err(InvalidRate::Form), "{text}");
        }
        for text in [
            "1000001/s",
            "60000001/min",
            "5000000000/h",
            "99999999999999999999999/s",
        ] {
            assert_eq!(Rate::parse(text), Err(InvalidRate::TooFast), "{text}");
        }
        let usual = |text| Rate::parse(text).unwrap().usual_burst();
        assert_eq!((usual("100/s"), usual("5/s"), usual("600/min")), (2, 1, 1));
        assert_eq!((usual("6000/min"), usual("1000000/s")), (2, 20_000));
    }

    #[test]
    fn a_message_that_waits_starts_when_its_turn_comes() {
        let limit = pace("10/s", 2);
        let (mut paid, mut starts) = (0, Vec::new());
        for _ in 0..4 {
            starts.push(limit.start(paid, 1_000_000, 1, 0));
            paid = limit.paid(paid, 1_000_000, 1, 0);
        }
        assert_eq!(starts, [1_000_000, 1_000_000, 1_100_000, 1_200_000]);
    }

    #[test]
    fn a_start_that_is_late_is_not_lost() {
        let grace = |rate| pace(rate, 1).grace();
        assert_eq!(
            (grace("20/s"), grace("100/s"), grace("1000000/s")),
            (30_000, 10_000, 1)
        );
        let limit = pace("20/s", 1);
        let (mut paid, mut now, mut starts) = (0, 1_000_000, 0);
        // Each wakes up 29 ms late.
        while now < 11_000_000 {
            paid = limit.paid(paid, now, 1, limit.grace());
            starts += 1;
            now = limit.start(paid, now, 1, limit.grace()) + 29_000;
        }
        assert!((199..=201).contains(&starts), "{starts}");
    }

    fn rates() -> impl Strategy<Value = Pace> {
        let seconds = prop_oneof![Just("s"), Just("min"), Just("h")];
        let parts = (1..=1_000_000_u32, seconds, 1..=BURST_MAX);
        parts.prop_map(|(count, per, burst)| pace(&format!("{count}/{per}"), burst))
    }

    proptest! {
        /// In any time from one start to another, no more starts than the burst, one that was late, and what the rate allows in
        /// that time.
        #[test]
        fn no_time_has_more_starts_than_the_rate_allows(
            limit in rates(),
            is_late in any::<bool>(),
            steps in prop::collection::vec((0_u64..5_000_000, 1_u32..100), 1..60),
        ) {
            let grace = if is_late { limit.grace() } else { 0 };
            let (mut paid, mut now, mut starts) = (0, 1_700_000_000_000_000_u64, Vec::new());
            for (after, units) in steps {
                now += after;
                let units = units.min(limit.burst);
                if limit.start(paid, now, units, grace) == now {
                    paid = limit.paid(paid, now, units, grace);
                    starts.push((now, u64::from(units)));
                }
            }
            for (place, (from, _)) in starts.iter().enumerate() {
                let mut taken = 0;
                for (until, units) in &starts[place..] {
                    taken += units;
                    let allowed = (until - from) * u64::from(limit.rate.count()) / limit.rate.period();
                    prop_assert!(taken <= u64::from(limit.burst) + u64::from(is_late) + allowed + 1);
                }
            }
        }

        /// Reserved starts are in the order of their reservations, and one may start when its time has come: nothing is idle
        /// that has something to do.
        #[test]
        fn reserved_starts_follow_each_other_at_the_rate(limit in rates(), count in 1_usize..50) {
            let now = 1_700_000_000_000_000_u64;
            let (mut paid, mut last) = (0, now);
            for number in 1..=count as u64 {
                let start = limit.start(paid, now, 1, 0);
                paid = limit.paid(paid, now, 1, 0);
                prop_assert!(start >= last);
                // No later than the rate says; each cost is rounded up to a microsecond.
                let latest = now + number * limit.rate.period() / u64::from(limit.rate.count()) + number;
                prop_assert!(start <= latest);
                last = start;
            }
        }

        /// All numbers are exact in Lua, whose numbers are floating point.
        #[test]
        fn all_numbers_are_exact_in_lua(limit in rates(), units in 1..=BURST_MAX) {
            let most = 1_u64 << 53;
            prop_assert!(u64::from(units.min(limit.burst)) * limit.rate.period() < most);
            // Until the year 2100.
            prop_assert!(limit.slack() + 4_102_444_800_000_000 < most);
        }
    }
}
