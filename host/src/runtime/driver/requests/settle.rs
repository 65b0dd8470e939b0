//! Requests that record starts, and that settle.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::workers::Worker;
use super::{Ask, Replies, batch, replies};
use crate::delivery::ledger::{Event, Key, Reply, Time};
use crate::delivery::message::DeliveryId;
use crate::queue::{self, Claim, Queue, Settlement};
use crate::redis::Error;
use crate::runtime::driver::Driver;

/// Starts to record.
#[derive(Debug)]
pub(super) struct Record {
    keys: Vec<Key>,
    records: Vec<queue::Record>,
}

impl Ask for Record {
    type Answer = Replies;

    /// A record is about as much work for the host as for Redis: with several requests both work at the same time.
    const UNDER_WAY: usize = 8;
    const DELIVERIES: usize = 100;
    const IS_REPEATED: bool = true;

    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        if !driver.may_settle() {
            return None;
        }
        let (keys, records) = batch::<Self, _>(&mut driver.waiting.records)?;
        Some(Self { keys, records })
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Replies, Error> {
        let recorded = record(&*worker.queue, &self.records).await?;
        Ok(replies(&mut self.keys, recorded))
    }

    fn again(&mut self) -> Vec<Key> {
        for record in &mut self.records {
            record.is_repeated = true;
        }
        Vec::new()
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, replies: Replies) {
        for (key, reply) in replies {
            if reply == Reply::Duplicate
                && let Some(job) = driver.ledger.job(key)
            {
                driver.reporter.duplicate(&job.claim.message);
            }
            let event = Event::Recorded {
                key,
                leased: sent,
                reply,
            };
            driver.ledger.apply(now, event);
        }
    }
}

/// Record starts. Before a late one, duplicates are looked for once more: another host may have handled one since the
/// claim.
async fn record(queue: &dyn Queue, records: &[queue::Record]) -> Result<Vec<Reply>, Error> {
    let late = records.iter().filter(|record| record.is_late);
    let mut late: Vec<Claim> = late.map(|record| Claim::clone(&record.claim)).collect();
    if !late.is_empty() {
        queue.find_duplicates(&mut late).await;
    }
    late.retain(|claim| claim.is_duplicate);
    if late.is_empty() {
        return queue.record(records).await;
    }
    let handled: FxHashSet<DeliveryId> = late.iter().map(|claim| claim.id).collect();
    let is_new = |record: &&queue::Record| !handled.contains(&record.claim.id);
    let new: Vec<queue::Record> = records.iter().filter(is_new).cloned().collect();
    let recorded = match new.is_empty() {
        true => Vec::new(),
        false => queue.record(&new).await?,
    };
    let mut recorded = recorded.into_iter();
    let replies = records.iter().map(|record| match is_new(&record) {
        // There is a reply to each.
        true => recorded.next().unwrap_or(Reply::Stolen),
        false => Reply::Duplicate,
    });
    Ok(replies.collect())
}

/// Deliveries to acknowledge.
#[derive(Debug)]
pub(super) struct Acknowledge {
    keys: Vec<Key>,
    claims: Vec<Arc<Claim>>,
    /// Other hosts may have some of them by now.
    is_late: bool,
}

impl Ask for Acknowledge {
    type Answer = Vec<Key>;

    const IS_REPEATED: bool = true;

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        if driver.waiting.acknowledgements.is_empty() || !driver.may_settle() {
            return None;
        }
        let all = std::mem::take(&mut driver.waiting.acknowledgements);
        let is_late = |(key, _): &(Key, _)| !driver.ledger.acks_plainly(now, *key);
        let is_late = all.iter().any(is_late);
        let (keys, claims) = all.into_iter().unzip();
        Some(Self {
            keys,
            claims,
            is_late,
        })
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Vec<Key>, Error> {
        match self.is_late {
            true => worker.queue.acknowledge_late(&self.claims).await?,
            false => worker.queue.acknowledge(&self.claims).await?,
        }
        Ok(std::mem::take(&mut self.keys))
    }

    fn again(&mut self) -> Vec<Key> {
        // It may be late by the next try.
        self.is_late = true;
        Vec::new()
    }

    fn answered(driver: &mut Driver, now: Time, _: Time, keys: Vec<Key>) {
        driver.settled += keys.len();
        driver.ledger.apply(now, Event::Acknowledged(keys));
    }
}

/// Deliveries to settle in any other way. A request voids an earlier one that had no answer.
#[derive(Debug)]
pub(super) struct Settle(Settlements);

/// Deliveries to dead-letter.
#[derive(Debug)]
pub(super) struct DeadLetter(Settlements);

impl Ask for Settle {
    type Answer = Replies;

    const IS_REPEATED: bool = true;

    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        if !driver.may_settle() {
            return None;
        }
        let (keys, all) = batch::<Self, _>(&mut driver.waiting.settlements)?;
        Some(Self(Settlements { keys, all }))
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Replies, Error> {
        self.0.ask(worker).await
    }

    fn again(&mut self) -> Vec<Key> {
        self.0.again()
    }

    fn answered(driver: &mut Driver, now: Time, _: Time, replies: Replies) {
        driver.on_settled(now, replies);
    }
}

impl Ask for DeadLetter {
    type Answer = Replies;

    /// As for a record.
    const UNDER_WAY: usize = 8;
    const DELIVERIES: usize = 100;
    const IS_REPEATED: bool = true;

    fn next(driver: &mut Driver, _: Time) -> Option<Self> {
        if !driver.may_settle() {
            return None;
        }
        let (keys, all) = batch::<Self, _>(&mut driver.waiting.dead_letters)?;
        Some(Self(Settlements { keys, all }))
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Replies, Error> {
        self.0.ask(worker).await
    }

    fn again(&mut self) -> Vec<Key> {
        self.0.again()
    }

    fn answered(driver: &mut Driver, now: Time, _: Time, replies: Replies) {
        driver.on_settled(now, replies);
    }
}

#[derive(Debug)]
struct Settlements {
    keys: Vec<Key>,
    all: Vec<Settlement>,
}

impl Settlements {
    async fn ask(&mut self, worker: &Worker) -> Result<Replies, Error> {
        let settled = worker.queue.settle(&self.all).await?;
        Ok(replies(&mut self.keys, settled))
    }

    fn again(&mut self) -> Vec<Key> {
        let again = std::mem::take(&mut self.all).into_iter();
        self.all = again.map(Settlement::again).collect();
        self.keys.clone()
    }
}

impl Driver {
    fn on_settled(&mut self, now: Time, replies: Replies) {
        self.settled += replies.len();
        for (key, reply) in replies {
            self.ledger.apply(now, Event::Settled(key, reply));
        }
        self.check_refused();
    }

    /// A refused settlement may have been carried out, or its delivery is no longer held.
    pub(super) fn check_refused(&mut self) {
        if self.reporter.refuses_settlements()
            && !self.ledger.has_refused()
            && self.reporter.settlements_accepted()
        {
            // Redis may still refuse dead letters over the length limit: report that at once.
            self.next_maintenance = Time::ZERO;
        }
    }
}
