//! Request workers: one task for each request to the queue that may be under way. Most kinds of requests have one.
//!
//! Requests that only read or claim (fetch, due, orphans, renew, probe) fail fast. The driver sends them
//! again when Redis is back. Requests that settle (record, acknowledge, settle, dead-letter) are repeated until they
//! are answered: if a reply is lost, the result is unknown, and the scripts may be asked twice.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{MaybeDone, maybe_done};
use futures_util::poll;
use rustc_hash::FxHashSet;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::delivery::ledger::{Key, Reply, Time};
use crate::delivery::message::DeliveryId;
use crate::queue::{
    Backlog, Claim, Maintenance, Observation, Queue, Record, Repair, Settlement, Taken,
};
use crate::redis::Error;
use crate::runtime::fault_point;

/// The least pause between a failure and the next try: the driver needs a moment to note that Redis is
/// away.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A fetch asks for another part if the last one brought at least so many messages, and it may bring as many
/// again: there are probably more.
const PART_MIN: usize = 64;

/// The kinds of requests.
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
    /// Deliveries to settle in any other way. A request voids an earlier one that had no answer.
    Settle,
    /// Deliveries to dead-letter.
    DeadLetter,
    /// Leases to renew.
    Renew,
    /// Housekeeping.
    Maintain,
    /// A look at the queue, for metrics.
    Observe,
    /// A look at the backlog, for `--until-empty`.
    Backlog,
    /// Whether Redis is back.
    Probe,
    /// Make a missing stream or group again.
    Repair,
    /// Take back what is missing although its lease lasts.
    BringBack,
}

impl Kind {
    const ALL: [Self; 14] = [
        Self::Fetch,
        Self::Due,
        Self::Orphans,
        Self::Record,
        Self::Acknowledge,
        Self::Settle,
        Self::DeadLetter,
        Self::Renew,
        Self::Maintain,
        Self::Observe,
        Self::Backlog,
        Self::Probe,
        Self::Repair,
        Self::BringBack,
    ];

    /// Whether a request of this kind is repeated until it is answered.
    pub fn retries(self) -> bool {
        matches!(
            self,
            Self::Record | Self::Acknowledge | Self::Settle | Self::DeadLetter | Self::BringBack
        )
    }

    /// Most requests of this kind under way. A record or a dead letter is about as much work for the host as for Redis: with
    /// several requests both work at the same time.
    pub const fn most_under_way(self) -> usize {
        match self {
            Self::Record | Self::DeadLetter => 8,
            _ => 1,
        }
    }

    /// Most deliveries in a request of this kind: where there are several requests, as many as one script takes.
    pub const fn most_deliveries(self) -> usize {
        match self {
            Self::Record | Self::DeadLetter => 100,
            _ => 400,
        }
    }
}

/// A request to the queue.
#[derive(Debug)]
pub enum Request {
    /// At most this many new messages, after at most this wait.
    Fetch(usize, Duration),
    /// At most this many due deliveries.
    Due(usize),
    /// At most this many orphans, except those that this host holds.
    Orphans(usize, FxHashSet<DeliveryId>),
    /// Starts to record.
    Record(Vec<Key>, Vec<Record>),
    /// Deliveries to acknowledge; `true`: other hosts may have some of them by now.
    Acknowledge(Vec<Key>, Vec<Arc<Claim>>, bool),
    /// Deliveries to settle.
    Settle(Vec<Key>, Vec<Settlement>),
    /// Deliveries to dead-letter.
    DeadLetter(Vec<Key>, Vec<Settlement>),
    /// Leases to renew.
    Renew(Vec<Key>, Vec<Arc<Claim>>),
    /// Housekeeping.
    Maintain,
    /// A look at the queue, for metrics.
    Observe,
    /// A look at the backlog, after this pause.
    Backlog(Duration),
    /// Whether Redis is back, after this pause.
    Probe(Duration),
    /// Make a missing stream or group again. It must hold these deliveries, with these native counts.
    Repair(Vec<Key>, Vec<(Arc<Claim>, u32)>),
    /// Take back what is missing although its lease lasts, up to this time, with these native counts.
    BringBack(Vec<Key>, Vec<(Arc<Claim>, u32)>, Time),
}

impl Request {
    fn kind(&self) -> Kind {
        match self {
            Self::Fetch(..) => Kind::Fetch,
            Self::Due(_) => Kind::Due,
            Self::Orphans(..) => Kind::Orphans,
            Self::Record(..) => Kind::Record,
            Self::Acknowledge(..) => Kind::Acknowledge,
            Self::Settle(..) => Kind::Settle,
            Self::DeadLetter(..) => Kind::DeadLetter,
            Self::Renew(..) => Kind::Renew,
            Self::Maintain => Kind::Maintain,
            Self::Observe => Kind::Observe,
            Self::Backlog(_) => Kind::Backlog,
            Self::Probe(_) => Kind::Probe,
            Self::Repair(..) => Kind::Repair,
            Self::BringBack(..) => Kind::BringBack,
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// New messages.
    Fetched {
        /// One part of them.
        claims: Vec<Claim>,
        /// Whether another part follows, of the same request.
        more: bool,
    },
    /// Due deliveries, or orphans.
    Taken(Taken),
    /// One reply for each delivery.
    Replies(Vec<(Key, Reply)>),
    /// These deliveries are acknowledged.
    Acknowledged(Vec<Key>),
    /// The result of housekeeping.
    Maintained(Maintenance),
    /// The queue from outside, if its kind shows it.
    Observed(Option<Observation>),
    /// The backlog.
    Backlog(Backlog),
    /// Redis is back.
    Probed,
    /// What was made again, for these deliveries.
    Repaired(Vec<Key>, Repair),
}

/// A request has ended; or one that is repeated has failed, and goes on.
#[derive(Debug)]
pub struct Completion {
    /// Its kind.
    pub kind: Kind,
    /// When it was last sent.
    pub sent: Time,
    /// Its result.
    pub result: Result<Answer, Error>,
    /// The settlements that it may have carried out, if it has failed.
    pub unanswered: Vec<Key>,
}

/// All request workers of a host.
#[derive(Debug)]
pub struct Workers {
    inboxes: [mpsc::Sender<Request>; Kind::ALL.len()],
    under_way: [usize; Kind::ALL.len()],
    /// The fetch under way asks for no more parts.
    ends_fetch: Arc<AtomicBool>,
    /// The tasks; they end when this is dropped.
    tasks: JoinSet<()>,
}

impl Workers {
    /// Start them. `online` says whether Redis is there, as far as the driver knows.
    pub fn start(
        queue: &Arc<dyn Queue>,
        clock: Clock,
        completions: &mpsc::Sender<Completion>,
        online: &watch::Receiver<bool>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let ends_fetch = Arc::<AtomicBool>::default();
        let inboxes = Kind::ALL.map(|kind| {
            let (requests, inbox) = mpsc::channel(kind.most_under_way());
            // The workers of a kind take the next request in turn.
            let inbox = Arc::new(Mutex::new(inbox));
            for _ in 0..kind.most_under_way() {
                let worker = Worker {
                    kind,
                    queue: Arc::clone(queue),
                    clock,
                    completions: completions.clone(),
                    online: online.clone(),
                    ends_fetch: Arc::clone(&ends_fetch),
                };
                tasks.spawn(worker.work(Arc::clone(&inbox)));
            }
            requests
        });
        Self {
            inboxes,
            under_way: [0; Kind::ALL.len()],
            ends_fetch,
            tasks,
        }
    }

    /// Whether the worker for this kind can take a request.
    pub fn is_free(&self, kind: Kind) -> bool {
        self.under_way[kind as usize] < kind.most_under_way()
    }

    /// Send a request. Its worker must be free.
    pub fn send(&mut self, request: Request) {
        debug_assert!(self.is_free(request.kind()));
        let kind = request.kind() as usize;
        if let Request::Fetch(..) = request {
            self.ends_fetch.store(false, Ordering::Relaxed);
        }
        // There is room: a worker answers before it gets the next request. It ends with the host.
        let is_sent = self.inboxes[kind].try_send(request).is_ok();
        self.under_way[kind] += usize::from(is_sent);
    }

    /// Ask for no more parts of the fetch that is under way.
    pub fn end_fetch(&self) {
        self.ends_fetch.store(true, Ordering::Relaxed);
    }

    /// End them: nothing is sent from now on.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }

    /// The worker for this kind has answered.
    pub fn done(&mut self, kind: Kind) {
        self.under_way[kind as usize] -= 1;
    }
}

struct Worker {
    kind: Kind,
    queue: Arc<dyn Queue>,
    clock: Clock,
    completions: mpsc::Sender<Completion>,
    online: watch::Receiver<bool>,
    ends_fetch: Arc<AtomicBool>,
}

/// A part of a fetch that is under way.
struct Part<F: Future> {
    sent: Time,
    answer: Pin<Box<MaybeDone<F>>>,
}

impl Worker {
    async fn work(mut self, inbox: Arc<Mutex<mpsc::Receiver<Request>>>) {
        loop {
            let next = inbox.lock().await.recv().await;
            let Some(mut request) = next else {
                return;
            };
            if let Request::Fetch(want, wait) = request {
                match self.fetch(want, wait).await {
                    Some(()) => continue,
                    None => return,
                }
            }
            loop {
                let kind = self.kind;
                if let Request::Backlog(pause) | Request::Probe(pause) = request {
                    tokio::time::sleep(pause).await;
                }
                let sent = self.clock.now();
                fault_point::pass(format_args!("{kind:?}-before"));
                let result = self.ask(&mut request).await;
                if result.is_ok() {
                    fault_point::pass(format_args!("{kind:?}-after"));
                }
                let is_over = result.is_ok() || !kind.retries();
                let unanswered = match &mut request {
                    Request::Settle(keys, settlements) | Request::DeadLetter(keys, settlements)
                        if result.is_err() =>
                    {
                        let again = std::mem::take(settlements).into_iter();
                        *settlements = again.map(Settlement::again).collect();
                        keys.clone()
                    }
                    // It may be late by the next try.
                    Request::Acknowledge(_, _, is_late) => {
                        *is_late = true;
                        Vec::new()
                    }
                    _ => Vec::new(),
                };
                let completion = Completion {
                    kind,
                    sent,
                    result,
                    unanswered,
                };
                if self.completions.send(completion).await.is_err() {
                    return;
                }
                if is_over {
                    break;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
                drop(self.online.wait_for(|online| *online).await);
            }
        }
    }

    /// Read new messages, in parts: while the driver takes one in, Redis reads the next one. `None`: the host is
    /// ending.
    ///
    /// Dies here: pending under this host's name, found as orphans; also a part that the driver has not seen.
    async fn fetch(&self, mut want: usize, wait: Duration) -> Option<()> {
        let mut part = self.part(want, wait);
        loop {
            (&mut part.answer).await;
            let mut result = part.answer.as_mut().take_output()?;
            let mut next = None;
            if let Ok(Answer::Fetched { claims, more }) = &mut result {
                want = want.saturating_sub(claims.len());
                let ends = self.ends_fetch.load(Ordering::Relaxed);
                if claims.len().min(want) >= PART_MIN && !ends {
                    *more = true;
                    let part = next.insert(self.part(want, Duration::ZERO));
                    // Its command is on its way before the driver runs.
                    let _is_here = poll!(&mut part.answer).is_ready();
                }
                self.queue.find_duplicates(claims).await;
                fault_point::pass(format_args!("{:?}-after", self.kind));
            }
            let completion = Completion {
                kind: self.kind,
                sent: part.sent,
                result,
                unanswered: Vec::new(),
            };
            self.completions.send(completion).await.ok()?;
            match next {
                Some(next) => part = next,
                None => return Some(()),
            }
        }
    }

    /// Begin to ask for a part of a fetch.
    fn part(
        &self,
        want: usize,
        wait: Duration,
    ) -> Part<impl Future<Output = Result<Answer, Error>>> {
        fault_point::pass(format_args!("{:?}-before", self.kind));
        let ask = async move {
            let mut request = Request::Fetch(want, wait);
            self.ask(&mut request).await
        };
        Part {
            sent: self.clock.now(),
            answer: Box::pin(maybe_done(ask)),
        }
    }

    /// Record starts. Before a late one, duplicates are looked for once more: another host may have handled one since the
    /// claim.
    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        let late = records.iter().filter(|record| record.is_late);
        let mut late: Vec<Claim> = late.map(|record| Claim::clone(&record.claim)).collect();
        if !late.is_empty() {
            self.queue.find_duplicates(&mut late).await;
        }
        late.retain(|claim| claim.is_duplicate);
        if late.is_empty() {
            return self.queue.record(records).await;
        }
        let handled: FxHashSet<DeliveryId> = late.iter().map(|claim| claim.id).collect();
        let is_new = |record: &&Record| !handled.contains(&record.claim.id);
        let new: Vec<Record> = records.iter().filter(is_new).cloned().collect();
        let recorded = match new.is_empty() {
            true => Vec::new(),
            false => self.queue.record(&new).await?,
        };
        let mut recorded = recorded.into_iter();
        let replies = records.iter().map(|record| match is_new(&record) {
            // There is a reply to each.
            true => recorded.next().unwrap_or(Reply::Stolen),
            false => Reply::Duplicate,
        });
        Ok(replies.collect())
    }

    async fn ask(&self, request: &mut Request) -> Result<Answer, Error> {
        let queue = &self.queue;
        Ok(match request {
            Request::Fetch(want, wait) => Answer::Fetched {
                claims: queue.fetch(*want, *wait).await?,
                more: false,
            },
            Request::Due(max) => {
                let mut taken = match queue.known_due() {
                    Some(nothing) => nothing,
                    None => queue.take_due(*max).await?,
                };
                queue.find_duplicates(&mut taken.claims).await;
                Answer::Taken(taken)
            }
            Request::Orphans(max, held) => {
                let holds = |id: &DeliveryId| held.contains(id);
                let mut taken = queue.take_orphans(*max, &holds).await?;
                queue.find_duplicates(&mut taken.claims).await;
                Answer::Taken(taken)
            }
            Request::Record(keys, records) => replies(keys, self.record(records).await?),
            Request::Acknowledge(keys, claims, is_late) => {
                match is_late {
                    true => queue.acknowledge_late(claims).await?,
                    false => queue.acknowledge(claims).await?,
                }
                Answer::Acknowledged(std::mem::take(keys))
            }
            Request::Settle(keys, settlements) | Request::DeadLetter(keys, settlements) => {
                replies(keys, queue.settle(settlements).await?)
            }
            Request::Renew(keys, claims) => replies(keys, queue.renew(claims).await?),
            Request::BringBack(keys, held, until) if self.clock.now() < *until => {
                replies(keys, queue.bring_back(held).await?)
            }
            // Another host may have settled it by now.
            Request::BringBack(keys, held, _) => replies(keys, vec![Reply::Gone; held.len()]),
            Request::Maintain => Answer::Maintained(queue.maintain().await?),
            Request::Observe => Answer::Observed(queue.observe().await?),
            Request::Backlog(_) => Answer::Backlog(queue.backlog().await?),
            Request::Probe(_) => {
                queue.probe().await?;
                Answer::Probed
            }
            Request::Repair(keys, held) => {
                let repair = queue.repair(held).await?;
                Answer::Repaired(std::mem::take(keys), repair)
            }
        })
    }
}

fn replies(keys: &mut Vec<Key>, replies: Vec<Reply>) -> Answer {
    let keys = std::mem::take(keys);
    Answer::Replies(keys.into_iter().zip(replies).collect())
}
