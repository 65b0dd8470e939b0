//! Requests about the queue as a whole.

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::workers::Worker;
use super::{Ask, Kind};
use crate::delivery::ledger::{Event, Key, Time};
use crate::delivery::message::DeliveryId;
use crate::queue::{Claim, Guarantee, Maintenance, Observation};
use crate::redis::{Class, Error};
use crate::runtime::driver::Driver;

/// How often housekeeping runs, and after how many settled deliveries at the latest: so retention keeps up with any
/// rate.
const MAINTAIN_EVERY: Time = Time::from_secs(5);
const MAINTAIN_AFTER: usize = 10_000;
/// The pause before housekeeping goes on that had more to do than one go may.
const MAINTAIN_AGAIN: Time = Time::from_millis(20);
/// How often the gauges are updated.
const OBSERVE_EVERY: Time = Time::from_secs(5);
/// How often `--until-empty` looks at the backlog.
const BACKLOG_EVERY: Duration = Duration::from_millis(20);

/// Housekeeping.
#[derive(Debug)]
pub(super) struct Maintain;

impl Ask for Maintain {
    type Answer = Maintenance;

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        if now < driver.next_maintenance && driver.settled < MAINTAIN_AFTER {
            return None;
        }
        driver.next_maintenance = now + MAINTAIN_EVERY;
        driver.settled = 0;
        (driver.connection.is_online() && !driver.is_draining()).then_some(Self)
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Maintenance, Error> {
        worker.queue.maintain().await
    }

    fn answered(driver: &mut Driver, now: Time, _: Time, done: Maintenance) {
        driver.reporter.maintained(&done, driver.ledger.policy());
        if !done.unfinished.is_empty() {
            driver.next_maintenance = now + MAINTAIN_AGAIN;
        }
    }

    fn failed(driver: &mut Driver, now: Time, _: Time, error: &Error) {
        // Housekeeping may be late: if only it lacks a right, nothing else stops.
        match error.class() {
            Class::Configuration => driver.reporter.housekeeping_refused(error),
            _ => driver.request_failed::<Self>(now, error),
        }
    }
}

/// A look at the queue, for metrics.
#[derive(Debug)]
pub(super) struct Observe;

impl Ask for Observe {
    /// The queue from outside, if its kind shows it.
    type Answer = Option<Observation>;

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        if now < driver.next_observation {
            return None;
        }
        driver.next_observation = now + OBSERVE_EVERY;
        driver.connection.is_online().then_some(Self)
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Option<Observation>, Error> {
        worker.queue.observe().await
    }

    fn answered(driver: &mut Driver, _: Time, _: Time, seen: Option<Observation>) {
        if let Some(seen) = seen {
            driver.waiting_starts = seen.parked;
            driver.reporter.observed(&seen);
        }
    }

    fn failed(_: &mut Driver, _: Time, _: Time, error: &Error) {
        debug!(%error, "could not look at the queue for metrics");
    }
}

/// Wait for messages that an operator cancels.
#[derive(Debug)]
pub(super) struct Cancelled;

impl Ask for Cancelled {
    type Answer = Vec<DeliveryId>;

    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        (driver.queue.guarantee() == Guarantee::AtLeastOnce).then_some(Self)
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Vec<DeliveryId>, Error> {
        Ok(worker.queue.cancelled().await)
    }

    fn answered(driver: &mut Driver, now: Time, _: Time, ids: Vec<DeliveryId>) {
        driver.ledger.apply(now, Event::Cancelled(ids));
    }
}

/// A look at the backlog, after a pause.
#[derive(Debug)]
pub(super) struct Backlog;

impl Ask for Backlog {
    type Answer = crate::queue::Backlog;

    const ERRAND: Option<&'static str> = Some("looking at the backlog");

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        let is_due = driver.settings.until_empty.is_some()
            && !driver.is_draining()
            && driver.connection.is_online()
            && driver.ledger.is_empty()
            && !driver.errands.pauses(now, Kind::Backlog);
        is_due.then_some(Self)
    }

    fn pause(&self) -> Duration {
        BACKLOG_EVERY
    }

    async fn ask(&mut self, worker: &Worker) -> Result<crate::queue::Backlog, Error> {
        worker.queue.backlog().await
    }

    fn answered(driver: &mut Driver, _: Time, _: Time, backlog: crate::queue::Backlog) {
        let is_empty = !backlog.unread
            && backlog.pending == 0
            && backlog.outbox == 0
            && driver.ledger.is_empty();
        if driver.settings.until_empty.is_some() && is_empty {
            // Values that were taken meanwhile are not in an at-most-once queue any more, and not here yet.
            if driver.queue.guarantee() == Guarantee::AtMostOnce {
                driver.ledger.keep_all();
            }
            driver.drain("the queue is empty");
        }
    }
}

/// Whether Redis is back, after this pause.
#[derive(Debug)]
pub(super) struct Probe(Duration);

impl Ask for Probe {
    type Answer = ();

    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        driver.waiting.probe.take().map(Self)
    }

    fn pause(&self) -> Duration {
        self.0
    }

    async fn ask(&mut self, worker: &Worker) -> Result<(), Error> {
        worker.queue.probe().await
    }

    fn answered(driver: &mut Driver, now: Time, _: Time, (): ()) {
        match driver.connection.must_repair() {
            true => driver.repair(),
            false => driver.restored(now),
        }
    }

    fn failed(driver: &mut Driver, now: Time, _: Time, error: &Error) {
        driver.connection.mark_unready(now, error, &driver.reporter);
        match error.class() {
            Class::Missing => driver.repair(),
            _ => driver.probe(),
        }
    }
}

/// Make a missing stream or group again. It must hold these deliveries, with these native counts.
#[derive(Debug)]
pub(super) struct Repair {
    keys: Vec<Key>,
    held: Vec<(Arc<Claim>, u32)>,
}

impl Ask for Repair {
    /// What was made again, for these deliveries.
    type Answer = (Vec<Key>, crate::queue::Repair);

    /// The deliveries that this host holds. One that is being acknowledged does not belong into the new group: it would
    /// stay there for ever. The host settles nothing meanwhile.
    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        if !std::mem::take(&mut driver.waiting.repair) {
            return None;
        }
        let held = driver.ledger.pending();
        let held = held.map(|(key, native, job)| (key, (Arc::clone(&job.claim), native)));
        let (keys, held) = held.unzip();
        Some(Self { keys, held })
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Self::Answer, Error> {
        let repair = worker.queue.repair(&self.held).await?;
        Ok((std::mem::take(&mut self.keys), repair))
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, (keys, repair): Self::Answer) {
        driver.connection.repaired();
        driver.reporter.repaired(&repair);
        let event = Event::Readopted {
            leased: sent,
            replies: keys.into_iter().zip(repair.held).collect(),
        };
        driver.ledger.apply(now, event);
        driver.restored(now);
    }

    fn failed(driver: &mut Driver, now: Time, _: Time, error: &Error) {
        driver.connection.mark_unready(now, error, &driver.reporter);
        driver.probe();
    }
}

impl Driver {
    /// Ask after a pause whether Redis is back.
    pub(super) fn probe(&mut self) {
        let pause = self.connection.next_pause();
        if self.waiting.probe.is_none() && self.workers.is_free(Kind::Probe) {
            self.waiting.probe = Some(pause);
        }
    }

    /// Make a missing group again, with the deliveries that this host holds; or bring them into the group that another
    /// host made.
    fn repair(&mut self) {
        self.waiting.repair = true;
    }

    /// Redis is back.
    fn restored(&mut self, now: Time) {
        if self.connection.restored(now, &self.reporter) {
            self.ledger.apply(now, Event::Online);
        }
    }
}
