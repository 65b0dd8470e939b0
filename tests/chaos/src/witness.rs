//! Reads the logs of hosts as they grow. A host writes a line before it goes on, so the lines survive its death.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::history::{Event, What};
use crate::script::END;
use crate::wire;

/// What guests have said, on all hosts.
#[derive(Debug, Default)]
pub struct Witness {
    /// The events so far.
    pub events: Vec<Event>,
    /// Ids of attempts that are not ours; at most 100.
    pub strangers: Vec<String>,
    /// Where a secret was found.
    pub leaks: Vec<String>,
    /// How many attempts have come to their end.
    pub ends: u64,
    /// How many lines the limits of a host have dropped: the witness is incomplete then.
    pub dropped: u64,
}

/// The log of one host.
#[derive(Debug)]
pub struct Log {
    file: BufReader<File>,
    partial: Vec<u8>,
    host: u16,
    /// What to add to its times, in milliseconds: its clock may be wrong.
    skew_ms: i64,
    /// Whether it has said that it is ready.
    pub is_ready: bool,
    /// The address of its admin server.
    pub admin: Option<String>,
}

/// A line that a guest has written, as its host logs it.
#[derive(Deserialize)]
struct GuestLine<'a> {
    timestamp: &'a str,
    line: std::borrow::Cow<'a, str>,
    message_id: std::borrow::Cow<'a, str>,
    attempt: u32,
}

/// A line of the host itself.
#[derive(Deserialize)]
struct HostLine<'a> {
    #[serde(borrow)]
    message: Option<std::borrow::Cow<'a, str>>,
    address: Option<String>,
}

impl Log {
    /// The log of a host, in this file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn new(path: &Path, host: u16, skew_ms: i64) -> std::io::Result<Self> {
        Ok(Self {
            file: BufReader::with_capacity(1 << 16, File::open(path)?),
            partial: Vec::new(),
            host,
            skew_ms,
            is_ready: false,
            admin: None,
        })
    }

    /// Read what is new.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(
        &mut self,
        witness: &mut Witness,
        begun_ms: i64,
        secret: &str,
    ) -> std::io::Result<()> {
        loop {
            let length = self.file.read_until(b'\n', &mut self.partial)?;
            if length == 0 || !self.partial.ends_with(b"\n") {
                return Ok(());
            }
            let line = std::mem::take(&mut self.partial);
            self.line(&String::from_utf8_lossy(&line), witness, begun_ms, secret);
            self.partial = line;
            self.partial.clear();
        }
    }

    fn line(&mut self, line: &str, witness: &mut Witness, begun_ms: i64, secret: &str) {
        if line.contains(secret) {
            witness.leaks.push(format!("the log of host {}", self.host));
        }
        if !line.contains("\"target\":\"guest\"") {
            self.host_line(line);
            return;
        }
        let Ok(said) = serde_json::from_str::<GuestLine<'_>>(line) else {
            witness.dropped += u64::from(line.contains("was dropped"));
            return;
        };
        let what = match said.line.split_once(' ') {
            Some(("start", _)) => What::Start,
            Some(("version", version)) => What::Version(version.parse().unwrap_or(u64::MAX)),
            None if said.line == END => What::End,
            _ => return,
        };
        let Some(message) = wire::number(&said.message_id) else {
            if witness.strangers.len() < 100 {
                witness.strangers.push(said.message_id.into_owned());
            }
            return;
        };
        witness.ends += u64::from(what == What::End);
        let at_ms = epoch_ms(said.timestamp).unwrap_or(begun_ms) + self.skew_ms - begun_ms;
        witness.events.push(Event {
            at_ms: u64::try_from(at_ms).unwrap_or(0),
            host: self.host,
            message,
            attempt: said.attempt,
            what,
        });
    }

    fn host_line(&mut self, line: &str) {
        if self.is_ready && self.admin.is_some() {
            return;
        }
        let Ok(said) = serde_json::from_str::<HostLine<'_>>(line) else {
            return;
        };
        self.is_ready |= said.message.is_some_and(|message| message == "ready");
        if self.admin.is_none() {
            self.admin = said.address;
        }
    }
}

/// Milliseconds since 1970 of a time such as `2026-01-31T12:34:56.789012Z`.
fn epoch_ms(time: &str) -> Option<i64> {
    let number = |from: usize, to: usize| time.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fraction: String = time
        .get(20..)?
        .chars()
        .take_while(char::is_ascii_digit)
        .take(3)
        .collect();
    let millis: i64 = format!("{fraction:0<3}").parse().ok()?;
    // Years that begin in March: the day that comes and goes is their last one.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_log_are_read() {
        assert_eq!(epoch_ms("1970-01-01T00:00:00.000000Z"), Some(0));
        assert_eq!(epoch_ms("2000-03-01T00:00:00.5Z"), Some(951_868_800_500));
        assert_eq!(
            epoch_ms("2024-02-29T12:34:56.789012Z"),
            Some(1_709_210_096_789)
        );
        assert_eq!(epoch_ms("yesterday"), None);
    }
}
