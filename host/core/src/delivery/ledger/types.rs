//! Events that go into the ledger, and actions that come out.

use std::sync::Arc;
use std::time::Duration;

use super::{Admission, Limited, Permits};
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::Outcome;
use crate::delivery::policy::{Policy, Reason, Rejection};
use crate::delivery::rules::Rule;

/// Monotonic time since some fixed moment of this process.
pub type Time = Duration;

/// One holding of a delivery. If the same id is claimed again, the new holding has another
/// generation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Key {
    /// Which delivery.
    pub id: DeliveryId,
    /// Which holding of it, counted over this process.
    pub generation: u64,
}

/// How a delivery came to this host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// Handed out for the first time: its native count is 1, and stands for its first start.
    Fresh,
    /// Its delay was over, or a host had handed it back: the native count is kept.
    Returned,
    /// Its host died (or its reply was lost on the way to us): the native count is kept.
    Orphan {
        /// For how long no host had renewed its lease.
        idle: Duration,
    },
}

/// Why no handler may see a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TurnedAway {
    /// It is given up for this reason, with a bounded text for people.
    Rejected(Reason, String),
    /// It was replayed for another consumer group of its stream: acknowledged unrun.
    OtherGroup,
    /// A message with its id was handled already: acknowledged unrun.
    Duplicate,
}

/// A delivery as it is claimed. `J` is the caller's own value.
#[derive(Clone, Debug)]
pub struct Delivery<J> {
    /// Which delivery.
    pub id: DeliveryId,
    /// How it came here.
    pub origin: Origin,
    /// Starts charged before it came to this queue.
    pub header: u32,
    /// The count that Redis keeps.
    pub native: u32,
    /// How many of its starts ended with a hold, as Redis keeps it.
    pub held: u32,
    /// Why the gate turned it away, if it did.
    pub turned_away: Option<TurnedAway>,
    /// A producer waits for it, so its acknowledgement is checked ([`Settings::checked_acks`]).
    pub is_awaited: bool,
    /// The caller's own value.
    pub job: J,
}

/// What Redis answered about a settlement, a record or a lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// Done, now or by an earlier try whose reply was lost.
    Done,
    /// The delivery is no longer pending: it was settled.
    Gone,
    /// The delivery is pending, but its entry was trimmed or deleted: it is lost.
    Trimmed,
    /// Another host owns it now, or its count is not the one that this host left.
    Stolen,
    /// A message with its id was handled since the claim: its start was not recorded, and the delivery is as it was.
    Duplicate,
    /// A value that the attempt read has changed since: nothing was written, and the delivery is as it was.
    Changed,
    /// What the attempt publishes or writes does not fit: a key of it has another type, for this reason.
    /// Nothing was written, and the delivery is as it was.
    Unfit(String),
    /// Redis refused to write (wrong type, no right, out of memory, dead-letter queue full). The
    /// delivery is as it was; the host tries again later.
    Refused(String),
}

/// How a delivery leaves this host, other than by a plain acknowledgement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SettleAction {
    /// Take it off the queue: handled. The effects of its attempt happen with it.
    Acknowledge,
    /// Keep it in Redis, held by no host, until it is due.
    Park {
        /// The native count it keeps.
        keep: u32,
        /// How long until it is due, by the server's clock.
        after: Duration,
    },
    /// The same for an attempt that ended with a hold: Redis counts the hold, and the start is not charged.
    Hold {
        /// The native count it keeps.
        keep: u32,
        /// How long until it is due, by the server's clock.
        after: Duration,
        /// The number of the attempt: the next start has it, too.
        attempt: u32,
    },
    /// It did not start here: park it, with the native count from before.
    HandBack {
        /// The native count it keeps.
        keep: u32,
        /// How long until it is due, by the server's clock: zero, or its limits have reserved its start for then.
        after: Duration,
    },
    /// A suspect that must run isolated, on drain: leave it under this host's name, idle for
    /// `min_idle`, so that the next orphan scan of another host finds it.
    Leave {
        /// The native count it keeps: a record whose start never came is taken back.
        keep: u32,
    },
    /// Copy it to the dead-letter queue, then take it off this queue.
    DeadLetter(Rejection),
    /// Take it off the queue: given up.
    Discard(Rejection),
}

impl SettleAction {
    /// For an action that parks the delivery: the native count it keeps, and when it is due.
    pub fn parking(&self) -> Option<(u32, Duration)> {
        match *self {
            Self::Park { keep, after }
            | Self::Hold { keep, after, .. }
            | Self::HandBack { keep, after } => Some((keep, after)),
            Self::Acknowledge | Self::Leave { .. } | Self::DeadLetter(_) | Self::Discard(_) => None,
        }
    }

    /// The same action for a delivery with this native count, after a try without an answer.
    ///
    /// That try may have sent the delivery away. Another host may have started it since, and this host
    /// may own it again, with the very count that the settlement names. So no later try takes a charge
    /// back, and none counts a hold.
    pub fn again(self, count: u32) -> Self {
        match self {
            Self::Hold { .. } if !Rule::UnansweredHoldsAreCharged.holds() => self,
            Self::Hold { keep, after, .. } => Self::Park { keep, after },
            Self::Park { keep, after } => Self::Park {
                keep: keep.max(count),
                after,
            },
            Self::HandBack { keep, after } => Self::HandBack {
                keep: keep.max(count),
                after,
            },
            Self::Leave { keep } => Self::Leave {
                keep: keep.max(count),
            },
            Self::Acknowledge | Self::DeadLetter(_) | Self::Discard(_) => self,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event<J> {
    /// A part of a fetch has come.
    Fetched {
        /// When it was sent. No lease is older.
        leased: Time,
        /// What it brought; empty if it failed.
        deliveries: Vec<Delivery<J>>,
        /// Whether another part comes. All parts together are what was asked for, at most.
        more: bool,
    },
    /// A request for due deliveries has ended.
    DueTaken {
        /// When it was sent.
        leased: Time,
        /// What it brought.
        deliveries: Vec<Delivery<J>>,
        /// How long until the next one is due, if one is known.
        next: Option<Duration>,
    },
    /// A request for orphans has ended.
    OrphansTaken {
        /// When it was sent.
        leased: Time,
        /// What it brought.
        deliveries: Vec<Delivery<J>>,
    },
    /// A slot of the executor has this delivery, and asks whether it may start it.
    SlotReady(Key),
    /// A record was written, or not.
    Recorded {
        /// Whose.
        key: Key,
        /// When it was sent: a new lease.
        leased: Time,
        /// What Redis answered.
        reply: Reply,
    },
    /// A slot was allowed to start it, and did not: the lease was too old by then.
    Unstarted(Key),
    /// The executor took back a delivery before it started.
    Revoked(Key),
    /// An operator has cancelled these: they are off the queue.
    Cancelled(Vec<DeliveryId>),
    /// An attempt was cut off ([`Action::Cut`]): it has no outcome.
    CutOff(Key),
    /// The gate turned it away just before its start.
    TurnedAway {
        /// Which.
        key: Key,
        /// Why.
        reason: Reason,
        /// Text for people, bounded.
        detail: String,
    },
    /// An attempt has ended.
    Finished {
        /// Whose.
        key: Key,
        /// What it produced.
        outcome: Outcome,
        /// What the handler wrote about its failure, if it wants the message again: bounded.
        told: Option<Arc<str>>,
        /// The handler has asked for this hold: a `nack-requeue` is not charged, and comes again after it.
        hold: Option<Duration>,
        /// Something happens with its acknowledgement, which is checked then ([`Settings::checked_acks`]).
        acts: bool,
        /// Whether it ran on the current version. An attempt on another version, such as a canary,
        /// does not show whether the current one can be run.
        is_current: bool,
        /// A random number in `0.0..1.0`, for the backoff.
        jitter: f64,
    },
    /// Acknowledgements are confirmed.
    Acknowledged(Vec<Key>),
    /// A settlement is confirmed, or not.
    Settled(Key, Reply),
    /// A try of a settlement had no answer, and may have been carried out. The caller repeats it
    /// ([`SettleAction::again`]); [`Event::Settled`] tells how the repeat ends.
    Unanswered(Key),
    /// Leases were renewed, or found lost.
    Renewed {
        /// When the renewal was sent.
        leased: Time,
        /// Each with the answer of Redis.
        replies: Vec<(Key, Reply)>,
    },
    /// Redis is away: the host sends no new requests.
    Offline,
    /// Redis is back.
    Online,
    /// A missing group was made again. Each delivery of this host is pending there again, or not.
    Readopted {
        /// When the request was sent.
        leased: Time,
        /// Each with the answer of Redis.
        replies: Vec<(Key, Reply)>,
    },
    /// Deliveries that Redis had not found are held again, or not.
    BroughtBack {
        /// When the request was sent.
        leased: Time,
        /// Each with the answer of Redis.
        replies: Vec<(Key, Reply)>,
    },
    /// The handler faults on everything: stop.
    Broken {
        /// The evidence, for people.
        detail: String,
    },
    /// Another version of the handler runs from now on.
    HandlerChanged,
    /// One call takes this many messages from now on.
    BatchChanged(usize),
    /// Several messages made the host panic: the host starts no more.
    Panicked {
        /// Text for people, bounded.
        detail: String,
    },
    /// The operator changed the rules.
    PolicyChanged(Box<Policy>),
    /// The operator paused the queue (`true`), or resumed it.
    Paused(bool),
    /// Starts are limited like this from now on.
    Limited(Limited),
    /// The answer to [`Action::Admit`].
    Admitted {
        /// When the request was sent.
        sent: Time,
        /// One for each delivery, in the order of the request; `None`: it failed.
        replies: Option<Vec<Admission>>,
    },
    /// Stop: hand back deliveries that have not started, and wait for the others.
    Drain,
}

/// Something that the caller must do.
#[derive(Clone, Debug)]
pub enum Action<J> {
    /// Read new messages; answered by [`Event::Fetched`].
    Fetch {
        /// At most this many.
        want: usize,
        /// Whether it may wait for them.
        wait: bool,
    },
    /// Make a fetch return: it waits no more, and its next part is the last one.
    Interrupt,
    /// Take what is due; answered by [`Event::DueTaken`].
    TakeDue {
        /// At most this many.
        max: usize,
    },
    /// Take orphans; answered by [`Event::OrphansTaken`].
    TakeOrphans {
        /// At most this many.
        max: usize,
    },
    /// Renew these leases; answered by [`Event::Renewed`].
    Renew(Vec<Key>),
    /// Ask whether these may start, by their limits, and say which permits this host has; answered by [`Event::Admitted`].
    Admit {
        /// In the order in which they start; there may be none.
        keys: Vec<Key>,
        /// The permits of other deliveries.
        permits: Permits,
    },
    /// Give it to the executor.
    Release {
        /// Which.
        key: Key,
        /// The attempt it will be, if the slot may start it without asking first.
        attempt: Option<u32>,
        /// When its lease was last confirmed.
        leased: Time,
    },
    /// Record a start; answered by [`Event::Recorded`].
    Record {
        /// Which.
        key: Key,
        /// The native count it must have.
        expect: u32,
        /// The native count to write.
        write: u32,
    },
    /// The slot that asked may start it.
    Go {
        /// Which.
        key: Key,
        /// Which start this is.
        attempt: u32,
    },
    /// The slot that asked must let it go.
    Deny(Key),
    /// Take it back from the executor, if it has not started; answered by [`Event::Revoked`] then.
    Revoke(Key),
    /// Its message is cancelled: cut its attempt off, if it runs; answered by [`Event::CutOff`] then, unless it has ended.
    Cut(Key),
    /// Take it off the queue; answered by [`Event::Acknowledged`].
    Acknowledge(Key),
    /// Settle it; answered by [`Event::Settled`].
    Settle {
        /// Which.
        key: Key,
        /// The native count it must have.
        count: u32,
        /// How it leaves this host.
        action: SettleAction,
    },
    /// Redis does not find it, and no other host can have settled it: take it back. Answered by
    /// [`Event::BroughtBack`].
    BringBack {
        /// Which.
        key: Key,
        /// The native count that it has.
        count: u32,
    },
    /// It is no longer held.
    Closed {
        /// Which.
        key: Key,
        /// The caller's own value, given back.
        job: J,
        /// Why.
        how: Closed,
    },
    /// Something to count or to log.
    Note(Note),
}

/// Why a holding has closed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Closed {
    /// Off the queue: handled.
    Acknowledged,
    /// Settled as this.
    Settled(SettleAction),
    /// Claimed again: another holding of the same delivery settles it.
    Superseded,
    /// It was settled elsewhere.
    Gone,
    /// Its entry was trimmed while it was pending: lost.
    Trimmed,
    /// Another host has it.
    Stolen,
    /// An operator has cancelled its message.
    Cancelled,
}

/// Something to count or to log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Note {
    /// This many orphans were taken.
    OrphansTaken(usize),
    /// A message was requeued without delay: it stays with this host.
    RequeuedHere,
    /// A start was recorded.
    Recorded,
    /// A value that an attempt read had changed before its acknowledgement: it has had no effects, and the
    /// message runs again.
    Changed {
        /// Whose.
        key: Key,
        /// It has changed so often that this counts as a nack.
        gives_up: bool,
    },
    /// What an attempt publishes or writes does not fit: it has had no effects, and this counts as a nack.
    Unfit {
        /// Whose.
        key: Key,
        /// Which key, and why.
        cause: String,
    },
    /// A settlement was refused; it is tried again after this long.
    SettlementRefused {
        /// Whose.
        key: Key,
        /// The error of Redis.
        cause: String,
        /// Whether a dead letter was to be written.
        is_dead_letter: bool,
        /// When it is tried again.
        again: Duration,
    },
    /// A running attempt lost its lease.
    LeaseLost(Key),
    /// Leases were confirmed.
    LeasesRenewed(usize),
    /// A suspect begins its isolated run.
    IsolatedRunBegan(Key),
    /// An isolated run has ended; intake had paused for this long.
    IsolatedRunEnded {
        /// Whose.
        key: Key,
        /// From the pause to the settlement.
        took: Duration,
    },
    /// The handler cannot be run: intake stops for this long, and held deliveries go back.
    Halted {
        /// Why.
        cause: HaltCause,
        /// The evidence, for people.
        detail: String,
        /// When one message is tried again.
        again: Duration,
    },
    /// The handler can be run again.
    Resumed,
}

impl Note {
    /// The delivery that the note is about.
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::SettlementRefused { key, .. }
            | Self::Changed { key, .. }
            | Self::Unfit { key, .. }
            | Self::LeaseLost(key)
            | Self::IsolatedRunBegan(key)
            | Self::IsolatedRunEnded { key, .. } => Some(*key),
            _ => None,
        }
    }
}

/// Why a handler cannot be run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HaltCause {
    /// No instance of it can be made.
    Instance,
    /// It faults on everything.
    Broken,
    /// Messages make the host panic, because of a bug in hostler. Nothing is tried until another
    /// version of the handler runs, or another host.
    Panics,
}

/// The settings of a ledger.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The operator's rules.
    pub policy: Policy,
    /// The operator has paused the queue.
    pub paused: bool,
    /// Messages that have not started can go back to the queue. If not, the host runs them, draining or not.
    pub takes_back: bool,
    /// Attempts at the same time.
    pub concurrency: usize,
    /// All attempts may have effects: an acknowledgement is a settlement that checks owner and count, so that a
    /// host that lost the delivery has no effects, and does not void those of the next owner.
    pub checked_acks: bool,
    /// The most messages of one call. The host holds that many deliveries for each slot.
    pub batch: usize,
    /// The most deliveries that the host reads ahead.
    pub prefetch_max: usize,
    /// How much work, at the measured rate, the host reads ahead, and records ahead. When attempts become slow,
    /// messages beyond twice of that go back.
    pub ahead: Duration,
    /// How long a lease lasts without renewal.
    pub min_idle: Duration,
    /// How often the host looks for orphans.
    pub orphan_scan: Duration,
    /// How often the host looks for due deliveries, at the least.
    pub due_scan: Duration,
}
