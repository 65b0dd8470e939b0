//! A handler with a stopwatch: the time of calls, and the time from sending to the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::delivery::message::Message;
use crate::runtime::{Batching, Call, Handler, Report, Verdicts};

/// The header that says when a message was sent: nanoseconds after the stopwatch's start.
pub(super) const SENT: &str = "x-bench-sent-ns";

/// The measured times. Each slot keeps its own and adds them here at its end, so that cores share
/// nothing while measuring.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The time of each call.
    pub(super) calls: Vec<Duration>,
    /// From sending to the handler's answer, of messages with the header [`SENT`].
    pub(super) journeys: Vec<Duration>,
}

/// A handler with a stopwatch.
#[derive(Debug)]
pub(super) struct Timed<H> {
    handler: H,
    start: Instant,
    times: Arc<Mutex<Times>>,
}

impl<H: Handler> Timed<H> {
    /// `start`: the zero of the header [`SENT`].
    pub(super) fn new(handler: H, start: Instant) -> Self {
        Self {
            handler,
            start,
            times: Arc::default(),
        }
    }

    /// The times; complete when all slots have ended.
    pub(super) fn times(&self) -> Arc<Mutex<Times>> {
        Arc::clone(&self.times)
    }

    /// The time from sending until now.
    fn journey(&self, message: &Message) -> Option<Duration> {
        let sent = Duration::from_nanos(message.headers.find_number(SENT)?);
        Some(self.start.elapsed().saturating_sub(sent))
    }
}

/// A slot and its times.
pub(super) struct TimedSlot<S> {
    slot: S,
    seen: Times,
    times: Arc<Mutex<Times>>,
}

impl<S> Drop for TimedSlot<S> {
    fn drop(&mut self) {
        let mut times = self.times.lock();
        times.calls.append(&mut self.seen.calls);
        times.journeys.append(&mut self.seen.journeys);
    }
}

impl<H: Handler> Handler for Timed<H> {
    type Slot = TimedSlot<H::Slot>;

    fn slot(&self) -> Self::Slot {
        TimedSlot {
            slot: self.handler.slot(),
            seen: Times::default(),
            times: self.times(),
        }
    }

    async fn run<'a>(&'a self, slot: &'a mut Self::Slot, call: Call<'a>) -> Report {
        let report = self.handler.run(&mut slot.slot, call).await;
        slot.seen.calls.push(report.duration);
        slot.seen.journeys.extend(self.journey(call.message));
        report
    }

    fn batching(&self) -> Option<Batching> {
        self.handler.batching()
    }

    async fn run_batch<'a>(
        &'a self,
        slot: &'a mut Self::Slot,
        calls: &'a [Call<'a>],
        verdicts: &'a mut Verdicts,
    ) {
        let began = Instant::now();
        self.handler
            .run_batch(&mut slot.slot, calls, verdicts)
            .await;
        slot.seen.calls.push(began.elapsed());
        for call in calls {
            slot.seen.journeys.extend(self.journey(call.message));
        }
    }

    fn idle_timeout(&self, slot: &Self::Slot) -> Option<Duration> {
        self.handler.idle_timeout(&slot.slot)
    }

    fn on_idle(&self, slot: &mut Self::Slot) {
        self.handler.on_idle(&mut slot.slot);
    }

    fn on_wait(&self, slot: &mut Self::Slot) {
        self.handler.on_wait(&mut slot.slot);
    }

    fn digest(&self) -> Arc<str> {
        self.handler.digest()
    }
}

/// The value below which this share of the values lies. Sorts the values.
pub(super) fn percentile(values: &mut [Duration], share: f64) -> Option<Duration> {
    values.sort_unstable();
    // The nearest rank: a value that occurred, not one between two.
    let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
    values.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let ms = Duration::from_millis;
        assert_eq!(percentile(&mut values, 0.5), Some(ms(50)));
        assert_eq!(percentile(&mut values, 0.99), Some(ms(99)));
        assert_eq!(percentile(&mut values, 0.999), Some(ms(100)));
        assert_eq!(percentile(&mut values, 1.0), Some(ms(100)));
        assert_eq!(percentile(&mut values[..1], 0.5), Some(ms(1)));
        assert_eq!(percentile(&mut [], 0.5), None);
    }
}
