//! Small texts for people: numbers, times, and text that other programs wrote.

use std::time::{Duration, UNIX_EPOCH};

use crate::config::Value;
pub(super) use crate::workbench::text::{cut, micros, one_line, short, wrapped};

/// Shown for a value that is not known.
pub(super) const UNKNOWN: &str = "-";
/// The first millisecond of the year 10000: later times cannot be written.
const YEAR_10000_MS: u64 = 253_402_300_800_000;

/// Foreign text on one line, of bytes that may be no text.
pub(super) fn one_line_of(bytes: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(bytes))
}

/// The value, or a dash.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// `1 host`, `2 hosts`.
pub(super) fn count(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// A size with one decimal.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A duration in milliseconds, without milliseconds where it has seconds.
pub(super) fn duration_ms(ms: u64) -> String {
    let duration = match ms {
        0..1_000 => Duration::from_millis(ms),
        _ => Duration::from_secs(ms / 1_000),
    };
    duration.show()
}

/// A point in time; a dash for 0, and for times that cannot be written.
pub(super) fn time(epoch_ms: u64) -> String {
    match epoch_ms {
        1..YEAR_10000_MS => {
            let time = UNIX_EPOCH + Duration::from_millis(epoch_ms);
            humantime::format_rfc3339_millis(time).to_string()
        }
        _ => UNKNOWN.to_owned(),
    }
}

/// The same without milliseconds.
pub(super) fn time_to_seconds(epoch_ms: u64) -> String {
    match time(epoch_ms).split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => UNKNOWN.to_owned(),
    }
}

/// Enough of a digest to tell versions apart.
pub(super) fn short_digest(digest: &str) -> &str {
    let end = "sha256:".len() + 12;
    digest.get(..end).unwrap_or(digest)
}

/// Parse the value of a flag as the value of a setting.
pub(super) fn parse<T: Value>(text: &str) -> Result<T, String> {
    T::parse(text).map_err(|invalid| match invalid.hint {
        Some(hint) => format!("{}: {hint}", invalid.what),
        None => invalid.what,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_written_are_a_dash() {
        assert_eq!(time(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(time_to_seconds(1_700_000_000_123), "2023-11-14T22:13:20Z");
        for none in [0, YEAR_10000_MS, u64::MAX] {
            assert_eq!(time(none), UNKNOWN);
            assert_eq!(time_to_seconds(none), UNKNOWN);
        }
    }
}
