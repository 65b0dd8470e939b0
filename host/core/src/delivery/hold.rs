//! Holds: an attempt may ask that its message comes again later, and that its start is not charged.

use std::time::Duration;

use super::millis::millis;

/// The shortest hold. A shorter one lasts as long.
pub const HOLD_MIN: Duration = Duration::from_millis(100);
/// The largest number of holds that a message may have.
pub const HOLDS_MAX: u32 = 1000;
/// A hold lasts up to a tenth longer than it was asked for, and at most this much longer.
const JITTER_MAX: Duration = Duration::from_secs(30);

/// How often a message may be held, and for how long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HoldLimits {
    /// The most holds of a message. Beyond that, a hold is charged like any other failure.
    pub max: u32,
    /// How long after its first hold the last one ends, at most.
    pub max_age: Duration,
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self {
            max: 100,
            max_age: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The holds of a message so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// How many of its starts ended with a hold.
    pub count: u32,
    /// When the first of them ended, in epoch milliseconds, by the server's clock.
    pub since_ms: u64,
}

/// How long an attempt may hold its message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HoldRoom {
    /// Not at all: its queue does not take messages back.
    AtMostOnce,
    /// Not at all: it was held this number of times.
    Spent(u32),
    /// This long at most.
    UpTo(Duration),
}

impl HoldLimits {
    /// How long a message with these holds may be held now.
    pub fn room(&self, held: Held, now_ms: u64) -> HoldRoom {
        if held.count >= self.max {
            return HoldRoom::Spent(self.max);
        }
        let since = match held.count {
            0 => 0,
            _ => now_ms.saturating_sub(held.since_ms),
        };
        HoldRoom::UpTo(self.max_age.saturating_sub(Duration::from_millis(since)))
    }
}

impl Default for HoldRoom {
    /// That of a message which was not held, by default.
    fn default() -> Self {
        HoldLimits::default().room(Held::default(), 0)
    }
}

impl HoldRoom {
    /// Whether there is room for a hold of `ms` milliseconds. Returns how long it lasts.
    ///
    /// # Errors
    /// There is no room: a text for the guest.
    pub fn take(self, ms: u64) -> Result<Duration, String> {
        let asked = Duration::from_millis(ms).max(HOLD_MIN);
        match self {
            Self::UpTo(most) if asked <= most => Ok(asked),
            Self::UpTo(most) => Err(format!(
                "a hold of {ms} ms ends too late: `hold.max_age` leaves {} ms",
                millis(most)
            )),
            Self::Spent(max) => Err(format!(
                "the message was held {max} times, as often as `hold.max` allows"
            )),
            Self::AtMostOnce => Err(
                "this queue takes no message back, so it holds none: only streams and reliable lists do"
                    .to_owned(),
            ),
        }
    }
}

/// How long a hold lasts that was asked for, with a random number in `0.0..1.0`. Never shorter.
pub fn jittered(asked: Duration, random: f64) -> Duration {
    asked.saturating_add((asked / 10).min(JITTER_MAX).mul_f64(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_message_is_held_as_often_and_as_long_as_its_limits_allow() {
        let limits = HoldLimits {
            max: 2,
            max_age: 10 * SECOND,
        };
        let room = |count, now_ms| {
            let held = Held {
                count,
                since_ms: 5_000,
            };
            limits.room(held, now_ms)
        };
        // Its first hold begins the time.
        assert_eq!(room(0, 999_000), HoldRoom::UpTo(10 * SECOND));
        assert_eq!(room(1, 8_000), HoldRoom::UpTo(7 * SECOND));
        assert_eq!(room(1, 99_000), HoldRoom::UpTo(Duration::ZERO));
        assert_eq!(room(2, 8_000), HoldRoom::Spent(2));
        assert_eq!(room(1, 8_000).take(7_000), Ok(7 * SECOND));
        assert_eq!(room(0, 0).take(0), Ok(HOLD_MIN));
        for (room, ms) in [
            (room(1, 8_000), 7_001),
            (room(1, 14_950), 1),
            (room(2, 8_000), 1),
            (room(0, 0), u64::MAX),
            (HoldRoom::AtMostOnce, 1),
        ] {
            assert!(room.take(ms).is_err(), "{room:?} {ms}");
        }
    }

    #[test]
    fn a_hold_is_never_shorter_than_asked() {
        assert_eq!(jittered(SECOND, 0.0), SECOND);
        assert_eq!(jittered(SECOND, 0.5), Duration::from_millis(1050));
        let month = 30 * 24 * 3600 * SECOND;
        assert_eq!(jittered(month, 1.0), month + JITTER_MAX);
        assert!(jittered(Duration::MAX, 0.9) >= month);
    }
}
