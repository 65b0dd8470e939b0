//! The clock that leases are measured by.

use std::time::{Duration, Instant};

/// The time since a start. It goes on while the machine is suspended: the server's clock does so, and other hosts
/// take over what this one held. (On systems other than Linux it may stand still meanwhile.)
///
/// Reading it takes no call of the kernel: the vDSO of Linux serves this clock like the monotonic one.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begun: Instant,
    /// How long the machine had been up; `None` = that cannot be asked.
    up: Option<Duration>,
}

impl Clock {
    /// A clock that starts now, a little above zero.
    pub fn start() -> Self {
        Self {
            begun: Instant::now(),
            up: uptime(),
        }
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        match self.up.zip(uptime()) {
            Some((then, now)) => now.saturating_sub(then),
            None => self.begun.elapsed(),
        }
    }
}

/// How long the machine has been up, with the time that it was suspended.
#[cfg(target_os = "linux")]
fn uptime() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .map(Duration::from)
}

#[cfg(not(target_os = "linux"))]
fn uptime() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back_and_keeps_up_with_the_monotonic_clock() {
        let (clock, begun) = (Clock::start(), Instant::now());
        let mut before = clock.now();
        while begun.elapsed() < Duration::from_millis(20) {
            let least = begun.elapsed();
            let now = clock.now();
            assert!(
                now >= before && now >= least,
                "{before:?} {least:?} {now:?}"
            );
            before = now;
        }
    }
}
