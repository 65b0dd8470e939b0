//! The time of day by the server's clock. It decides when messages expire and dates their deaths,
//! because the clock of a host may be wrong by hours.
//!
//! It is read when a queue is opened and with every housekeeping; in between, this machine's monotonic
//! clock goes on from there.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::warn;

use crate::connection::Link;
use crate::error::Error;
use crate::reply;
use hostler_core::delivery::millis::millis;

/// The smallest difference between the clocks that is worth a warning.
const SKEW_MIN: Duration = Duration::from_secs(60);
/// The smallest step back of the server's clock that matters: less is a slow answer, or a correction.
const STEP_MIN: Duration = Duration::from_secs(1);

/// The time of day; by this machine's clock until a server was asked.
#[derive(Debug, Default)]
pub struct ServerTime(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The time of the server's clock, and when it was read.
    read: Option<(Instant, u64)>,
    /// How often it was found to be set back.
    steps_back: u64,
    has_warned: bool,
}

impl ServerTime {
    /// Now, in epoch milliseconds.
    pub fn now_ms(&self) -> u64 {
        match self.0.lock().read {
            Some((at, then)) => then.saturating_add(millis(at.elapsed())),
            None => machine_ms(),
        }
    }

    /// Ask the server.
    pub async fn read(&self, link: &Link) -> Result<(), Error> {
        let server = server_ms(link).await?;
        // The server read it some time before the answer came. So our time is a little behind, and
        // nothing expires early.
        self.set(Instant::now(), server);
        Ok(())
    }

    fn set(&self, at: Instant, server: u64) {
        let mut state = self.0.lock();
        if let Some((before, then)) = state.read {
            let expected = then.saturating_add(millis(at.saturating_duration_since(before)));
            let back = Duration::from_millis(expected.saturating_sub(server));
            if back >= STEP_MIN {
                state.steps_back += 1;
                warn!(
                    seconds = back.as_secs_f64(),
                    "the clock of the server was set back: leases count from now, and delayed messages wait longer"
                );
            }
        }
        state.read = Some((at, server));
        let machine = machine_ms().saturating_sub(millis(at.elapsed()));
        let skew = Duration::from_millis(machine.abs_diff(server));
        if skew < SKEW_MIN {
            state.has_warned = false;
        } else if !std::mem::replace(&mut state.has_warned, true) {
            let ahead = machine > server;
            let seconds = skew.as_secs();
            warn!(
                seconds,
                ahead, "the clock of this machine and the server's differ: the server's counts"
            );
        }
    }

    /// How often the server's clock was found to be set back.
    pub fn steps_back(&self) -> u64 {
        self.0.lock().steps_back
    }
}

/// The time of the server's clock, in epoch milliseconds.
pub async fn server_ms(link: &Link) -> Result<u64, Error> {
    const COMMAND: &str = "TIME";
    reply::time_ms(COMMAND, link.call(COMMAND, &redis::cmd(COMMAND)).await?)
}

/// The time of this machine's clock, in epoch milliseconds.
pub fn machine_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_where_the_server_was() {
        let time = ServerTime::default();
        assert!(time.now_ms().abs_diff(machine_ms()) < 60_000);
        let hour = 3_600_000;
        let then = machine_ms() - 7 * hour;
        let at = Instant::now();
        time.set(at, then);
        let (low, now) = (then + millis(at.elapsed()), time.now_ms());
        assert!(low <= now && now <= then + millis(at.elapsed()), "{now}");
    }

    #[test]
    fn a_step_back_is_noticed_once_and_a_correction_is_none() {
        let time = ServerTime::default();
        let begun = Instant::now();
        let (second, hour) = (1_000, 3_600_000);
        let start = machine_ms();
        for (after_s, server, steps) in [
            (0, start, 0),
            (5, start + 5 * second, 0),
            // Slow answers, and corrections.
            (10, start + 10 * second - 500, 0),
            (15, start + hour, 0),
            (20, start + 5 * second, 1),
            (25, start + 10 * second, 1),
            (30, start + 10 * second, 2),
        ] {
            time.set(begun + Duration::from_secs(after_s), server);
            assert_eq!(time.steps_back(), steps, "after {after_s} s");
        }
    }
}
