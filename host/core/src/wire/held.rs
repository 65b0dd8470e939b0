//! How often a message was held, as Redis keeps it: of a stream the score of a sorted set, of a list a header.

use crate::delivery::hold::{HOLDS_MAX, Held};

/// From a score: the time of the first hold in epoch milliseconds, and as a fraction of 2048 the number of holds plus one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "both parts are small, and a wrong score is zero holds"
)]
pub fn of_score(score: f64) -> Held {
    let count = (score.fract() * 2048.0).round() as u32;
    Held {
        count: count.saturating_sub(1).min(HOLDS_MAX),
        since_ms: score.trunc() as u64,
    }
}

/// Whether the score of a parked delivery says that its limits have reserved its start for then: half a step less than the count
/// that is its fraction.
pub fn is_reserved(score: f64) -> bool {
    (score.fract() * 4096.0).round() % 2.0 == 1.0
}

/// From the value of a header: both numbers. Anything else is no hold.
pub fn of_header(value: &str) -> Held {
    let parsed = value.split_once(' ').and_then(|(count, since_ms)| {
        let count: u32 = count.parse().ok()?;
        Some(Held {
            count: count.min(HOLDS_MAX),
            since_ms: since_ms.parse().ok()?,
        })
    });
    parsed.unwrap_or_default()
}

/// The value of a header.
pub fn header(held: Held) -> String {
    format!("{} {}", held.count, held.since_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_read_as_they_were_written() {
        let held = Held {
            count: 1000,
            since_ms: 1_795_000_000_123,
        };
        assert_eq!(of_header(&header(held)), held);
        // As the scripts write it.
        assert_eq!(of_score(1_795_000_000_123.0 + 1001.0 / 2048.0), held);
        assert_eq!(of_score(0.0), Held::default());
        for wrong in ["", "3", "3 x", "-1 5"] {
            assert_eq!(of_header(wrong), Held::default());
        }
        assert_eq!(of_header("4000000000 5").count, HOLDS_MAX);
    }
}
