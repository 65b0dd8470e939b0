//! The request that asks whether messages may start, by the limits of their queue.

use std::sync::Arc;

use super::workers::Worker;
use super::{Ask, Kind};
use crate::delivery::ledger::{Admission, Event, Key, Time};
use crate::queue::limits::{Admitted, Start, WAITING_MAX};
use crate::redis::Error;
use crate::runtime::driver::Driver;

/// Deliveries, in the order in which they start.
#[derive(Debug)]
pub(super) struct Admit {
    keys: Vec<Key>,
    starts: Vec<Start>,
    may_reserve: bool,
}

impl Ask for Admit {
    type Answer = Vec<(Key, Admitted)>;

    const ERRAND: Option<&'static str> = Some("asking the limits of starts");

    fn next(driver: &mut Driver, now: Time) -> Option<Self> {
        let keys = driver.waiting.admissions.take()?;
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
                may_reserve: driver.waiting_starts < WAITING_MAX,
            }),
            // One of them has gone in this moment, or Redis refuses to say: the ledger asks again.
            None => {
                Self::answered(driver, now, now, Vec::new());
                None
            }
        }
    }

    async fn ask(&mut self, worker: &Worker) -> Result<Self::Answer, Error> {
        let admitted = worker.queue.admit(&self.starts, self.may_reserve).await?;
        Ok(self.keys.drain(..).zip(admitted).collect())
    }

    fn answered(driver: &mut Driver, now: Time, sent: Time, admitted: Self::Answer) {
        for (key, admitted) in &admitted {
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
        driver.reporter.admitted(&admitted);
        let replies = admitted.into_iter().map(|(_, admitted)| admitted.admission);
        let replies = replies.collect();
        driver.ledger.apply(now, Event::Admitted { sent, replies });
    }

    fn failed(driver: &mut Driver, now: Time, sent: Time, error: &Error) {
        driver.request_failed::<Self>(now, error);
        Self::answered(driver, now, sent, Vec::new());
    }
}
