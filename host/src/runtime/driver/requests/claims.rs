//! Requests that bring deliveries, or keep them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{MaybeDone, maybe_done};
use futures_util::poll;
use rustc_hash::FxHashSet;
use tracing::info;

use super::workers::Worker;
use super::{Ask, Kind, Listed, Replies, batch, replies};
use crate::delivery::ledger::{Delivery, Event, Key, Reply, Time};
use crate::delivery::message::DeliveryId;
use crate::queue::{Claim, Taken};
use crate::redis::Error;
use crate::runtime::driver::Driver;
use crate::runtime::fault_point;
use crate::runtime::job::Job;
use crate::telemetry::health::Cause;

/// How long a fetch waits at most. A short wait does not hold up a host that stops although its fetch
/// cannot be interrupted, and a lease is never much older than its claim.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(2);
/// A fetch asks for another part if the last one brought at least this number of messages, and it may bring as many
/// again: there are probably more.
const PART_MIN: usize = 64;

/// At most this number of new messages, after at most this wait.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) want: usize,
    pub(super) wait: Duration,
}

/// New messages.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// One part of them.
    pub(super) claims: Vec<Claim>,
    /// Another part follows, of the same request.
    pub(super) more: bool,
}

impl Ask for Fetch {
    type Answer = Fetched;

    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        let (want, wait) = driver.waiting.fetch.take()?;
        driver.workers.begin_fetch();
        let longest = FETCH_WAIT_MAX.min(driver.settings.ledger.min_idle / 4);
        let wait = if wait { longest } else { Duration::ZERO };
        Some(Self { want, wait })
    }

    /// In parts: while the driver takes one in, Redis reads the next one.
    ///
    /// Dies here: pending under this host's name, found as orphans; also a part that the driver has not seen.
    async fn run(self, worker: &mut Worker) -> Option<()> {
        let mut want = self.want;
        let mut part = self.part(worker);
        loop {
            (&mut part.answer).await;
            let mut result = part.answer.as_mut().take_output()?;
            let mut next = None;
            if let Ok(Fetched { claims, more }) = &mut result {
                want = want.saturating_sub(claims.len());
                let ends = worker.ends_fetch.load(Ordering::Relaxed);
                if claims.len().min(want) >= PART_MIN && !ends {
                    *more = true;
                    let wait = Duration::ZERO;
                    let part = next.insert(Self { want, wait }.part(worker));
                    // Its command is on its way before the driver runs.
                    let _is_here = poll!(&mut part.answer).is_ready();
                }
                worker.queue.find_duplicates(claims).await;
                fault_point::pass(format_args!("{:?}-after", Self::KIND));
            }
            worker
                .complete::<Self>(part.sent, result, Vec::new())
                .await?;
            match next {
                Some(next) => part = next,
                None => return Some(()),
            }
        }
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Fetched, Error> {
        Ok(Fetched {
            claims: worker.queue.fetch(self.want, self.wait).await?,
            more: false,
        })
    }

    fn goes_on(fetched: &Fetched) -> bool {
        fetched.more
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, fetched: Fetched) {
        if driver.connection.is_online() && driver.reporter.health.clear(Cause::Starting) {
            info!("ready");
        }
        let event = Event::Fetched {
            leased: sent,
            deliveries: driver.deliveries(sent, fetched.claims),
            more: fetched.more,
        };
        driver.ledger.apply(now, event);
    }

    fn failed(driver: &mut Driver, now: Time, sent: Time, error: &Error) {
        driver.request_failed::<Self>(now, error);
        Self::answered(driver, now, sent, Fetched::default());
    }
}

impl Fetch {
    /// Begin to ask for a part.
    fn part(mut self, worker: &Worker) -> Part<impl Future<Output = Result<Fetched, Error>>> {
        fault_point::pass(format_args!("{:?}-before", Self::KIND));
        let ask = async move { self.ask(worker).await };
        Part {
            sent: worker.clock.now(),
            answer: Box::pin(maybe_done(ask)),
        }
    }
}

/// A part of a fetch that is under way.
struct Part<F: Future> {
    sent: Time,
    answer: Pin<Box<MaybeDone<F>>>,
}

/// At most this number of due deliveries.
#[derive(Debug)]
pub(super) struct Due(usize);

impl Ask for Due {
    type Answer = Taken;

    const ERRAND: Option<&'static str> = Some("taking delayed messages that are due");

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        let max = driver.waiting.due.take()?;
        if driver.errands.pauses(now, Kind::Due) {
            Self::answered(driver, now, now, Taken::default());
            return None;
        }
        Some(Self(max))
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Taken, Error> {
        let queue = &worker.queue;
        let mut taken = match queue.known_due() {
            Some(nothing) => nothing,
            None => queue.take_due(self.0).await?,
        };
        queue.find_duplicates(&mut taken.claims).await;
        Ok(taken)
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, taken: Taken) {
        driver.reporter.taken(&taken);
        let event = Event::DueTaken {
            leased: sent,
            deliveries: driver.deliveries(sent, taken.claims),
            next: taken.next_due,
        };
        driver.ledger.apply(now, event);
    }

    fn failed(driver: &mut Driver, now: Time, sent: Time, error: &Error) {
        driver.request_failed::<Self>(now, error);
        Self::answered(driver, now, sent, Taken::default());
    }
}

/// At most this number of orphans, except those that this host holds.
#[derive(Debug)]
pub(super) struct Orphans {
    max: usize,
    held: FxHashSet<DeliveryId>,
}

impl Ask for Orphans {
    type Answer = Taken;

    const ERRAND: Option<&'static str> = Some("looking for orphans");

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        let max = driver.waiting.orphans.take()?;
        if driver.errands.pauses(now, Kind::Orphans) {
            Self::answered(driver, now, now, Taken::default());
            return None;
        }
        let held = driver.ledger.iter().map(|(key, _, _)| key.id).collect();
        Some(Self { max, held })
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Taken, Error> {
        let holds = |id: &DeliveryId| self.held.contains(id);
        let mut taken = worker.queue.take_orphans(self.max, &holds).await?;
        worker.queue.find_duplicates(&mut taken.claims).await;
        Ok(taken)
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, taken: Taken) {
        driver.reporter.taken(&taken);
        let event = Event::OrphansTaken {
            leased: sent,
            deliveries: driver.deliveries(sent, taken.claims),
        };
        driver.ledger.apply(now, event);
    }

    fn failed(driver: &mut Driver, now: Time, sent: Time, error: &Error) {
        driver.request_failed::<Self>(now, error);
        Self::answered(driver, now, sent, Taken::default());
    }
}

/// Leases to renew.
#[derive(Debug)]
pub(super) struct Renew {
    keys: Vec<Key>,
    claims: Vec<Arc<Claim>>,
}

impl Ask for Renew {
    type Answer = Replies;

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        if driver.ledger.is_empty() {
            // A renewal that Redis refused is not sent again: there is nothing left to renew.
            let reporter = &driver.reporter;
            driver.connection.succeeded(now, Kind::Renew, reporter);
        }
        let keys = driver.waiting.renewals.take()?.into_iter();
        let held = keys.filter_map(|key| Some((key, driver.claim(key)?)));
        let (keys, claims) = held.unzip();
        Some(Self { keys, claims })
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Replies, Error> {
        let renewed = worker.queue.renew(&self.claims).await?;
        Ok(replies(&mut self.keys, renewed))
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, replies: Replies) {
        let renewed = replies.iter().filter(|(_, reply)| *reply == Reply::Done);
        let renewed: Vec<Key> = renewed.map(|&(key, _)| key).collect();
        let event = Event::Renewed {
            leased: sent,
            replies,
        };
        driver.ledger.apply(now, event);
        for key in renewed {
            driver.renew_ticket(key);
        }
        driver.check_refused();
    }

    fn failed(driver: &mut Driver, now: Time, sent: Time, error: &Error) {
        driver.request_failed::<Self>(now, error);
        Self::answered(driver, now, sent, Vec::new());
    }
}

/// A delivery that Redis does not find, its count, and the end of its lease.
pub(super) type Missing = (Arc<Claim>, u32, Time);

/// Take back what is missing although its lease lasts, up to this time, with these native counts.
#[derive(Debug)]
pub(super) struct BringBack {
    keys: Vec<Key>,
    held: Vec<(Arc<Claim>, u32)>,
    until: Time,
}

impl Ask for BringBack {
    type Answer = Replies;

    const IS_REPEATED: bool = true;

    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        if !driver.may_settle() {
            return None;
        }
        let (keys, held) = batch::<Self, _>(&mut driver.waiting.missing)?;
        let until = held.iter().map(|(.., until)| *until).min();
        let held = held.into_iter().map(|(claim, count, _)| (claim, count));
        Some(Self {
            keys,
            held: held.collect(),
            until: until.unwrap_or_default(),
        })
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Replies, Error> {
        let back = match worker.clock.now() < self.until {
            true => worker.queue.bring_back(&self.held).await?,
            // Another host may have settled it by now.
            false => vec![Reply::Gone; self.held.len()],
        };
        Ok(replies(&mut self.keys, back))
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, replies: Replies) {
        driver.reporter.brought_back(&replies);
        let leased = sent;
        driver
            .ledger
            .apply(now, Event::BroughtBack { leased, replies });
    }
}

impl Driver {
    /// The deliveries of claims that were sent for at this time, after the gate. Duplicates were looked for after that
    /// time.
    fn deliveries(&self, sent: Time, claims: Vec<Claim>) -> Vec<Delivery<Job>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let now_ms = self.gate.now_ms();
        let delivery = |claim| {
            let mut delivery = self.gate.at_claim(claim, now_ms);
            delivery.job.looked = sent;
            self.reporter.claimed(&delivery, now_ms);
            delivery
        };
        claims.into_iter().map(delivery).collect()
    }
}
