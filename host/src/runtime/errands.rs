//! The conversations with the queue: one task each, at most one request under way in each.
//!
//! What only looks (fetch, due, orphans, renew, probe) fails fast, and the driver asks again when
//! Redis is back. What settles (record, acknowledge, settle) insists until it has an answer: a
//! reply that was lost is unknown, never assumed, and the scripts may be asked twice.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustc_hash::FxHashSet;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::delivery::ledger::{Key, Reply, Time};
use crate::delivery::message::DeliveryId;
use crate::queue::{
    Backlog, Claim, Maintenance, Observation, Queue, Record, Repair, Settlement, Taken,
};
use crate::redis::Error;
use crate::runtime::Clock;

/// Between a failure and the next try, at the least: the driver needs a moment to say that Redis
/// is away.
const BREATH: Duration = Duration::from_millis(20);

/// A delivery that this host holds, and its native count.
pub type Holding = (Key, Arc<Claim>, u32);

/// The kinds of errands.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// New messages.
    Fetch,
    /// Due deliveries.
    Due,
    /// Orphans.
    Orphans,
    /// Starts to record.
    Record,
    /// Deliveries to acknowledge.
    Acknowledge,
    /// Deliveries to settle.
    Settle,
    /// Leases to renew.
    Renew,
    /// Housekeeping.
    Maintain,
    /// A look at the backlog.
    Look,
}

impl Kind {
    /// Whether it asks until it is answered.
    pub fn insists(self) -> bool {
        matches!(self, Self::Record | Self::Acknowledge | Self::Settle)
    }
}

/// A look at the backlog, after a wait.
#[derive(Clone, Copy, Debug)]
pub enum Look {
    /// For `--until-empty`.
    Backlog(Duration),
    /// To see whether Redis is back.
    Probe(Duration),
}

/// What an errand found out.
#[derive(Debug)]
pub enum Told {
    /// A fetch has ended.
    Fetched {
        /// How many it had asked for.
        asked: usize,
        /// When it was sent.
        sent: Time,
        /// What it brought.
        result: Result<Vec<Claim>, Error>,
    },
    /// A look for due deliveries has ended.
    Due {
        /// When it was sent.
        sent: Time,
        /// What it brought.
        result: Result<Taken, Error>,
    },
    /// A look for orphans has ended.
    Orphans {
        /// When it was sent.
        sent: Time,
        /// What it brought.
        result: Result<Taken, Error>,
    },
    /// Records are answered.
    Recorded {
        /// When they were last sent.
        sent: Time,
        /// Each with its reply.
        replies: Vec<(Key, Reply)>,
    },
    /// Acknowledgements are confirmed.
    Acknowledged(Vec<Key>),
    /// Settlements are answered.
    Settled(Vec<(Key, Reply)>),
    /// A renewal has ended.
    Renewed {
        /// When it was sent.
        sent: Time,
        /// Each with its reply.
        result: Result<Vec<(Key, Reply)>, Error>,
    },
    /// Housekeeping has ended.
    Maintained(Result<Maintenance, Error>),
    /// What the queue looks like, for metrics.
    Observed(Result<Option<Observation>, Error>),
    /// What waits in the queue.
    Looked(Result<Backlog, Error>),
    /// Whether Redis is back.
    Probed(Result<(), Error>),
    /// What had to be made anew.
    Repaired {
        /// When that was sent.
        sent: Time,
        /// Which deliveries were to be held again.
        keys: Vec<Key>,
        /// What was done.
        result: Result<Repair, Error>,
    },
    /// One of those that insist has failed, and goes on.
    Failed(Kind, Error),
}

/// A request to an errand, and whether it is under way.
#[derive(Debug)]
pub struct Errand<A> {
    asks: mpsc::Sender<A>,
    busy: bool,
}

impl<A> Errand<A> {
    /// Whether it can take a request now.
    pub fn is_free(&self) -> bool {
        !self.busy
    }

    /// Send it off. Only when it is free.
    pub fn send(&mut self, ask: A) {
        debug_assert!(!self.busy);
        // There is room: the errand answers before it is asked again. It is gone only at the end.
        self.busy = self.asks.try_send(ask).is_ok();
    }

    /// It has answered.
    pub fn done(&mut self) {
        self.busy = false;
    }
}

/// All errands of a host.
#[derive(Debug)]
pub struct Errands {
    /// New messages: how many, and for how long to wait.
    pub fetch: Errand<(usize, Duration)>,
    /// Due deliveries: how many at most.
    pub due: Errand<usize>,
    /// Orphans: how many at most, and what this host holds.
    pub orphans: Errand<(usize, FxHashSet<DeliveryId>)>,
    /// Starts to record.
    pub record: Errand<Vec<(Key, Record)>>,
    /// Deliveries to acknowledge.
    pub acknowledge: Errand<Vec<(Key, Arc<Claim>)>>,
    /// Deliveries to settle.
    pub settle: Errand<Vec<(Key, Settlement)>>,
    /// Leases to renew.
    pub renew: Errand<Vec<(Key, Arc<Claim>)>>,
    /// Housekeeping.
    pub maintain: Errand<()>,
    /// A look at the queue, for metrics.
    pub observe: Errand<()>,
    /// A look at the backlog.
    pub look: Errand<Look>,
    /// Make anew what is gone, and hold again what is held, with these counts.
    pub repair: Errand<Vec<Holding>>,
    /// The tasks; they end when this is dropped.
    #[expect(dead_code, reason = "held for its drop")]
    tasks: JoinSet<()>,
}

impl Errands {
    /// Start them. `online` says whether Redis is there, as far as the driver knows.
    pub fn start(
        queue: &Arc<dyn Queue>,
        clock: Clock,
        told: &mpsc::Sender<Told>,
        online: &watch::Receiver<bool>,
    ) -> Self {
        let mut office = Office {
            insist: Insist {
                queue: Arc::clone(queue),
                told: told.clone(),
                online: online.clone(),
            },
            tasks: JoinSet::new(),
        };
        Self {
            fetch: office.errand(move |insist, (asked, wait)| async move {
                let sent = clock.now();
                let result = insist.queue.fetch(asked, wait).await;
                Told::Fetched {
                    asked,
                    sent,
                    result,
                }
            }),
            due: office.errand(move |insist, max| async move {
                let sent = clock.now();
                let result = insist.queue.take_due(max).await;
                Told::Due { sent, result }
            }),
            orphans: office.errand(
                move |insist, (max, held): (usize, FxHashSet<DeliveryId>)| async move {
                    let sent = clock.now();
                    let holds = |id: &DeliveryId| held.contains(id);
                    let result = insist.queue.take_orphans(max, &holds).await;
                    Told::Orphans { sent, result }
                },
            ),
            record: office.errand(move |mut insist, asks: Vec<(Key, Record)>| async move {
                let (keys, records): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
                let queue = Arc::clone(&insist.queue);
                let (sent, replies) = insist
                    .until_answered(Kind::Record, |_| {
                        let sent = clock.now();
                        let replies = queue.record(&records);
                        async move { replies.await.map(|replies| (sent, replies)) }
                    })
                    .await;
                let replies = keys.into_iter().zip(replies).collect();
                Told::Recorded { sent, replies }
            }),
            acknowledge: office.errand(|mut insist, asks: Vec<(Key, Arc<Claim>)>| async move {
                let (keys, claims): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
                let queue = Arc::clone(&insist.queue);
                insist
                    .until_answered(Kind::Acknowledge, |_| queue.acknowledge(&claims))
                    .await;
                Told::Acknowledged(keys)
            }),
            settle: office.errand(|mut insist, asks: Vec<(Key, Settlement)>| async move {
                let (keys, settlements): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
                let queue = Arc::clone(&insist.queue);
                let repeats = OnceLock::new();
                let (first, replies) = insist
                    .until_answered(Kind::Settle, |first| {
                        let all = if first {
                            &settlements
                        } else {
                            repeats
                                .get_or_init(|| settlements.iter().map(Settlement::again).collect())
                        };
                        let replies = queue.settle(all);
                        async move { replies.await.map(|replies| (first, replies)) }
                    })
                    .await;
                let replies = replies.into_iter().map(|reply| carried_out(first, reply));
                Told::Settled(keys.into_iter().zip(replies).collect())
            }),
            renew: office.errand(move |insist, asks: Vec<(Key, Arc<Claim>)>| async move {
                let (keys, claims): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
                let sent = clock.now();
                let result = insist.queue.renew(&claims).await;
                let result = result.map(|replies| keys.into_iter().zip(replies).collect());
                Told::Renewed { sent, result }
            }),
            maintain: office.errand(|insist, ()| async move {
                Told::Maintained(insist.queue.maintain().await)
            }),
            observe: office
                .errand(|insist, ()| async move { Told::Observed(insist.queue.observe().await) }),
            look: office.errand(|insist, look| async move {
                match look {
                    Look::Backlog(after) => {
                        tokio::time::sleep(after).await;
                        Told::Looked(insist.queue.backlog().await)
                    }
                    Look::Probe(after) => {
                        tokio::time::sleep(after).await;
                        Told::Probed(insist.queue.probe().await)
                    }
                }
            }),
            repair: office.errand(move |insist, held: Vec<Holding>| async move {
                let (keys, held): (Vec<_>, Vec<_>) = held
                    .into_iter()
                    .map(|(key, claim, count)| (key, (claim, count)))
                    .unzip();
                let sent = clock.now();
                let result = insist.queue.repair(&held).await;
                Told::Repaired { sent, keys, result }
            }),
            tasks: office.tasks,
        }
    }
}

/// Where errands are started.
struct Office {
    insist: Insist,
    tasks: JoinSet<()>,
}

impl Office {
    fn errand<A, F, R>(&mut self, run: F) -> Errand<A>
    where
        A: Send + 'static,
        F: Fn(Insist, A) -> R + Send + 'static,
        R: Future<Output = Told> + Send + 'static,
    {
        let (asks, mut inbox) = mpsc::channel(1);
        let insist = self.insist.clone();
        self.tasks.spawn(async move {
            while let Some(ask) = inbox.recv().await {
                let answer = run(insist.clone(), ask).await;
                if insist.told.send(answer).await.is_err() {
                    return;
                }
            }
        });
        Errand { asks, busy: false }
    }
}

/// What an errand needs to ask until it is answered.
#[derive(Clone)]
struct Insist {
    queue: Arc<dyn Queue>,
    told: mpsc::Sender<Told>,
    online: watch::Receiver<bool>,
}

impl Insist {
    /// Ask until there is an answer. The driver hears of every failure, and says when Redis is
    /// back; its pauses bound how often this asks.
    ///
    /// `ask` is told whether it asks for the first time.
    async fn until_answered<T, R>(&mut self, kind: Kind, ask: impl Fn(bool) -> R) -> T
    where
        R: Future<Output = Result<T, Error>>,
    {
        let mut first = true;
        loop {
            match ask(first).await {
                Ok(answer) => return answer,
                Err(error) => {
                    first = false;
                    // Nobody listens only when the host is ending, and then this task ends too.
                    drop(self.told.send(Told::Failed(kind, error)).await);
                    tokio::time::sleep(BREATH).await;
                    drop(self.online.wait_for(|online| *online).await);
                }
            }
        }
    }
}

/// What a reply says once earlier tries are taken into account: a delivery that an unanswered try
/// took off the queue is no longer pending when it is asked again. It is gone by our own hand: had
/// another host taken it over, it would be theirs. (Or, on a stream, that host has settled it since:
/// that takes a settlement without an answer for `min_idle`.)
fn carried_out(first: bool, reply: Reply) -> Reply {
    match reply {
        Reply::Gone if !first => Reply::Done,
        reply => reply,
    }
}
