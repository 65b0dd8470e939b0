//! Queues: claim and settle.
//!
//! [`Queue`] is the contract that every queue kind keeps; `runtime` knows nothing else of a queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use crate::delivery::ledger::{Origin, Reply, SettleAction};
use crate::delivery::message::{DeliveryId, Message};
use crate::redis::{Error, ServerTime};
use crate::wire::Raw;
use crate::wire::decoded::Malformed;

pub mod at_most_once;
pub mod dead_letter_queue;
mod dead_letters;
pub mod inspect;
pub mod kind;
pub mod list;
pub mod publish;
pub mod pubsub;
mod requirements;
pub mod rules;
pub mod simple_list;
pub mod stream;
pub use rules::Rules;

/// One delivery that this host has claimed: its lease runs from the moment the claim was *sent*.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which delivery.
    pub id: DeliveryId,
    /// How it came here.
    pub origin: Origin,
    /// The count that Redis keeps for it.
    pub native: u32,
    /// Starts charged before it came to this queue (its retry-count headers).
    pub header: u32,
    /// When it stops being worth handling, in epoch milliseconds, where only the queue can tell: a
    /// value of a list does not say when it was enqueued.
    pub expires_at_ms: Option<u64>,
    /// What the handler sees.
    pub message: Message,
    /// What copies are made of: every byte as it stands in Redis.
    pub raw: Raw,
    /// What decoding found wrong with it: the gate turns it away unrun.
    pub defect: Option<Malformed>,
}

/// A start to record before the handler runs, or a lease to confirm (`write` = `expect`).
#[derive(Clone, Debug)]
pub struct Record {
    /// The delivery.
    pub claim: Arc<Claim>,
    /// The native count it must have (or already `write`: a retry of a lost reply).
    pub expect: u32,
    /// The native count to write.
    pub write: u32,
}

/// How a delivery leaves this host, other than by a plain acknowledgement.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The delivery.
    pub claim: Arc<Claim>,
    /// The native count it must still have in Redis.
    pub count: u32,
    /// What happens to it.
    pub action: SettleAction,
    /// The digest of the handler that ran or would have run: for a dead letter.
    pub handler: Arc<str>,
    /// When the message stops being worth handling, in epoch milliseconds, as its header or the time
    /// to live of the queue says: for a dead letter, whose copy has no such limit.
    pub expires_at_ms: Option<u64>,
}

impl Settlement {
    /// A settlement of a message that no handler has run, and that does not expire.
    pub fn new(claim: Arc<Claim>, count: u32, action: SettleAction) -> Self {
        Self {
            claim,
            count,
            action,
            handler: Arc::from(""),
            expires_at_ms: None,
        }
    }

    /// The same, to be asked again after a lost reply.
    ///
    /// What the first one may have sent back, another host may have started since, and this one
    /// may own again, with the very count that it names: so a repeat takes no charge back.
    pub fn again(&self) -> Self {
        let mut again = self.clone();
        match &mut again.action {
            SettleAction::Park { keep, .. }
            | SettleAction::HandBack { keep }
            | SettleAction::Leave { keep } => *keep = self.count.max(*keep),
            SettleAction::DeadLetter(_) | SettleAction::Discard(_) => {}
        }
        again
    }
}

/// What a look at the waiting deliveries found.
#[derive(Debug, Default)]
pub struct Taken {
    /// What was claimed.
    pub claims: Vec<Claim>,
    /// Entries found trimmed or deleted while pending: lost, counted.
    pub trimmed: u64,
    /// How long until the next parked delivery is due, if one is known.
    pub next_due: Option<Duration>,
}

/// What the group looks like from outside.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Backlog {
    /// Whether something waits that no host has read.
    pub unread: bool,
    /// Deliveries that hosts hold, parked ones included, and messages published for later.
    pub pending: u64,
}

/// What housekeeping did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Maintenance {
    /// Entries trimmed from the queue by its retention.
    pub trimmed: u64,
    /// The queue is longer than its retention says, because what is over the length is unread or
    /// pending in some group: worth a warning.
    pub held_back: bool,
    /// Consumers removed that were long gone.
    pub consumers_removed: u64,
    /// Dead letters dropped since the last call, because their queue is bounded: lost, counted.
    pub dead_letters_dropped: u64,
    /// Messages ended since the last call because they would have gone round for ever.
    pub cycles: u64,
    /// Damaged histories since the last call, each read as far as possible.
    pub histories_damaged: u64,
    /// Messages given up because more were unread than may be: dead-lettered, or discarded.
    pub overflowed: u64,
    /// There is more of that to do.
    pub overflows: bool,
    /// Messages over that length that were replayed for another consumer group: taken off, for this
    /// group only.
    pub other_group: u64,
    /// More is unread than may be, and its dead letters cannot be written: why. It is left where it
    /// is.
    pub dead_letters_refused: Option<String>,
    /// How many of them were tried, or looked for, and refused.
    pub refusals: u64,
}

/// What a queue looks like from outside: for gauges.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observation {
    /// Messages that no host has read: as Redis counts them, trimmed ones included; where Redis
    /// does not know, 1 if there are any.
    pub unread: u64,
    /// Deliveries that hosts hold, parked ones included.
    pub pending: u64,
    /// For how long the oldest of them has been in the queue.
    pub oldest_pending: Option<Duration>,
    /// What waits for its time: deliveries held for later by no host, messages published for later.
    pub parked: u64,
    /// Entries in the dead-letter queue.
    pub dead_letters: Option<u64>,
}

/// What had to be made anew because somebody deleted it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Repaired {
    /// Nothing was missing.
    Intact,
    /// The group was gone, its stream was not: made again behind the last entry this host saw.
    Group,
    /// The stream was gone: stream and group made again, empty, at `0`.
    Stream,
}

/// What [`Queue::repair`] did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Repair {
    /// What had been missing.
    pub repaired: Repaired,
    /// One reply for each delivery that this host holds: `Done` if it is held in Redis as well,
    /// `Trimmed` if its entry is gone, `Stolen` if another host has it.
    pub held: Vec<Reply>,
}

/// What a queue has needed of its server so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Contact {
    /// Connections opened, the first ones included.
    pub connections_opened: u64,
    /// How often the server had forgotten a script (`NOSCRIPT`).
    pub scripts_forgotten: u64,
    /// How often a subscription was gone for a while: what was published meanwhile is lost.
    pub gaps: u64,
    /// For how long in all, until it was there again.
    pub gap: Duration,
    /// Messages dropped because the buffer was full.
    pub buffer_dropped: u64,
}

/// What a queue promises about a message that it has handed out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Guarantee {
    /// It is kept until it is settled: what becomes of its host does not matter.
    AtLeastOnce,
    /// It is forgotten. Nothing can be taken back, put off or moved elsewhere: a message that is
    /// not acknowledged, or whose host dies, is lost.
    AtMostOnce,
}

/// The contract of every queue kind.
///
/// Methods take `&self` and may run at the same time. None of them retries: an [`Error`] means
/// that nothing is known about what happened, and the caller asks again; every method that changes
/// something may be repeated after a lost reply. What Redis answered *about one delivery* is a
/// [`Reply`], never an `Error`.
///
/// Crash windows are named at each method: "dies here" means this host, anywhere between sending
/// the command and acting on the reply.
#[async_trait]
pub trait Queue: std::fmt::Debug + Send + Sync + 'static {
    /// The name of this host in the queue: unique to this start.
    fn consumer(&self) -> &str;

    /// What it promises. At most once, everything is as it is on the other queues, but for this:
    /// no delivery is ever due or an orphan, a record or renewal changes nothing, a settlement is
    /// done as soon as it is asked, and nothing is parked, left or dead-lettered.
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    /// The time of day that messages expire by: the server's, where something is kept there for
    /// more than one host to judge.
    fn time(&self) -> Arc<ServerTime> {
        Arc::default()
    }

    /// Take nothing more from the server: the host drains. What was taken before is still
    /// fetched, until a fetch brings nothing. Nothing to do for a queue to which a host hands back
    /// what it holds: it is not fetched from anymore.
    fn stop_taking(&self) {}

    /// Wait up to `wait` for messages that nobody has read, and claim at most `want` of them.
    ///
    /// Called by one task at a time, which waits for its end: what a fetch that was given up had
    /// claimed is found as own deliveries that nobody knows, late. Dies here: pending under this
    /// host's name, found as orphans.
    async fn fetch(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error>;

    /// Go by these rules from now on. A queue that forgets what it hands out has none.
    fn adopt(&self, _rules: Rules) {}

    /// Make a waiting [`Queue::fetch`] return early (with what it has).
    async fn interrupt(&self) -> Result<(), Error>;

    /// Claim parked deliveries that are due, at most `max`, and say when the next one is. Also make
    /// messages of what was published for later and is due, or claim it.
    ///
    /// Dies here: owned by this host with the count kept, found as orphans.
    async fn take_due(&self, max: usize) -> Result<Taken, Error>;

    /// Claim orphans, at most `max`: deliveries of other consumers idle for `min_idle`, and own
    /// ones idle for half of it that `holds` does not know. Also parked ones that nobody tracks.
    async fn take_orphans(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error>;

    /// Record starts: one reply for each. Renews the lease as well.
    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error>;

    /// Take deliveries off the queue, in one round trip, without an owner check: the handler has
    /// said that they are done, whoever holds them now.
    async fn acknowledge(&self, claims: &[Arc<Claim>]) -> Result<(), Error>;

    /// Carry out settlements: one reply for each.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error>;

    /// Renew leases: one reply for each (`Done`, `Gone`, `Trimmed` or `Stolen`).
    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error>;

    /// Housekeeping that may be late: retention, consumers long gone.
    async fn maintain(&self) -> Result<Maintenance, Error>;

    /// After [`Class::Missing`](crate::redis::Class::Missing): make again what is gone, and adopt what this host still holds
    /// (with these native counts) where its entry is still there.
    async fn repair(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error>;

    /// What waits, for `--until-empty`.
    async fn backlog(&self) -> Result<Backlog, Error>;

    /// Whether the queue is there and its server takes writes to it, with a short deadline: after
    /// a failure. It changes nothing. A right that this host lacks is no failure here: what needs
    /// it fails by itself.
    async fn probe(&self) -> Result<(), Error>;

    /// What it has needed of its server so far.
    fn contact(&self) -> Contact;

    /// What the queue looks like, for metrics; `None` where a kind has nothing to show. It may need
    /// rights that serving does not: failing at it is no failure of the queue.
    async fn observe(&self) -> Result<Option<Observation>, Error> {
        Ok(None)
    }

    /// This host leaves: remove what names it, if nothing is pending under its name.
    async fn leave(&self) -> Result<(), Error>;
}
