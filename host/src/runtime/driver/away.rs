//! Redis comes and goes.
//!
//! One failure of an errand as a whole means that Redis is away: nothing new is asked of it, and
//! one errand looks whether it is back, at growing, jittered intervals. What is running goes on.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Driver;
use crate::delivery::ledger::{Event, Time};
use crate::queue::{Backlog, Class, Error, Repaired};
use crate::telemetry::health::Cause;

/// The first and the longest pause before Redis is asked again.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);

impl Driver {
    pub(super) fn is_online(&self) -> bool {
        *self.online.borrow()
    }

    pub(super) fn answer<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.failed(error);
                None
            }
        }
    }

    /// Something failed as a whole: stop asking, and look now and then whether it works again.
    pub(super) fn failed(&mut self, error: Error) {
        self.metrics.redis_error(&error);
        if !self.is_online() {
            return;
        }
        let cause = match error.class() {
            Class::Configuration => Cause::RedisConfiguration,
            Class::Reconnect | Class::Retry | Class::Missing => Cause::RedisAway,
        };
        self.online.send_replace(false);
        self.health.impede(cause, error.to_string());
        warn!(%error, failures = self.failures, "redis is away");
        self.ledger.apply(self.clock.now(), Event::Offline);
        self.ask_again(&error);
    }

    pub(super) fn ask_again(&mut self, error: &Error) {
        let pause = pause(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        if error.class() == Class::Missing && self.errands.repair.is_free() {
            let held = self
                .ledger
                .iter()
                .map(|(_, native, job)| (Arc::clone(&job.claim), native))
                .collect();
            self.errands.repair.send((pause, held));
        } else if self.errands.look.is_free() {
            self.errands.look.send(pause);
        }
    }

    pub(super) fn back(&mut self, now: Time) {
        self.online.send_replace(true);
        self.metrics.reconnects.inc();
        self.health.clear(Cause::RedisAway);
        self.health.clear(Cause::RedisConfiguration);
        info!("redis is back");
        self.ledger.apply(now, Event::Online);
    }

    pub(super) fn repaired(&mut self, now: Time, result: Result<Repaired, Error>) {
        self.errands.repair.done();
        match result {
            Ok(repaired) => {
                match repaired {
                    Repaired::Intact => {}
                    Repaired::Group => {
                        self.metrics.groups_recreated.inc();
                        warn!("the group was gone: made again behind the last entry read");
                    }
                    Repaired::Stream => {
                        self.metrics.groups_recreated.inc();
                        warn!("the stream was gone: made again, empty, with its group");
                        self.ledger.apply(now, Event::StreamLost);
                    }
                }
                self.back(now);
            }
            Err(error) => {
                self.metrics.redis_error(&error);
                self.health.impede(Cause::RedisAway, error.to_string());
                self.ask_again(&error);
            }
        }
    }

    /// A look at the backlog: is Redis back, is the queue empty?
    pub(super) fn looked(&mut self, now: Time, result: Result<Backlog, Error>) {
        self.errands.look.done();
        match result {
            Ok(backlog) => {
                if !self.is_online() {
                    self.back(now);
                }
                let nothing = !backlog.unread && backlog.pending == 0;
                if self.settings.until_empty.is_some() && nothing && self.ledger.is_empty() {
                    self.drain("the queue is empty");
                }
            }
            Err(error) if self.is_online() => self.failed(error),
            Err(error) => {
                self.metrics.redis_error(&error);
                self.health.impede(Cause::RedisAway, error.to_string());
                self.ask_again(&error);
            }
        }
    }
}

/// The pause before Redis is asked again: doubled with every failure, half of it random.
fn pause(failures: u32, random: f64) -> Duration {
    let longest = (PAUSE_FIRST * 2u32.pow(failures.min(10))).min(PAUSE_MAX);
    longest.mul_f64(0.5 + random / 2.0)
}
