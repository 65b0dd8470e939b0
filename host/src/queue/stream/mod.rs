//! Streams: one consumer group, at least once, requeues in place.
//!
//! - [`options`]: the options of a stream queue.
//! - `claims`: new, due and orphaned deliveries.
//! - `settle`: how deliveries leave the pending list.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Pipeline, Value, cmd};
use tokio::join;
use tracing::warn;

use super::at_least_once::{self, AtLeastOnce, Base, Terms};
use super::byte_bounds::SCAN_TIME;
use super::dead_letter_queue::{DeadLetterQueue, OnFull};
use super::journal::{self, Increment, Journal, Journals, Written};
use super::limits::{Admitted, Start};
use super::{
    Backlog, Claim, Contact, Maintenance, Observation, Queue, Record, Relayed, Repair, Repaired,
    Reply, Rules, Settlement, Taken, inspect,
};
use crate::calls::words::full;
use crate::calls::{self, Batch, all_of, batches, complete};
use crate::delivery::ledger::Permits;
use crate::delivery::message::DeliveryId;
use crate::delivery::policy::Reason;
use crate::queue::due::Due;
use crate::queue::startup::StartError;
use crate::redis::ServerTime;
use crate::redis::connection::{Connector, DEADLINE};
use crate::redis::error::{Class, Error};
use crate::redis::reply::{self, Info};
use crate::redis::script::Script;
use crate::wire::entry_id::{EntryId, entry_id, parse_entry_id};
use crate::wire::keys::{EPOCH_CONSUMER, UNPARKED_CONSUMER};
use crate::wire::{self, Raw, keys};

mod claims;
pub mod options;
mod over_length;
pub mod scripts;
mod settle;

pub use options::{GroupStart, Retention, StreamOptions};

pub use crate::wire::keys::PARKED_CONSUMER;

/// For how long it is noted that a delivery was acknowledged late, or taken from another host, and how many notes there are.
const LATE_MS: u64 = 24 * 60 * 60 * 1000;
const LATE_MAX: u64 = 10_000;
/// Most ids in one `XACK`.
const PER_XACK: usize = 1000;
/// Most deliveries that one script parks again.
const PARKED_AGAIN_MAX: u64 = 1000;

/// A consumer group on a stream, as one host serves it.
#[derive(Debug)]
pub struct StreamQueue {
    base: Base,
    options: StreamOptions,
    name: Arc<str>,
    parked: String,
    /// How often deliveries were held.
    held: String,
    /// Messages published for later, for all groups.
    delayed: String,
    /// Which calls of a host are void, by consumer.
    fences: String,
    /// What the last request of this host has acknowledged with effects.
    acted: String,
    /// What hosts have acknowledged when it was another host's.
    late: String,
    /// How far the effects of deliveries are written whose destinations refused some of them.
    written: String,
    journals: Option<Journals>,
    calls: tokio::sync::Mutex<Calls>,
    cursors: Mutex<Cursors>,
    /// Parked deliveries whose entries were found deleted, and that are not reported yet.
    trimmed: AtomicU64,
    /// Entries that a fetch did not keep, and that are not known to have gone back.
    returning: Mutex<Vec<Settlement>>,
    /// When the group was last seen to hold nothing.
    unheld: Mutex<Option<Instant>>,
    /// The last fetch waited, and nothing came: the next one need not look before it waits.
    waited_in_vain: AtomicBool,
    /// The last script that claimed what is due claimed as much as one may.
    many_due: AtomicBool,
    /// The last look at the queue found held messages, or could not find out.
    some_on_hold: AtomicBool,
    over_length: Mutex<over_length::OverLength>,
}

/// Where bounded scans go on.
#[derive(Debug)]
struct Cursors {
    /// Over parked deliveries.
    sweep: String,
    /// Over own deliveries.
    own: String,
    /// Over all deliveries, for those that were renewed before the clock was set back; `None` = done.
    ahead: Option<String>,
    /// How often the clock had been set back when that began.
    steps_back: u64,
    /// The greatest id that this host saw.
    seen: DeliveryId,
    /// That entry, if this host read it.
    seen_entry: Option<Traits>,
    /// How many entries had been added to the stream at least.
    added: u64,
    /// What it was before a read without an answer, which may have claimed what follows, and until when that
    /// matters.
    unanswered_read: Option<(DeliveryId, Instant)>,
    /// The mark of the group, as this host knows it.
    epoch: String,
}

impl Cursors {
    /// This host has seen an earlier stream, and nothing of the present one.
    fn forget(&mut self) {
        self.seen = DeliveryId(0);
        self.seen_entry = None;
        self.added = 0;
        self.unanswered_read = None;
    }
}

/// What distinguishes an entry from another one with the same id.
#[derive(Clone, Copy, Debug)]
struct Traits {
    id: DeliveryId,
    /// Its names and values.
    parts: usize,
    bytes: usize,
    /// The beginning of its last value.
    head: [u8; HEAD_MAX],
    head_len: usize,
}

/// Of how many bytes of a value the host keeps a copy.
const HEAD_MAX: usize = 32;

impl Traits {
    fn of(claim: &Claim) -> Option<Self> {
        let Raw::Fields(fields) = &claim.raw else {
            return None;
        };
        let (_, last) = fields.last()?;
        let mut head = [0; HEAD_MAX];
        let head_len = last.len().min(HEAD_MAX);
        head[..head_len].copy_from_slice(&last[..head_len]);
        Some(Self {
            id: claim.id,
            parts: 2 * fields.len(),
            bytes: fields.iter().map(|(n, v)| n.len() + v.len()).sum(),
            head,
            head_len,
        })
    }
}

/// The beginning of a scan.
const FROM_START: &str = "-";

/// The calls that send deliveries away, by number, and up to which of them there was an answer.
///
/// A call without an answer may still arrive at any time: it is stuck in a connection that this host has
/// given up. Meanwhile the same deliveries may be here again, with the same owner and count; then the
/// late call would take them away, and this host would not know. So the next call behind a call without
/// an answer voids that one first.
///
/// One call at a time: settlements and housekeeping both send deliveries away, and a call that only waits
/// for its answer must not be voided.
#[derive(Debug, Default)]
struct Calls {
    begun: u64,
    answered: u64,
}

impl Calls {
    /// The number of the next call, and whether one before it had no answer.
    fn begin(&mut self) -> (u64, bool) {
        let is_owed = self.answered < self.begun;
        self.begun += 1;
        (self.begun, is_owed)
    }

    /// The last call was answered; every call before it was answered as well, or is void.
    fn end(&mut self) {
        self.answered = self.begun;
    }
}

impl StreamQueue {
    /// Join the group, and make it (and its stream) if it does not exist.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses.
    pub async fn open(connector: Connector, options: StreamOptions) -> Result<Self, StartError> {
        let base = Base::new(
            (&connector, &options.key),
            &options.consumer,
            options.held_max,
            options.rules(),
            (
                Arc::clone(&options.outlets),
                options.dedup.clone(),
                options.reply_keep,
            ),
            keys::cancelled(&options.key, &options.group),
            |host| {
                let (key, group) = (&options.key, &options.group);
                let terms = keys::min_idle(key, Some(group));
                Terms::new(terms, (key, host), options.min_idle, None)
            },
        );
        let mut queue = Self {
            acted: keys::acted(&options.key, &options.group, &base.consumer),
            late: keys::late(&options.key, &options.group),
            written: keys::written(&options.key, &options.group),
            journals: (options.journal)
                .map(|rules| Journals::new(&connector, rules, &options.key, &options.group)),
            base,
            name: options.key.as_str().into(),
            parked: keys::parked(&options.key, &options.group),
            held: keys::held(&options.key, &options.group),
            delayed: keys::delayed(&options.key),
            fences: keys::fences(&options.key, &options.group),
            calls: tokio::sync::Mutex::default(),
            cursors: Mutex::new(Cursors {
                sweep: FROM_START.to_owned(),
                own: FROM_START.to_owned(),
                // It may have been set back before this host came.
                ahead: Some(FROM_START.to_owned()),
                steps_back: 0,
                seen: DeliveryId(0),
                seen_entry: None,
                added: 0,
                unanswered_read: None,
                epoch: String::new(),
            }),
            trimmed: AtomicU64::new(0),
            returning: Mutex::default(),
            unheld: Mutex::default(),
            waited_in_vain: AtomicBool::new(false),
            many_due: AtomicBool::new(false),
            some_on_hold: AtomicBool::new(true),
            over_length: Mutex::default(),
            options,
        };
        let base = &queue.base;
        let prepared = async {
            queue.saw(queue.join().await?);
            base.commands.load(scripts::ALL).await?;
            queue.learn_epoch().await?;
            base.time.read(&base.commands).await?;
            base.fetches.reach().await
        };
        let prepared = prepared.await;
        prepared.map_err(|error| StartError::from_error(error, &queue.options.key))?;
        base.terms.open(&base.commands).await?;
        let sets = vec![queue.parked.clone(), queue.delayed.clone()];
        let bell = queue.base.cancels.begin(queue.base.time.now_ms());
        queue.base.due = Due::begin(&connector, sets, bell);
        let (key, rules) = (&queue.options.key, queue.options.outbox);
        let opened = queue.base.open_outboxes(&connector, key, rules).await;
        opened.map_err(|error| StartError::from_error(error, key))?;
        Ok(queue)
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &StreamOptions {
        &self.options
    }

    fn group(&self) -> &str {
        &self.options.group
    }

    /// Claim what is parked and due, and append what was published for later and is due.
    async fn look_for_due(&self, max: usize) -> Result<Taken, Error> {
        // In one round trip. Each has a key of its own: a fault of the one does not stop the other.
        let (mut parked, appended) = join!(self.claim_parked(max), self.append_due());
        if let Ok(taken) = &mut parked {
            taken.trimmed += self.trimmed.swap(0, Ordering::Relaxed);
        }
        let parked = parked.map_err(|error| error.among(&[self.key(), &self.parked]));
        let appended = appended.map_err(|error| error.among(&[self.key(), &self.delayed]));
        match (parked?, appended) {
            (mut taken, Ok(next)) => {
                taken.next_due = [taken.next_due, next].into_iter().flatten().min();
                Ok(taken)
            }
            // The claims are kept: the next look meets the error again.
            (taken, Err(_)) if !taken.claims.is_empty() || taken.trimmed > 0 => Ok(taken),
            (_, Err(error)) => Err(error),
        }
    }

    fn cursors(&self) -> MutexGuard<'_, Cursors> {
        // Plain values: a panic elsewhere leaves none half-written.
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn returning(&self) -> MutexGuard<'_, Vec<Settlement>> {
        // Replaced as a whole.
        self.returning
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, id: DeliveryId) {
        let mut cursors = self.cursors();
        cursors.seen = cursors.seen.max(id);
    }

    /// The stream of this host was deleted: the one that is there now is another.
    fn saw_deletion(&self) {
        self.cursors().forget();
    }

    /// Behind which entry a group begins that this host makes again: the last one that it saw, unless it may have
    /// read others that it does not know.
    fn read_from(&self) -> DeliveryId {
        let cursors = self.cursors();
        match cursors.unanswered_read {
            Some((from, until)) if Instant::now() < until => from,
            _ => cursors.seen,
        }
    }

    /// A read had no answer: the entries that it claimed are this host's, which does not know them until it adopts them.
    fn read_unanswered(&self) {
        let from = self.read_from();
        // A server that was paused may carry out a read long after this host has given it up.
        let doubt = 4 * self.options.min_idle + 4 * DEADLINE;
        self.cursors().unanswered_read = Some((from, Instant::now() + doubt));
    }

    async fn ask(&self, command: &'static str, cmd: &Cmd) -> Result<Value, Error> {
        let answer = self.base.commands.call(command, cmd).await;
        answer.map_err(|error| self.about(error))
    }

    async fn run(&self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        let answer = self.base.commands.run(script, call).await;
        answer.map_err(|error| self.about(error))
    }

    /// A call of a script about the stream and these keys, by this consumer of the group.
    fn call(&self, script: &'static Script, keys: &[&str]) -> Cmd {
        let mut call = script.on(&[&[self.key()][..], keys].concat());
        call.arg(self.group()).arg(&self.base.consumer);
        call
    }

    /// The same, about deliveries that this host holds: the group must be the one that it knows.
    fn call_in_epoch(&self, script: &'static Script, keys: &[&str]) -> Cmd {
        let mut call = self.call(script, keys);
        call.arg(&self.cursors().epoch);
        call
    }

    /// The index of the journals of the group; empty = no journals.
    fn journal_index(&self) -> &str {
        let journals = self.journals.as_ref();
        journals.map_or("", |journals| &journals.index)
    }

    /// Learn the mark of the group, and mark it if it has no mark. A server that takes no writes can still be
    /// asked.
    async fn learn_epoch(&self) -> Result<(), Error> {
        let consumers = self.consumers().await?;
        let mut names = consumers
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name));
        match names.find(|name| name.starts_with(EPOCH_CONSUMER)) {
            Some(epoch) => {
                self.cursors().epoch = epoch.into_owned();
                Ok(())
            }
            None => self.make_again().await.map(drop),
        }
    }

    /// Make the group again if it is missing, mark it if it has no mark, and learn its mark.
    async fn make_again(&self) -> Result<Repaired, Error> {
        let script = &scripts::REPAIR;
        let from = self.read_from();
        let (entry, added) = {
            let cursors = self.cursors();
            (
                cursors.seen_entry.filter(|entry| entry.id == from),
                cursors.added,
            )
        };
        let mut call = script.on(&[self.key(), &self.parked]);
        call.arg(self.group())
            .arg(entry_id(from))
            .arg(format!("{EPOCH_CONSUMER}{:08x}", fastrand::u32(..)))
            .arg(EPOCH_CONSUMER)
            .arg(UNPARKED_CONSUMER)
            .arg(added);
        if let Some(entry) = entry {
            call.arg(entry.parts)
                .arg(entry.bytes)
                .arg(&entry.head[..entry.head_len]);
        }
        let [made, epoch, start] = reply::tuple(script.name(), self.run(script, &call).await?)?;
        let start = reply::text(script.name(), start)?;
        {
            let mut cursors = self.cursors();
            cursors.epoch = reply::text(script.name(), epoch)?;
            // It begins at the beginning of a stream that is another one, or that this host has not read.
            if start == "0-0" {
                cursors.forget();
            }
        }
        Ok(match reply::text(script.name(), made)?.as_str() {
            "intact" => Repaired::Intact,
            "group" => Repaired::Group,
            _ => Repaired::Stream,
        })
    }

    /// Park again what was parked in an earlier group, or by a deleted consumer, if that is not
    /// done yet: some in each call, until all are pending.
    ///
    /// Dies here: the next housekeeping of any host begins again.
    async fn park_again(&self) -> Result<(), Error> {
        let script = &scripts::PARK_AGAIN;
        let (mut done, mut all) = (0, 0);
        loop {
            let mut call = self.call_in_epoch(script, &[&self.parked]);
            call.arg(PARKED_CONSUMER)
                .arg(UNPARKED_CONSUMER)
                .arg(PARKED_AGAIN_MAX)
                .arg(done);
            let reply = self.run(script, &call).await?;
            let [looked_at, lost, back, added] = reply::tuple(script.name(), reply)?;
            let added = reply::count(script.name(), &added)?;
            {
                let mut cursors = self.cursors();
                cursors.added = cursors.added.max(added);
            }
            let lost = reply::count(script.name(), &lost)?;
            self.trimmed.fetch_add(lost, Ordering::Relaxed);
            all += reply::count(script.name(), &back)?;
            match u64::try_from(reply::integer(script.name(), &looked_at)?) {
                Ok(PARKED_AGAIN_MAX) => done += PARKED_AGAIN_MAX - lost,
                _ => break,
            }
        }
        if all > 0 {
            warn!(
                back = all,
                "the consumer {PARKED_CONSUMER} or its group was deleted: parked messages are pending again"
            );
        }
        Ok(())
    }

    /// Make the group if it does not exist. Returns the last id that it has handed out.
    async fn join(&self) -> Result<DeliveryId, Error> {
        const CREATE: &str = "XGROUP CREATE";
        // Made only where it is missing: a server without memory refuses to make an existing group.
        if let Some(last) = self.last_handed_out().await? {
            return Ok(last);
        }
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(self.key()).arg(self.group());
        create.arg(match self.options.start {
            GroupStart::Beginning => "0",
            GroupStart::End => "$",
        });
        match self.ask(CREATE, create.arg("MKSTREAM")).await {
            Ok(_) => {}
            Err(Error::Configuration { code, .. }) if code == "BUSYGROUP" => {}
            Err(error) => return Err(error),
        }
        Ok(self.last_handed_out().await?.unwrap_or(DeliveryId(0)))
    }

    /// The last id that the group has handed out, if there is a group.
    async fn last_handed_out(&self) -> Result<Option<DeliveryId>, Error> {
        const GROUPS: &str = "XINFO GROUPS";
        let mut ask = cmd("XINFO");
        let groups = match self.ask(GROUPS, ask.arg("GROUPS").arg(self.key())).await {
            Err(Error::Missing { .. }) => return Ok(None),
            groups => groups?,
        };
        for info in reply::array(GROUPS, groups)? {
            let mut info = Info::new(GROUPS, info)?;
            if reply::bytes(GROUPS, info.take("name"))? == self.group() {
                let last = info.text("last-delivered-id")?;
                return Ok(parse_entry_id(&last).map(|(id, _)| id));
            }
        }
        Ok(None)
    }

    /// The stream or its group is gone.
    fn missing(&self) -> Error {
        Error::Missing {
            key: self.key().to_owned(),
            group: self.group().to_owned(),
        }
    }

    /// Calls of a script about deliveries of this consumer, in the order of their ids: Redis reads those by one
    /// command. `rest` adds what follows an id.
    fn batches(
        &self,
        places: &[usize],
        call: Cmd,
        id: impl Fn(usize) -> DeliveryId,
        rest: impl Fn(usize, &mut Cmd),
    ) -> Vec<Batch> {
        let mut places = places.to_vec();
        places.sort_unstable_by_key(|place| id(*place));
        let one_call = |places: &[usize]| {
            let mut call = call.clone();
            for &place in places {
                call.arg(EntryId::new(id(place)).as_bytes());
                rest(place, &mut call);
            }
            call
        };
        batches(&places, |_| 0, one_call)
    }

    /// The number of the next call that sends deliveries away. Calls before it that had no answer are
    /// void from here on.
    ///
    /// Dies here: nothing was sent yet.
    async fn void_unanswered(&self, calls: &mut Calls) -> Result<u64, Error> {
        let (number, is_owed) = calls.begin();
        if is_owed {
            let mut fence = scripts::FENCE.on(&[&self.fences]);
            fence.arg(&self.base.consumer).arg(number);
            self.run(&scripts::FENCE, &fence).await?;
        }
        Ok(number)
    }

    /// Whether the target would take a dead letter, as far as that can be known without one.
    async fn look_at_target(&self, target: &DeadLetterQueue) -> Result<Reply, Error> {
        let key = target.target(Reason::MaxLen);
        match self.base.commands.count("XLEN", key).await {
            Ok(length) => {
                let most = target.bound(key, self.key());
                if target.on_full == OnFull::Stop && most.is_some_and(|most| length >= most) {
                    return Ok(full());
                }
            }
            // Without a bound, the right to count may be missing.
            Err(error) if error.is_missing_right() => {}
            Err(error) => return Err(error),
        }
        // No entry can have this id: Redis adds nothing, and answers with an error. A user without
        // the right, and a server without memory, get another error.
        let mut add = cmd("XADD");
        add.arg(key).arg("0-0").arg("name").arg("value");
        match self.base.commands.call("XADD", &add).await {
            Err(Error::Configuration { code, .. }) if code == "ERR" => Ok(Reply::Done),
            Err(error) => Err(error),
            Ok(_) => Ok(Reply::Done),
        }
    }
}

/// The records that an entry holds of its message.
fn carried(claim: &Claim) -> BTreeMap<u32, Bytes> {
    match &claim.raw {
        Raw::Fields(fields) => wire::journal::carried(fields),
        // A stream's claims have fields.
        Raw::Value(_) => BTreeMap::new(),
    }
}

#[async_trait]
impl Queue for StreamQueue {
    fn consumer(&self) -> &str {
        &self.base.consumer
    }

    fn time(&self) -> Arc<ServerTime> {
        Arc::clone(&self.base.time)
    }

    async fn fetch(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        let read = self.read_new(want, wait).await;
        match &read {
            Err(error) if error.class() == Class::Reconnect => self.read_unanswered(),
            Err(error) if error.says_stream_is_gone() => self.saw_deletion(),
            _ => {}
        }
        read.map_err(|error| self.about(error))
    }

    fn adopt(&self, rules: Rules) {
        self.base.rules.replace(rules);
    }

    async fn interrupt(&self) -> Result<(), Error> {
        self.base.interrupt().await
    }

    async fn take_due(&self, max: usize) -> Result<Taken, Error> {
        // On the heap: the futures of two requests are large.
        self.base.due.look(Box::pin(self.look_for_due(max))).await
    }

    fn known_due(&self) -> Option<Taken> {
        self.base.due.known()
    }

    async fn take_orphans(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        let max = max.min(claims::CLAIMS_MAX);
        if max == 0 {
            return Ok(taken);
        }
        let Some(consumers) = self.holders().await? else {
            return Ok(taken);
        };
        if !self.base.terms.stay(&self.base.commands).await? {
            return Ok(taken);
        }
        let mut known = Some(consumers);
        self.adopt_own(max, holds, &mut taken).await?;
        let until = Instant::now() + SCAN_TIME;
        let mut found = true;
        while found {
            let (before, sent) = (taken.claims.len(), Instant::now());
            let scanned = async {
                let consumers = match known.take() {
                    Some(consumers) => consumers,
                    None => self.consumers().await?,
                };
                self.claim_from_others(consumers, max, &mut taken).await?;
                self.count_from_now(&mut taken).await?;
                self.sweep_parked(max, &mut taken).await
            };
            match scanned.await {
                // The claims so far are this host's: the next scan meets the error again.
                Err(error) if !taken.claims.is_empty() || taken.trimmed > 0 => {
                    tracing::debug!(%error, "a scan for orphans ended early");
                    break;
                }
                scanned => scanned?,
            }
            let new = &taken.claims[before..];
            self.base.bounds.answered(new, sent.elapsed());
            found = !new.is_empty() && Instant::now() < until;
        }
        Ok(taken)
    }

    async fn admit(
        &self,
        starts: &[Start],
        permits: Permits,
        may_reserve: bool,
    ) -> Result<Vec<Admitted>, Error> {
        self.base.admit(starts, permits, may_reserve).await
    }

    async fn journal(&self, claim: &Claim) -> Result<Journal, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        let read = journals.read(&entry_id(claim.id), carried(claim)).await;
        read.map_err(|error| self.about(error))
    }

    async fn intend(
        &self,
        claim: &Claim,
        number: u32,
        intent: &[u8],
        is_shared: bool,
    ) -> Result<Written, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        let (script, id) = (&scripts::JOURNAL_INTEND, entry_id(claim.id));
        let keys = journals.keys(&id);
        let mut call = self.call_in_epoch(script, &keys.each_ref().map(String::as_str));
        call.arg(&id);
        let written = journals
            .intend((script, call), number, intent, is_shared, &carried(claim))
            .await;
        written.map_err(|error| self.about(error))
    }

    async fn increment(&self, claim: &Claim, increment: Increment<'_>) -> Result<Written, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        let (script, id) = (&scripts::JOURNAL_INCREMENT, entry_id(claim.id));
        let [index, own] = journals.keys(&id);
        let mut call = self.call_in_epoch(script, &[&index, &own, increment.key]);
        call.arg(&id);
        let written = journals
            .increment((script, call), increment, &carried(claim))
            .await;
        written.map_err(|error| self.about(error))
    }

    async fn answer(
        &self,
        claim: &Claim,
        number: u32,
        intent: &[u8],
        answer: Option<&[u8]>,
    ) -> Result<Written, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        let id = entry_id(claim.id);
        journals.answer(&id, number, intent, answer).await
    }

    async fn cancelled(&self) -> Vec<DeliveryId> {
        let base = &self.base;
        let id = |note: &Bytes| parse_entry_id(std::str::from_utf8(note).ok()?).map(|(id, _)| id);
        base.cancels.next(&base.commands, id).await
    }

    fn finds_duplicates(&self) -> bool {
        self.base.finds_duplicates()
    }

    async fn find_duplicates(&self, claims: &mut [Claim]) {
        at_least_once::find_duplicates(self, claims).await;
    }

    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        let script = &scripts::RECORD;
        let mut call = self.call_in_epoch(script, &[&self.parked]);
        call.arg(u8::from(records.iter().any(|record| record.is_repeated)));
        let id = |place: usize| records[place].claim.id;
        let batches = self.batches(&all_of(records), call, id, |place, call| {
            call.arg(records[place].expect).arg(records[place].write);
        });
        let mut replies = vec![None; records.len()];
        let refusal = |error| Err(self.about(error));
        calls::run(&self.base.commands, script, batches, &mut replies, refusal).await?;
        complete(script, replies)
    }

    async fn acknowledge(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        const COMMAND: &str = "XACK";
        let mut pipeline = Pipeline::new();
        for chunk in claims.chunks(PER_XACK) {
            let cmd = pipeline.cmd(COMMAND).arg(self.key()).arg(self.group());
            for claim in chunk {
                cmd.arg(EntryId::new(claim.id).as_bytes());
            }
        }
        let acks = claims.len().div_ceil(PER_XACK);
        for claim in claims {
            // Dies in between: housekeeping forgets it.
            if claim.held.count > 0 {
                let cmd = pipeline.cmd("ZREM").arg(&self.held);
                cmd.arg(EntryId::new(claim.id).as_bytes());
            }
        }
        let replies = self.base.commands.pipeline(COMMAND, &pipeline).await?;
        for reply in replies.into_iter().take(acks) {
            reply::accepted(COMMAND, reply).map_err(|error| self.about(error))?;
        }
        Ok(())
    }

    async fn acknowledge_late(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        let script = &scripts::ACKNOWLEDGE_LATE;
        let mut call = self.call(script, &[&self.late, &self.parked]);
        call.arg(LATE_MS).arg(LATE_MAX);
        let id = |place: usize| claims[place].id;
        let batches = self.batches(&all_of(claims), call, id, |_, _| {});
        for (_, answer) in calls::answers(&self.base.commands, script, batches).await? {
            answer.map_err(|error| self.about(error))?;
        }
        Ok(())
    }

    async fn bring_back(&self, held: &[(Arc<Claim>, u32)]) -> Result<Vec<Reply>, Error> {
        let script = &scripts::READOPT;
        let call = self.call_in_epoch(script, &[&self.late, &self.parked, &self.acted]);
        let id = |place: usize| held[place].0.id;
        let batches = self.batches(&all_of(held), call, id, |place, call| {
            call.arg(held[place].1);
        });
        let mut replies = vec![None; held.len()];
        let refusal = |error| Err(self.about(error));
        calls::run(&self.base.commands, script, batches, &mut replies, refusal).await?;
        complete(script, replies)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        at_least_once::settle(self, settlements).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        self.base.terms.stay_known(&self.base.commands).await?;
        let script = &scripts::RENEW;
        let call = self.call_in_epoch(script, &[&self.parked]);
        let id = |place: usize| claims[place].id;
        let batches = self.batches(&all_of(claims), call, id, |_, _| {});
        let mut replies = vec![None; claims.len()];
        let refusal = |error| Err(self.about(error));
        calls::run(&self.base.commands, script, batches, &mut replies, refusal).await?;
        complete(script, replies)
    }

    async fn maintain(&self) -> Result<Maintenance, Error> {
        at_least_once::maintain(self).await
    }

    async fn repair(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error> {
        let repaired = self.make_again().await?;
        if repaired == Repaired::Stream {
            // The deliveries that this host still holds went with the stream.
            return Ok(Repair {
                repaired,
                held: vec![Reply::Trimmed; held.len()],
            });
        }
        // Another host may have made the group again: take back there what this host holds.
        let unsettled = at_least_once::unsettled(self);
        let claimed = |s: &Settlement| (Arc::clone(&s.claim), s.count);
        let returning: Vec<_> = self.returning().iter().map(claimed).collect();
        let all = [held, &unsettled[..], &returning[..]].concat();
        let mut replies = self.bring_back(&all).await?;
        replies.truncate(held.len());
        self.park_again().await?;
        Ok(Repair {
            repaired,
            held: replies,
        })
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        let script = &scripts::BACKLOG;
        let mut call = script.on(&[self.key(), &self.delayed, &self.parked]);
        call.arg(self.group())
            .arg(PARKED_CONSUMER)
            .arg(UNPARKED_CONSUMER);
        let reply = self.run(script, &call).await?;
        let [unread, pending, delayed] = reply::tuple(script.name(), reply)?;
        let unread = reply::integer(script.name(), &unread)?;
        if unread < 0 {
            return Err(self.missing());
        }
        let count = |value| reply::count(script.name(), value);
        Ok(Backlog {
            unread: unread > 0,
            pending: count(&pending)? + count(&delayed)?,
            outbox: self.base.outboxes.length(&self.base.commands).await?,
        })
    }

    async fn probe(&self) -> Result<(), Error> {
        const COMMAND: &str = "XACK";
        // No entry has this id: it acknowledges nothing. But it is a write.
        let mut write = cmd(COMMAND);
        write.arg(self.key()).arg(self.group()).arg("0-0");
        let write = async { self.ask(COMMAND, &write).await.map(drop) };
        // Nothing that only other requests need: they fail by themselves.
        let read = async {
            let found = self.last_handed_out().await?;
            found.map(drop).ok_or_else(|| self.missing())
        };
        // Large: it is moved less.
        Box::pin(self.base.commands.probe(COMMAND, write, read)).await
    }

    fn contact(&self) -> Contact {
        self.base.contact()
    }

    async fn observe(&self) -> Result<Option<Observation>, Error> {
        let rules = self.base.rules.now();
        let dead_letter = rules.dead_letter.as_ref().map(|d| &*d.key);
        let (link, group) = (&self.base.commands, self.group());
        let report = inspect::stream(link, self.key(), group, dead_letter).await?;
        self.some_on_hold
            .store(report.on_hold != Some(0), Ordering::Relaxed);
        let seen = report.observation(self.base.terms.largest());
        self.base.observed(seen).await.map(Some)
    }

    fn hurry(&self) {
        self.base.outboxes.hurry();
    }

    fn relayed(&self) -> Relayed {
        self.base.outboxes.relayed()
    }

    async fn leave(&self) -> Result<(), Error> {
        let script = &scripts::CONSUMERS;
        let mut call = script.on(&[self.key(), &self.fences]);
        call.arg(self.group()).arg(0).arg(1);
        call.arg(&self.base.consumer).arg(EPOCH_CONSUMER);
        self.run(script, &call).await?;
        self.base.terms.leave(&self.base.commands).await
    }
}
