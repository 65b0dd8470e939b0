//! The request that asks whether messages may start, by the limits of their queue.

use std::sync::Arc;

use super::workers::Worker;
use super::{Ask, Kind};
use crate::delivery::ledger::{Admission, Event, Key, Permits, Time};
use crate::queue::limits::{Admitted, Start, WAITING_MAX};
use crate::redis::Error;
use crate::runtime::driver::Driver;

/// Deliveries, in the order in which they start.
#[derive(Debug)]
pub(super) struct Admit {
    keys: Vec<Key>,
    starts: Vec<Start>,
    permits: Permits,
    may_reserve: bool,
}

impl Ask for Admit {
    /// `None` = it was not asked.
    type Answer = Option<Vec<(Key, Admitted)>>;

    const ERRAND: Option<&'static str> = Some("asking the limits of starts");

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        let (keys, permits) = driver.waiting.admissions.take()?;
        let start = |key: &Key| {
            let job = driver.ledger.job(*key)?;
            Some(Start {
                claim: Arc::clone(&job.claim),
                reserved_ms: job.reserved_ms,
            })
        };
        let starts: Option<Vec<Start>> = keys.iter().map(start).collect();
        match starts.filter(|_| !driver.errands.pauses(now, Kind::Admit)) {
            Some(starts) => Some(Self {
                keys,
                starts,
                permits,
                may_reserve: driver.waiting_starts < WAITING_MAX,
            }),
            // One of them has gone in this moment, or Redis refuses to say: the ledger asks again.
            None => {
                Self::answered(driver, now, now, None);
                None
            }
        }
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Self::Answer, Error> {
        let (starts, permits) = (&self.starts, self.permits);
        let admitted = worker.queue.admit(starts, permits, self.may_reserve);
        Ok(Some(self.keys.drain(..).zip(admitted.await?).collect()))
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, admitted: Self::Answer) {
        for (key, admitted) in admitted.iter().flatten() {
            let Some(job) = driver.ledger.job_mut(*key) else {
                continue;
            };
            match admitted.admission {
                // The next start is another one.
                Admission::Granted => job.reserved_ms = None,
                Admission::Later(_) => {
                    job.reserved_ms = admitted.start_ms;
                    driver.waiting_starts += 1;
                }
                Admission::Wait(_) => {}
            }
        }
        driver
            .reporter
            .admitted(admitted.as_deref().unwrap_or_default());
        let replies = admitted.map(|admitted| {
            let admissions = admitted.into_iter().map(|(_, admitted)| admitted.admission);
            admissions.collect()
        });
        driver.ledger.apply(now, Event::Admitted { sent, replies });
    }

    fn failed(driver: &mut Driver, now: Time, sent: Time, error: &Error) {
        driver.request_failed::<Self>(now, error);
        Self::answered(driver, now, sent, None);
    }
}
