//! The requests to the queue. Each kind is a type that implements [`Ask`], with a line in the table below: when it is
//! sent, how its worker asks, and what its answer changes.
//!
//! A request of the ledger waits here until a worker is free: so batches grow with the load, and a single message
//! waits for nothing. The deliveries that the ledger holds bound what waits.

mod admit;
mod claims;
mod settle;
mod upkeep;
mod workers;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use crate::delivery::ledger::{Event, Key, Permits, Reply, Time};
use crate::delivery::millis::millis;
use crate::queue::{self, Claim, Guarantee, Settlement};
use crate::redis::Error;
use crate::runtime::driver::Driver;

use admit::Admit;
use claims::{BringBack, Due, Fetch, Missing, Orphans, Renew};
use settle::{Acknowledge, DeadLetter, Record, Settle};
use upkeep::{Backlog, Cancelled, Maintain, Observe, Probe, Repair};
use workers::Worker;
pub(super) use workers::Workers;

/// A kind of request.
trait Ask: Debug + Sized + Send {
    /// The answer.
    type Answer: Debug + Send;

    /// Most requests under way.
    const UNDER_WAY: usize = 1;
    /// Most deliveries in a request: where there are several requests, as many as one script takes.
    const DELIVERIES: usize = 400;
    /// A request that settles is repeated until it is answered: if a reply is lost, the result is unknown, and the
    /// scripts may be asked twice. One that only reads or claims fails fast, and is sent again when Redis is back.
    const IS_REPEATED: bool = false;
    /// What it does, if it neither reads nor settles: if Redis refuses it, it pauses alone.
    const ERRAND: Option<&'static str> = None;

    /// The request to send now, if there is one. Its worker is free.
    fn next(driver: &mut Driver, now: Time) -> Option<Self>;

    /// How long the worker waits before it asks.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    /// Ask the queue.
    fn ask(&mut self, worker: &Worker) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    /// Make ready to ask again after a failure. Returns the settlements that may have been carried out.
    fn again(&mut self) -> Vec<Key> {
        Vec::new()
    }

    /// Carry it out in its worker. `None`: the host is ending.
    fn run(self, worker: &mut Worker) -> impl Future<Output = Option<()>> + Send
    where
        Self: Listed,
    {
        worker.repeat(self)
    }

    /// Whether another answer to the same request follows.
    fn goes_on(_: &Self::Answer) -> bool {
        false
    }

    /// The answer to the request of this time is here.
    fn answered(driver: &mut Driver, now: Time, sent: Time, answer: Self::Answer);

    /// The request failed.
    fn failed(driver: &mut Driver, now: Time, _sent: Time, error: &Error)
    where
        Self: Listed,
    {
        driver.request_failed::<Self>(now, error);
    }
}

/// A kind of request that is in the table.
trait Listed: Ask + Into<Request> {
    const KIND: Kind;

    /// The result of a request of this kind.
    fn outcome(result: Result<Self::Answer, Error>) -> Outcome;
}

/// A request has ended; or one that is repeated has failed, and goes on.
#[derive(Debug)]
pub(super) struct Completion {
    /// When it was last sent.
    sent: Time,
    outcome: Outcome,
    /// The settlements that it may have carried out, if it has failed.
    unanswered: Vec<Key>,
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident $(, $waiting:ident: $what:ty)?;)*) => {
        /// The kinds of requests.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub(in crate::runtime::driver) enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// Whether a request of this kind is repeated until it is answered.
            pub(in crate::runtime::driver) fn is_repeated(self) -> bool {
                match self {
                    $(Self::$name => $name::IS_REPEATED,)*
                }
            }

            /// Most requests of this kind under way.
            fn under_way(self) -> usize {
                match self {
                    $(Self::$name => $name::UNDER_WAY,)*
                }
            }
        }

        /// A request.
        #[derive(Debug)]
        enum Request {
            $($name($name),)*
        }

        impl Request {
            async fn run(self, worker: &mut Worker) -> Option<()> {
                match self {
                    $(Self::$name(request) => request.run(worker).await,)*
                }
            }
        }

        /// The result of a request.
        #[derive(Debug)]
        enum Outcome {
            $($name(Result<<$name as Ask>::Answer, Error>),)*
        }

        /// What waits for a worker, as the actions of the ledger left it.
        #[derive(Debug, Default)]
        pub(super) struct Waiting {
            $($(pub(super) $waiting: $what,)?)*
        }

        $(
            impl Listed for $name {
                const KIND: Kind = Kind::$name;

                fn outcome(result: Result<Self::Answer, Error>) -> Outcome {
                    Outcome::$name(result)
                }
            }

            impl From<$name> for Request {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )*

        impl Driver {
            /// Send what waits and what is due, in the order of the table.
            pub(super) fn send_requests(&mut self, now: Time) {
                $(self.send_waiting::<$name>(now);)*
            }

            /// Take in the result of a request.
            pub(super) fn on_completion(&mut self, completion: Completion) {
                let Completion { sent, outcome, unanswered } = completion;
                let now = self.clock.now();
                for key in unanswered {
                    self.ledger.apply(now, Event::Unanswered(key));
                }
                match outcome {
                    $(Outcome::$name(result) => self.completed::<$name>(now, sent, result),)*
                }
            }
        }
    };
}

// In the order of sending: a kind, and what of it waits for its worker.
requests! {
    /// Deliveries to acknowledge.
    Acknowledge, acknowledgements: Vec<(Key, Arc<Claim>)>;
    /// Take back what is missing although its lease lasts.
    BringBack, missing: Vec<(Key, Missing)>;
    /// Starts to record.
    Record, records: Vec<(Key, queue::Record)>;
    /// Starts that are limited.
    Admit, admissions: Option<(Vec<Key>, Permits)>;
    /// Deliveries to settle in any other way.
    Settle, settlements: Vec<(Key, Settlement)>;
    /// Deliveries to dead-letter.
    DeadLetter, dead_letters: Vec<(Key, Settlement)>;
    /// Leases to renew.
    Renew, renewals: Option<Vec<Key>>;
    /// New messages: how many, and whether to wait for them.
    Fetch, fetch: Option<(usize, bool)>;
    /// Due deliveries: how many.
    Due, due: Option<usize>;
    /// Orphans: how many.
    Orphans, orphans: Option<usize>;
    /// Housekeeping.
    Maintain;
    /// A look at the queue, for metrics.
    Observe;
    /// Wait for what is cancelled.
    Cancelled;
    /// A look at the backlog, for `--until-empty`.
    Backlog;
    /// Whether Redis is back, after a pause.
    Probe, probe: Option<Duration>;
    /// Make a missing stream or group again.
    Repair, repair: bool;
}

/// The oldest that wait, as many as one request of this kind takes.
fn batch<R: Ask, T>(waiting: &mut Vec<(Key, T)>) -> Option<(Vec<Key>, Vec<T>)> {
    if waiting.is_empty() {
        return None;
    }
    let count = waiting.len().min(R::DELIVERIES);
    Some(waiting.drain(..count).unzip())
}

/// A reply for each delivery.
type Replies = Vec<(Key, Reply)>;

fn replies(keys: &mut Vec<Key>, replies: Vec<Reply>) -> Replies {
    std::mem::take(keys).into_iter().zip(replies).collect()
}

impl Driver {
    fn send_waiting<R: Listed>(&mut self, now: Time) {
        while self.workers.is_free(R::KIND)
            && let Some(request) = R::next(self, now)
        {
            self.workers.send(request);
        }
    }

    fn completed<R: Listed>(&mut self, now: Time, sent: Time, result: Result<R::Answer, Error>) {
        let goes_on = match &result {
            Ok(answer) => R::goes_on(answer),
            Err(_) => R::IS_REPEATED,
        };
        if !goes_on {
            self.workers.done(R::KIND);
        }
        match result {
            Ok(answer) => {
                if self.errands.answered(R::KIND)
                    && let Some(what) = R::ERRAND
                {
                    info!(what, "redis takes this again");
                }
                self.connection.succeeded(now, R::KIND, &self.reporter);
                R::answered(self, now, sent, answer);
            }
            Err(error) => R::failed(self, now, sent, &error),
        }
    }

    /// A request failed: Redis is away, or refuses it.
    fn request_failed<R: Listed>(&mut self, now: Time, error: &Error) {
        let kind = R::KIND;
        if let Some(what) = R::ERRAND
            && error.is_about_this_command()
        {
            return self.pause_errand(now, kind, what, error);
        }
        if self.connection.failed(now, kind, error, &self.reporter) {
            self.ledger.apply(now, Event::Offline);
            self.probe();
        }
    }

    /// Redis refuses one request, for its own keys and rights: only that one pauses.
    fn pause_errand(&mut self, now: Time, kind: Kind, what: &'static str, error: &Error) {
        let (pause, is_new) = self.errands.refused(now, kind);
        let reporter = &self.reporter;
        self.connection.errand_refused(kind, what, error, reporter);
        let pause_ms = millis(pause);
        if is_new {
            warn!(what, %error, "redis refuses this: it pauses alone, and is tried again");
        } else {
            debug!(what, %error, pause_ms, "redis refuses this");
        }
    }

    /// While Redis is away nothing is settled: a new group must hold the delivery again, and hostler could not know
    /// what was settled there. An at-most-once queue asks nothing of Redis for this.
    fn may_settle(&self) -> bool {
        self.connection.is_online() || self.queue.guarantee() == Guarantee::AtMostOnce
    }

    fn is_draining(&self) -> bool {
        self.drain_deadline.is_some()
    }
}
