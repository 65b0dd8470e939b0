//! Queues: claim and settle.
//!
//! [`Queue`] is the contract of every queue kind; `runtime` uses nothing else of a queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::delivery::effect::Effects;
use crate::delivery::evidence::Evidence;
use crate::delivery::hold::Held;
use crate::delivery::ledger::Permits;
pub use crate::delivery::ledger::{Origin, Reply, SettleAction};
use crate::delivery::message::{DeliveryId, Message};
use crate::delivery::reply::{self, Answer, Status};
use crate::outgoing::effects::Acting;
pub use crate::outgoing::outbox::Relayed;
use crate::redis::{Error, ServerTime};
use crate::wire::Raw;
use crate::wire::dead_letter::only_group;
use crate::wire::decoded::Malformed;
use crate::wire::entry_id::entry_id;
use journal::{Increment, Journal, Written};
use limits::{Admitted, Start};

mod at_least_once;
pub mod at_most_once;
pub mod byte_bounds;
mod cancels;
pub mod dead_letter_queue;
mod due;
pub mod inspect;
mod interruption;
pub mod journal;
pub mod kind;
pub mod limits;
pub mod list;
pub mod pubsub;
mod requirements;
mod rights;
pub mod rules;
pub mod scripts;
pub mod simple_list;
pub mod startup;
pub mod stream;
pub use rules::Rules;

/// One delivery that this host has claimed: its lease runs from the moment the claim was *sent*.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// How it came here.
    pub origin: Origin,
    /// The count that Redis keeps for it.
    pub native: u32,
    /// Its holds so far.
    pub held: Held,
    /// Starts charged before it came to this queue (its retry-count headers).
    pub header: u32,
    /// When it expires, in epoch milliseconds, if only the queue knows: a value of a list does not
    /// say when it was enqueued.
    pub expires_at_ms: Option<u64>,
    /// The message for the handler.
    pub message: Message,
    /// The message as it stands in Redis, byte for byte: for copies.
    pub raw: Raw,
    /// The decoder's finding: the gate rejects the message unrun.
    pub defect: Option<Malformed>,
    /// A message with its id was handled already: the gate acknowledges it unrun.
    pub is_duplicate: bool,
    /// When its limits have reserved its start for, in epoch milliseconds.
    pub reserved_ms: Option<u64>,
}

/// A start to record before the handler runs, or a lease to confirm (`write` = `expect`).
#[derive(Clone, Debug)]
pub struct Record {
    /// The delivery.
    pub claim: Arc<Claim>,
    /// The native count it must have.
    pub expect: u32,
    /// The native count to write.
    pub write: u32,
    /// It is long since duplicates of the message were looked for: look again first.
    pub is_late: bool,
    /// The answer to an earlier try was lost: the count may be `write` already.
    pub is_repeated: bool,
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
    /// The evidence of the last attempt: for a dead letter.
    pub evidence: Option<Arc<Evidence>>,
    /// When the message stops being worth handling, in epoch milliseconds, as its header or the time
    /// to live of the queue says: for a dead letter, whose copy has no such limit.
    pub expires_at_ms: Option<u64>,
    /// What happens with the acknowledgement of a handler, all of it or nothing; `None` = no handler
    /// acknowledged it.
    pub effects: Option<Arc<Effects>>,
    /// A handler has run the message on this host, charged or not: it keeps its id.
    pub has_run: bool,
    /// When its limits have reserved its start for, in epoch milliseconds: a hand-back that is due later is due then.
    pub reserved_ms: Option<u64>,
}

impl Settlement {
    /// A settlement of a message that no handler has run, and that does not expire.
    pub fn new(claim: Arc<Claim>, count: u32, action: SettleAction) -> Self {
        Self {
            claim,
            count,
            action,
            handler: Arc::from(""),
            evidence: None,
            expires_at_ms: None,
            effects: None,
            has_run: false,
            reserved_ms: None,
        }
    }

    /// The same settlement, for a repeat after a lost reply ([`SettleAction::again`]).
    pub fn again(self) -> Self {
        Self {
            action: self.action.again(self.count),
            ..self
        }
    }
}

impl Acting for Settlement {
    fn message(&self) -> &Message {
        &self.claim.message
    }

    fn effects(&self) -> Option<&Effects> {
        self.effects.as_deref()
    }

    fn answer(&self, group: Option<&str>) -> Option<(String, Answer)> {
        let message = &self.claim.message;
        // It was replayed for another group, which answers.
        if only_group(&message.headers).is_some_and(|only| Some(only) != group) {
            return None;
        }
        let value = self.effects().and_then(Effects::reply);
        let inbox = match (reply::inbox(&message.headers), group) {
            (Some(inbox), _) => inbox.to_owned(),
            (None, _) if value.is_none() => return None,
            // Nothing waits for it: it is kept by the id.
            (None, Some(group)) => format!("{group}:{}", entry_id(self.claim.id)),
            (None, None) => message.id.to_string(),
        };
        let (status, why) = match &self.action {
            SettleAction::Acknowledge if self.effects.is_some() => (Status::Acked, None),
            SettleAction::Acknowledge => (Status::Duplicate, None),
            SettleAction::DeadLetter(why) => (Status::DeadLettered, Some(why)),
            SettleAction::Discard(why) => (Status::Discarded, Some(why)),
            _ => return None,
        };
        let answer = Answer {
            id: message.id.to_string(),
            group: group.map(str::to_owned),
            status,
            reason: None,
            detail: None,
            value: value.cloned(),
        };
        Some(match why {
            Some(why) => (inbox, answer.because(why)),
            None => (inbox, answer),
        })
    }
}

/// The result of a look for due deliveries or orphans.
#[derive(Debug, Default)]
pub struct Taken {
    /// The claims.
    pub claims: Vec<Claim>,
    /// Entries found trimmed or deleted while pending: lost, counted.
    pub trimmed: u64,
    /// How long until the next parked delivery is due, if one is known.
    pub next_due: Option<Duration>,
}

/// The messages that wait.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Backlog {
    /// Whether some message is unread.
    pub unread: bool,
    /// Deliveries that hosts hold, parked ones included, and messages published for later.
    pub pending: u64,
    /// Messages in outboxes: acknowledged, and on their way to other slots.
    pub outbox: u64,
}

/// A part of housekeeping. One go does a bounded amount of it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Sweep {
    /// What the retention of the queue trims.
    Retention,
    /// Unread messages over the length limit.
    MaxLength,
    /// Dead letters over the bound of their queue.
    DeadLetters,
    /// Consumers, or instances, that are long gone.
    Consumers,
    /// Outboxes that other hosts or configurations have filled.
    Outboxes,
    /// Journals whose messages are gone.
    Journals,
}

impl Sweep {
    /// Its name in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::MaxLength => "max-length",
            Self::DeadLetters => "dead-letters",
            Self::Consumers => "consumers",
            Self::Outboxes => "outboxes",
            Self::Journals => "journals",
        }
    }
}

/// The result of housekeeping.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Maintenance {
    /// Where more is to do: the next housekeeping goes on at once.
    pub unfinished: Vec<Sweep>,
    /// Entries trimmed from the queue by its retention.
    pub trimmed: u64,
    /// The queue is longer than its retention says, because entries over the length are unread or
    /// pending in some group: worth a warning.
    pub held_back: bool,
    /// Consumers removed that were not seen for long.
    pub consumers_removed: u64,
    /// Dead letters dropped since the last call, because their queue is bounded: lost, counted.
    pub dead_letters_dropped: u64,
    /// Messages ended since the last call because they would have gone round for ever.
    pub cycles: u64,
    /// Damaged histories since the last call, each read as far as possible.
    pub histories_damaged: u64,
    /// Messages over the length limit: dead-lettered, or discarded.
    pub overflowed: u64,
    /// More messages are over the limit.
    pub overflows: bool,
    /// Messages over the limit that were replayed for another consumer group: acknowledged for this
    /// group only.
    pub other_group: u64,
    /// Messages are over the limit, and their dead letters cannot be written, for this reason: they
    /// stay.
    pub dead_letters_refused: Option<String>,
    /// How many of them were tried, or looked for, and refused.
    pub refusals: u64,
    /// Messages acknowledged since the last call without their effects, because a message with the same id
    /// was handled meanwhile.
    pub duplicates: u64,
    /// Handled messages since the last call whose ids are not remembered, because there is no room.
    pub marks_refused: u64,
    /// Old journals of a list stay: it has more values than are looked at, or one that cannot be read.
    pub journals_stay: bool,
}

/// The state of a queue, for gauges.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observation {
    /// Unread messages ([`inspect::Report::lag`]); where Redis does not know their number, 1 if there are any.
    pub unread: u64,
    /// Deliveries that hosts hold, parked ones included.
    pub pending: u64,
    /// For how long the oldest of them has been in the queue.
    pub oldest_pending: Option<Duration>,
    /// Deliveries of hosts that were not seen for `min_idle`: no other host has taken them yet.
    pub orphans: u64,
    /// Parked deliveries and messages published for later.
    pub parked: u64,
    /// Messages that their handler has held, and that are not settled; 0 where that is not known.
    pub on_hold: u64,
    /// Entries in the dead-letter queue.
    pub dead_letters: Option<u64>,
    /// Messages in outboxes, on their way to other slots.
    pub outbox: u64,
    /// How long ago the oldest of them was acknowledged.
    pub outbox_oldest: Option<Duration>,
}

/// The keys that had been deleted, and were made again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Repaired {
    /// Nothing was missing.
    Intact,
    /// The group was missing: made again behind the last entry this host saw.
    Group,
    /// The stream was missing: stream and group made again, empty, at `0`.
    Stream,
}

/// The result of [`Queue::repair`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Repair {
    /// What had been missing.
    pub repaired: Repaired,
    /// One reply for each delivery that this host holds: `Done` if it is held in Redis as well,
    /// `Trimmed` if its entry is gone, `Stolen` if another host has it.
    pub held: Vec<Reply>,
}

/// Counters about the server and the connections to it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Contact {
    /// Connections opened, the first ones included.
    pub connections_opened: u64,
    /// How often the server had forgotten a script (`NOSCRIPT`).
    pub scripts_forgotten: u64,
    /// How often a node of a cluster refused a command because another one has the key. Each was sent there.
    pub redirections: u64,
    /// How often a subscription was interrupted: messages published meanwhile are lost.
    pub gaps: u64,
    /// For how long in all, until it was there again.
    pub gap: Duration,
    /// Messages dropped because the buffer was full.
    pub buffer_dropped: u64,
}

/// The promise of a queue about a message that it has handed out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Guarantee {
    /// The queue keeps the message until it is settled, no matter which host dies.
    AtLeastOnce,
    /// The queue forgets the message. It cannot be taken back, parked or moved elsewhere: a message
    /// that is not acknowledged, or whose host dies, is lost.
    AtMostOnce,
}

/// A name for a host in a queue, unique to this start, that begins so.
fn unique_name(base: &str) -> String {
    let base = if base.is_empty() { "hostler" } else { base };
    format!("{base}-{:08x}", fastrand::u32(..))
}

/// The contract of every queue kind.
///
/// Methods take `&self` and may run at the same time. None of them retries: after an [`Error`] the
/// caller does not know what happened, and asks again. Every method that changes something may be
/// repeated after a lost reply. An answer of Redis *about one delivery* is a [`Reply`], never an
/// `Error`.
///
/// Each method names its crash windows: "dies here" means this host, anywhere between sending the
/// command and acting on the reply.
#[async_trait]
pub trait Queue: std::fmt::Debug + Send + Sync + 'static {
    /// The name of this host in the queue: unique to this start.
    fn consumer(&self) -> &str;

    /// The promise of this queue. At-most-once queues differ as follows: no delivery is ever due or an
    /// orphan, a record or renewal changes nothing, a settlement is done at once, and nothing is
    /// parked, left or dead-lettered.
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    /// The time of day that messages expire by: the server's.
    fn time(&self) -> Arc<ServerTime> {
        Arc::default()
    }

    /// Take nothing more from the server: the host drains. Messages taken before are still fetched,
    /// until a fetch brings nothing. A queue that takes deliveries back does nothing here: the host
    /// stops fetching from it.
    fn stop_taking(&self) {}

    /// Wait up to `wait` for unread messages, and claim at most `want` of them; fewer where they are large.
    /// Claims nothing while this host holds enough bytes.
    ///
    /// One task calls it at a time, and waits for its end. The claims of a cancelled fetch are found
    /// later, as own deliveries that this host does not know. Dies here: pending under this host's name,
    /// found as orphans.
    async fn fetch(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error>;

    /// Use these rules from now on. An at-most-once queue has none.
    fn adopt(&self, _rules: Rules) {}

    /// Make a waiting [`Queue::fetch`] return early (with what it has).
    async fn interrupt(&self) -> Result<(), Error>;

    /// Claim parked deliveries that are due, at most `max`, and say when the next one is. Also make
    /// messages of those that were published for later and are due, or claim them.
    ///
    /// Dies here: owned by this host with the count kept, found as orphans.
    async fn take_due(&self, max: usize) -> Result<Taken, Error>;

    /// What [`Queue::take_due`] would find, if that is known without asking: nothing, and when the first is due.
    fn known_due(&self) -> Option<Taken> {
        None
    }

    /// Claim orphans, at most `max`: deliveries of other consumers idle for `min_idle`, and own
    /// ones idle for half of it that `holds` does not know. Also parked ones without a due time.
    async fn take_orphans(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error>;

    /// Ask whether these may start, in this order, by the limits of the queue, and say which permits this host has.
    /// `may_reserve`: a message whose key is used up may reserve its start.
    ///
    /// Dies here: the starts are lost for the others, until the rate allows the next ones; and the permits, until their lease has
    /// ended.
    async fn admit(
        &self,
        starts: &[Start],
        _permits: Permits,
        _may_reserve: bool,
    ) -> Result<Vec<Admitted>, Error> {
        Ok(vec![Admitted::GRANTED; starts.len()])
    }

    /// This host has let go of a delivery that it may still have: [`Queue::take_orphans`] looks for it among the own ones.
    fn let_go(&self) {}

    /// The journal of a delivery. Fails on a queue that has none, here and below.
    async fn journal(&self, _claim: &Claim) -> Result<Journal, Error> {
        Err(journal::none())
    }

    /// Write an intent into the journal of a delivery that this host owns, or find the record that has its number. May be
    /// repeated: it finds its own intent. `is_shared`: an earlier attempt wrote it, and from now on only an answer takes its
    /// place.
    async fn intend(
        &self,
        _claim: &Claim,
        _number: u32,
        _intent: &[u8],
        _is_shared: bool,
    ) -> Result<Written, Error> {
        Err(journal::none())
    }

    /// Add to the number of a key in the slot of the queue, and record the sum in the journal of a delivery that this host
    /// owns; or find the record that has the number. May be repeated: it finds its own record.
    async fn increment(&self, _claim: &Claim, _increment: Increment<'_>) -> Result<Written, Error> {
        Err(journal::none())
    }

    /// Write the answer in the place of an intent (`None`: remove the intent), whichever host owns the delivery by now. May
    /// be repeated.
    async fn answer(
        &self,
        _claim: &Claim,
        _number: u32,
        _intent: &[u8],
        _answer: Option<&[u8]>,
    ) -> Result<Written, Error> {
        Err(journal::none())
    }

    /// Wait until an operator cancels messages that hosts have: these are off the queue, whoever has them.
    async fn cancelled(&self) -> Vec<DeliveryId> {
        std::future::pending().await
    }

    /// Find the claims whose message was handled already, if duplicates are looked for. Where Redis does
    /// not answer nothing is found: the acknowledgement looks again.
    async fn find_duplicates(&self, _claims: &mut [Claim]) {}

    /// Whether duplicates are looked for.
    fn finds_duplicates(&self) -> bool {
        false
    }

    /// Whether a delivery that has not started can go back.
    fn takes_back(&self) -> bool {
        true
    }

    /// Record starts: one reply for each. Renews the lease as well. Several calls may be under way, about different
    /// deliveries.
    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error>;

    /// Take deliveries off the queue, in one round trip, without an owner check: the handler has
    /// finished them, no matter which host holds them now.
    async fn acknowledge(&self, claims: &[Arc<Claim>]) -> Result<(), Error>;

    /// The same for deliveries that may have come to other hosts by now: their next owner must not take them for
    /// lost.
    async fn acknowledge_late(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        self.acknowledge(claims).await
    }

    /// Take back deliveries that Redis did not find although this host has surely held them all the time, with
    /// these native counts: the consumer of this host was deleted. One reply for each: `Done` if it is
    /// held again, `Gone` if it is settled, `Trimmed` if its entry is gone, `Stolen` if another host has it.
    async fn bring_back(&self, held: &[(Arc<Claim>, u32)]) -> Result<Vec<Reply>, Error> {
        Ok(vec![Reply::Gone; held.len()])
    }

    /// Carry out settlements: one reply for each. Several calls may be under way, about different deliveries; all but one
    /// only dead-letter.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error>;

    /// Renew leases: one reply for each (`Done`, `Gone`, `Trimmed` or `Stolen`).
    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error>;

    /// Housekeeping that may be late: retention, the length limit, consumers not seen for long.
    async fn maintain(&self) -> Result<Maintenance, Error>;

    /// After [`Class::Missing`](crate::redis::Class::Missing): make the missing keys again, and take
    /// back the deliveries that this host holds (with these native counts) whose entry is still there.
    async fn repair(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error>;

    /// The messages that wait, for `--until-empty`.
    async fn backlog(&self) -> Result<Backlog, Error>;

    /// After a failure: whether the queue is there and its server takes writes to it, within a short
    /// deadline. It changes nothing. A missing right is not a failure here: the command that needs it fails by
    /// itself.
    async fn probe(&self) -> Result<(), Error>;

    /// Counters about the server and the connections to it.
    fn contact(&self) -> Contact;

    /// The state of the queue, for metrics; `None` if the kind has no state. It may need rights that
    /// serving does not need: its failure does not mean that the queue fails.
    async fn observe(&self) -> Result<Option<Observation>, Error> {
        Ok(None)
    }

    /// The host drains, and settles nothing more: relay now what waits in outboxes.
    fn hurry(&self) {}

    /// What this host has relayed, and what is left in outboxes.
    fn relayed(&self) -> Relayed {
        Relayed::default()
    }

    /// This host leaves: remove its name, if nothing is pending under it.
    async fn leave(&self) -> Result<(), Error>;
}
