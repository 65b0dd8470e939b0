//! The common part of the kinds that keep a delivery in Redis until it is settled (at least once). A
//! kind plugs in its keys and scripts: [`AtLeastOnce`].
//!
//! - `calls`: calls of scripts about many deliveries.
//! - `dead_letters`: the copy in the dead-letter queue.
//! - `overflow`: the length limit.
//! - `terms`: the terms that all hosts of the queue use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redis::Cmd;

use crate::delivery::ledger::Permits;
use crate::delivery::policy::Rejection;
use crate::delivery::reply;
use crate::outgoing::Outlets;
use crate::outgoing::dedup::{Dedup, Marks};
use crate::outgoing::effects::{self, Source};
use crate::outgoing::outbox::{self, Outboxes};
use crate::queue::byte_bounds::ByteBounds;
use crate::queue::cancels::Cancels;
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::due::Due;
use crate::queue::interruption::Interruption;
use crate::queue::limits::{self, Admitted, Start};
use crate::queue::rules::ActiveRules;
use crate::queue::{
    Claim, Contact, Maintenance, Observation, Reply, Rules, SettleAction, Settlement, Sweep,
    unique_name,
};
use crate::redis::connection::{Connector, Link};
use crate::redis::script::Script;
use crate::redis::{Error, ServerTime};
use crate::wire::{Raw, dead_letter::Context, list};

mod dead_letters;
mod overflow;
mod terms;

pub(super) use dead_letters::Destination;
pub(super) use terms::Terms;

use crate::calls::{Replies, complete};

/// How long answers to producers are kept by default.
pub(super) const REPLY_KEEP: Duration = Duration::from_secs(5 * 60);

/// The state that each of these kinds has.
#[derive(Debug)]
pub(super) struct Base {
    /// The name of this host in the queue.
    pub(super) consumer: String,
    /// For everything but fetching.
    pub(super) commands: Link,
    /// For fetching only, which blocks.
    pub(super) fetches: Link,
    pub(super) interruption: Interruption,
    pub(super) bounds: ByteBounds,
    pub(super) rules: ActiveRules,
    pub(super) time: Arc<ServerTime>,
    pub(super) terms: Terms,
    /// Where handlers publish.
    outlets: Outlets,
    /// The way to destinations in other slots.
    pub(super) outboxes: Outboxes,
    /// How duplicates are found, if they are looked for.
    dedup: Option<Dedup>,
    /// How long answers to producers are kept.
    reply_keep: Duration,
    pub(super) acts: Acts,
    /// Looks for what is due.
    pub(super) due: Due,
    pub(super) cancels: Cancels,
    counts: dead_letters::Counts,
    overflow: overflow::Overflow,
    /// Where the next orphan scan begins.
    rotation: AtomicUsize,
}

/// Numbers the requests that acknowledge what handlers have handled. A repeat keeps the number: Redis notes which of its
/// deliveries were acknowledged, by every try. There is one such request at a time.
#[derive(Debug, Default)]
pub(super) struct Acts {
    number: AtomicU64,
    is_answered: AtomicBool,
}

impl Acts {
    /// A request begins, or is repeated.
    fn begin(&self) {
        if self.is_answered.swap(false, Ordering::Relaxed) {
            self.number.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every part of the request is answered.
    fn end(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// The number of the request.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

impl Base {
    /// `key`: the key of the queue. `terms`: the terms of the host of this name.
    pub(super) fn new(
        (connector, key): (&Connector, &str),
        consumer: &str,
        held_max: usize,
        rules: Rules,
        (outlets, dedup, reply_keep): (Outlets, Option<Dedup>, Duration),
        cancelled: String,
        terms: impl FnOnce(&str) -> Terms,
    ) -> Self {
        let consumer = unique_name(consumer);
        Self {
            terms: terms(&consumer),
            consumer,
            commands: connector.link("commands").of(key),
            fetches: connector.link("fetch").of(key),
            interruption: Interruption::default(),
            bounds: ByteBounds::new(held_max),
            rules: ActiveRules::new(rules),
            time: Arc::default(),
            outlets,
            outboxes: Outboxes::default(),
            dedup,
            reply_keep,
            acts: Acts::default(),
            due: Due::default(),
            cancels: Cancels::new(cancelled),
            counts: dead_letters::Counts::default(),
            overflow: overflow::Overflow::default(),
            rotation: AtomicUsize::new(0),
        }
    }

    /// Open the outboxes of this queue, and begin to relay them.
    pub(super) async fn open_outboxes(
        &mut self,
        connector: &Connector,
        key: &str,
        rules: outbox::Rules,
    ) -> Result<(), Error> {
        let (link, outlets) = (&self.commands, &self.outlets);
        self.outboxes = Outboxes::open(connector, link, key, outlets, rules).await?;
        Ok(())
    }

    /// What was seen of the queue, with its outboxes.
    pub(super) async fn observed(&self, seen: Observation) -> Result<Observation, Error> {
        let reports = self.outboxes.report(&self.commands).await?;
        let oldest = reports.iter().filter_map(|report| report.oldest_ms).max();
        Ok(Observation {
            outbox: reports.iter().map(|report| report.length).sum(),
            outbox_oldest: oldest.map(Duration::from_millis),
            ..seen
        })
    }

    /// Ask whether these may start.
    pub(super) async fn admit(
        &self,
        starts: &[Start],
        permits: Permits,
        may_reserve: bool,
    ) -> Result<Vec<Admitted>, Error> {
        let limits = Arc::clone(&self.rules.now().limits);
        let from = (&self.commands, &*self.consumer);
        limits::admit(from, &limits, starts, permits, may_reserve).await
    }

    /// Whether starts are limited, for scripts.
    pub(super) fn limits_starts(&self) -> u8 {
        u8::from(!self.rules.now().limits.is_empty())
    }

    pub(super) fn finds_duplicates(&self) -> bool {
        self.dedup.is_some()
    }

    pub(super) fn contact(&self) -> Contact {
        Contact {
            connections_opened: self.commands.opened() + self.fetches.opened(),
            scripts_forgotten: self.commands.scripts_forgotten(),
            redirections: self.commands.redirections() + self.fetches.redirections(),
            ..Contact::default()
        }
    }

    pub(super) async fn interrupt(&self) -> Result<(), Error> {
        let (commands, fetches) = (&self.commands, &self.fetches);
        self.interruption.unblock(commands, fetches).await
    }

    /// Begin every orphan scan with another host, so that none waits behind the others for ever.
    pub(super) fn rotate<T>(&self, hosts: &mut [T]) {
        if !hosts.is_empty() {
            let first = self.rotation.fetch_add(1, Ordering::Relaxed) % hosts.len();
            hosts.rotate_left(first);
        }
    }
}

/// The differences between the kinds.
pub(super) trait AtLeastOnce {
    /// The script that dead-letters deliveries.
    const DEAD_LETTER: &'static Script;
    /// The script that acknowledges deliveries with their effects, and the same for deliveries without.
    const ACKNOWLEDGE: (&'static Script, &'static Script);

    fn base(&self) -> &Base;

    fn key(&self) -> &str;

    fn group(&self) -> Option<&str> {
        None
    }

    /// The id of a delivery in its dead letter.
    fn source_id(&self, claim: &Claim) -> String;

    /// The same error; a missing stream or group has its own.
    fn about(&self, error: Error) -> Error {
        error
    }

    /// Starts charged to the message before this hand-out.
    fn starts_before(&self, claim: &Claim) -> u32;

    /// Park the deliveries at these places, or leave them to other hosts.
    async fn send_away(
        &self,
        settlements: &[Settlement],
        places: &[usize],
        replies: &mut Replies,
    ) -> Result<(), Error>;

    /// Take the deliveries at these places off the queue.
    async fn discard(
        &self,
        settlements: &[Settlement],
        places: &[usize],
        replies: &mut Replies,
    ) -> Result<(), Error>;

    /// A call of a script that acknowledges deliveries with their effects: these keys follow its own.
    /// Returns the number of its own keys.
    fn acknowledge_call(&self, script: &'static Script, keys: &[&str]) -> (Cmd, usize);

    /// Add what the kind needs behind the arguments about marks.
    fn acknowledge_arguments(&self, _call: &mut Cmd) {}

    /// Add a delivery to such a call; its mark and its effects follow.
    fn acknowledge_one(&self, settlement: &Settlement, call: &mut Cmd);

    /// The sets of the marks of handled messages, if duplicates are looked for.
    fn marks(&self) -> Option<Marks> {
        let base = self.base();
        let dedup = base.dedup.as_ref()?;
        Some(dedup.marks(self.key(), self.group(), base.time.now_ms()))
    }

    /// Where a dead letter goes, and the copy that is written there. `records`: as [`Self::records`] says.
    fn copy_of(
        &self,
        claim: &Claim,
        target: &DeadLetterQueue,
        context: &Context<'_>,
        records: &BTreeMap<u32, Bytes>,
    ) -> Result<(Destination, Raw), list::Error>;

    /// A call of the script that moves deliveries to this dead-letter queue: its bound and the deliveries follow.
    fn dead_letter_call(&self, key: &str) -> Cmd;

    /// Add a delivery to such a call: of a stream, what stands behind its id. The answer to its producer and its copy follow.
    fn dead_letter_one(&self, settlement: &Settlement, call: &mut Cmd);

    /// The call that takes a delivery off the queue behind its copy, in one transaction with it, and its script; the answer to
    /// its producer follows. `None` if the kind has copies of one value only.
    fn discard_copied_call(
        &self,
        _settlement: &Settlement,
        _key: &str,
    ) -> Option<(&'static Script, Cmd)> {
        None
    }

    /// The records of a delivery, for the copy that is its dead letter, if no script writes them there.
    async fn records(&self, _claim: &Claim) -> Result<BTreeMap<u32, Bytes>, Error> {
        Ok(BTreeMap::new())
    }

    /// The field with the records of a delivery, for a copy that no script writes; `None` = it has no journal.
    async fn journal_field(&self, _claim: &Claim) -> Result<Option<(Bytes, Bytes)>, Error> {
        Ok(None)
    }

    /// Whether this host holds a delivery, and may remove it after a copy to another slot. `trimmed`:
    /// the dead-letter queue, if it has a bound. `is_wide`: a transaction writes the copy; its right is
    /// asked for.
    async fn holds(
        &self,
        settlement: &Settlement,
        trimmed: Option<&str>,
        is_wide: bool,
    ) -> Result<Reply, Error>;

    /// Before the length limit claims something: `Gone` if nothing is over it, `Refused` if the dead
    /// letters cannot be written, else `Done`.
    async fn check_overflow(
        &self,
        _length: u64,
        _target: Option<&DeadLetterQueue>,
    ) -> Result<Reply, Error> {
        Ok(Reply::Done)
    }

    /// Claim the oldest waiting messages over a length, as [`Self::check_overflow`] has found them, at most `want`.
    /// Also says how many more there are; 0 = none.
    async fn claim_over(&self, length: u64, want: usize) -> Result<(Vec<Claim>, u64), Error>;

    /// The kind's own housekeeping.
    async fn keep_tidy(&self, done: &mut Maintenance) -> Result<(), Error>;
}

/// [`Queue::settle`](crate::queue::Queue::settle).
pub(super) async fn settle<Q: AtLeastOnce>(
    queue: &Q,
    settlements: &[Settlement],
) -> Result<Vec<Reply>, Error> {
    let mut replies: Replies = vec![None; settlements.len()];
    let (mut done, mut away, mut discarded) = (Vec::new(), Vec::new(), Vec::new());
    let mut dead: Vec<(usize, &Rejection)> = Vec::new();
    for (place, settlement) in settlements.iter().enumerate() {
        match &settlement.action {
            SettleAction::Acknowledge => done.push(place),
            SettleAction::Park { .. }
            | SettleAction::Hold { .. }
            | SettleAction::HandBack { .. }
            | SettleAction::Leave { .. } => away.push(place),
            SettleAction::Discard(_) if is_awaited(settlement) => done.push(place),
            SettleAction::Discard(_) => discarded.push(place),
            SettleAction::DeadLetter(rejection) => dead.push((place, rejection)),
        }
    }
    dead.sort_unstable_by_key(|(place, _)| settlements[*place].claim.id);
    let acknowledged = acknowledge(queue, settlements, &done, &mut replies);
    acknowledged.await.map_err(|error| queue.about(error))?;
    queue.send_away(settlements, &away, &mut replies).await?;
    queue.discard(settlements, &discarded, &mut replies).await?;
    dead_letters::write(queue, settlements, &dead, &mut replies).await?;
    complete(Q::DEAD_LETTER, replies)
}

/// Whether the producer of a message waits for an answer.
fn is_awaited(settlement: &Settlement) -> bool {
    reply::inbox(&settlement.claim.message.headers).is_some()
}

/// Take a delivery off the queue whose dead letter is written, and answer to its producer.
async fn remove<Q: AtLeastOnce>(queue: &Q, settlement: &Settlement) -> Result<Reply, Error> {
    let (mut replies, settlement) = (vec![None], std::slice::from_ref(settlement));
    match is_awaited(&settlement[0]) {
        true => acknowledge(queue, settlement, &[0], &mut replies).await?,
        false => queue.discard(settlement, &[0], &mut replies).await?,
    }
    Ok(complete(Q::DEAD_LETTER, replies)?.remove(0))
}

/// Where the deliveries of a queue act, and where its producers are answered.
fn source_of<Q: AtLeastOnce>(queue: &Q) -> Source<'_> {
    let base = queue.base();
    Source {
        outlets: &base.outlets,
        outboxes: Some(&base.outboxes),
        key: queue.key(),
        group: queue.group(),
        inboxes: Some((base.reply_keep, base.time.now_ms())),
    }
}

/// The answer to the producer of a message, as a script takes it; empty = none.
fn answer_of<Q: AtLeastOnce>(queue: &Q, settlement: &Settlement) -> Bytes {
    match is_awaited(settlement) {
        true => source_of(queue).answer(settlement).unwrap_or_default(),
        false => Bytes::new(),
    }
}

/// Deliveries that housekeeping has claimed and not settled, with their native counts. The ledger does
/// not know them.
pub(super) fn unsettled<Q: AtLeastOnce>(queue: &Q) -> Vec<(Arc<Claim>, u32)> {
    queue.base().overflow.unsettled()
}

/// Take deliveries off the queue with their effects and the answers to their producers; the messages of those that a handler
/// acknowledged are marked.
async fn acknowledge<Q: AtLeastOnce>(
    queue: &Q,
    settlements: &[Settlement],
    places: &[usize],
    replies: &mut Replies,
) -> Result<(), Error> {
    if places.is_empty() {
        return Ok(());
    }
    let base = queue.base();
    let source = source_of(queue);
    let marks = queue.marks();
    let (sets, lives) = marks.map_or_else(Default::default, |m| (m.keys, m.expires_ms));
    let most = base.dedup.as_ref().map_or(0, |dedup| dedup.max_ids);
    let calls = effects::Calls {
        link: &base.commands,
        script: Q::ACKNOWLEDGE.0,
        script_without: Q::ACKNOWLEDGE.1,
        between: &sets,
        begin: |script, keys: &[&str]| {
            let (mut call, own) = queue.acknowledge_call(script, keys);
            call.arg(sets.len()).arg(most).arg(lives);
            queue.acknowledge_arguments(&mut call);
            (call, own)
        },
        one: |settlement: &Settlement, call: &mut Cmd| {
            queue.acknowledge_one(settlement, call);
            let handled = base.dedup.as_ref().filter(|_| settlement.effects.is_some());
            let mark = handled.and_then(|dedup| dedup.mark(&settlement.claim.message));
            call.arg(mark.as_ref().map_or(&[][..], |mark| &mark[..]));
        },
        meaning: |settlement: &Settlement, word: &str| {
            match word {
                "marked" => {
                    if let Some(effects) = &settlement.effects {
                        effects.did_not_happen();
                    }
                    &base.counts.duplicates
                }
                "unmarked" => &base.counts.marks_refused,
                _ => return None,
            }
            .fetch_add(1, Ordering::Relaxed);
            Some(Reply::Done)
        },
        about: |error| queue.about(error),
    };
    let effects = || {
        places
            .iter()
            .filter_map(|&place| settlements[place].effects.as_ref())
    };
    // Housekeeping acknowledges what no handler has handled, at the same time. A message with a journal is noted as one
    // with effects is: so each request has a number of its own, or the note would grow.
    let acts = effects().next().is_some();
    if acts {
        base.acts.begin();
    }
    let settled = source.settle(calls, (settlements, places), replies).await;
    // Also after a lost answer.
    effects().for_each(|effects| base.outboxes.wake(effects));
    if acts && settled.is_ok() {
        base.acts.end();
    }
    settled
}

/// Find the claims whose message was handled already. Where Redis does not answer, the acknowledgement
/// finds them.
pub(super) async fn find_duplicates<Q: AtLeastOnce>(queue: &Q, claims: &mut [Claim]) {
    let base = queue.base();
    if claims.is_empty() {
        return;
    }
    if let (Some(dedup), Some(marks)) = (&base.dedup, queue.marks()) {
        let messages = claims
            .iter_mut()
            .map(|claim| (&claim.message, &mut claim.is_duplicate))
            .collect();
        if let Err(error) = dedup.look_up(&base.commands, &marks, messages).await {
            tracing::debug!(%error, "could not look for duplicates");
        }
    }
}

/// [`Queue::maintain`](crate::queue::Queue::maintain).
pub(super) async fn maintain<Q: AtLeastOnce>(queue: &Q) -> Result<Maintenance, Error> {
    let base = queue.base();
    let mut done = base.counts.take();
    let kept = async {
        base.terms.stay_known(&base.commands).await?;
        let (before_ms, steps_back) = (base.time.now_ms(), base.time.steps_back());
        base.time.read(&base.commands).await?;
        if let Some(dedup) = base
            .dedup
            .as_ref()
            .filter(|_| base.time.steps_back() != steps_back)
        {
            let before = dedup.marks(queue.key(), queue.group(), before_ms);
            before.count_from_now(&base.commands).await?;
        }
        overflow::shorten(queue, &mut done).await?;
        if done.overflows {
            done.unfinished.push(Sweep::MaxLength);
        }
        dead_letters::shorten(queue, &mut done).await?;
        queue.keep_tidy(&mut done).await?;
        if base.outboxes.look_for_others(&base.commands).await? {
            done.unfinished.push(Sweep::Outboxes);
        }
        Ok(())
    };
    match kept.await {
        Ok(()) => Ok(done),
        Err(error) => {
            base.counts.give_back(&done);
            Err(error)
        }
    }
}
