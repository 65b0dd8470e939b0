//! Reliable lists: at least once, through a processing list of each instance.
//!
//! - [`options`]: the options of a list queue.
//! - [`token`]: the ids of deliveries, equal payloads among them.
//! - `value`: values and their counts.
//! - `claims`: new, due and orphaned deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, cmd};

use super::at_least_once::{self, AtLeastOnce, Base, Destination, Terms};
use super::byte_bounds::SCAN_TIME;
use super::dead_letter_queue::DeadLetterQueue;
use super::journal::{self, Increment, Journal, Journals, Written as Noted};
use super::limits::{Admitted, Start};
use super::{
    Backlog, Claim, Contact, Maintenance, Observation, Queue, Record, Relayed, Repair, Repaired,
    Reply, Rules, SettleAction, Settlement, Sweep, Taken, inspect,
};
use crate::calls::copy;
use crate::calls::words::{refused, word_reply};
use crate::calls::{self, Batch, Replies, all_of, batches, complete, note};
use crate::delivery::ledger::Permits;
use crate::delivery::message::DeliveryId;
use crate::delivery::millis::{millis, millis_up};
use crate::queue::due::Due;
use crate::queue::startup::StartError;
use crate::redis::ServerTime;
use crate::redis::connection::Connector;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::Script;
use crate::wire::dead_letter::{self, Context};
use crate::wire::list::{self, Framing};
use crate::wire::{self, Raw, keys};

mod claims;
pub mod options;
pub mod scripts;
pub mod token;
mod value;

pub use options::{ListOptions, Recovery};

use token::{Form, Token, Tokens};
use value::{AtomicTtl, Back, Values, Written, journal_of, name_of, value_of};

/// For how long an instance must not have been seen before it is forgotten.
const INSTANCE_IDLE_MS: u64 = 60 * 60 * 1000;
/// Most instances forgotten in one go.
const INSTANCES_MAX: usize = 100;

/// A reliable list, as one host serves it.
#[derive(Debug)]
pub struct ListQueue {
    base: Base,
    options: ListOptions,
    values: Values,
    keys: Keys,
    tokens: Tokens,
    journals: Option<Journals>,
    /// Whether the server lets us wait.
    may_wait: AtomicBool,
    eviction: Eviction,
    /// Where the look for instances that are no longer seen goes on.
    passed_over: AtomicU64,
}

/// The keys of a list and of this instance.
#[derive(Debug)]
struct Keys {
    retry: String,
    delayed: String,
    instances: String,
    processing: String,
    started: String,
    /// How far the effects of deliveries are written whose destinations refused some of them.
    written: String,
    /// The beginning of the key of any instance's processing list.
    processing_prefix: String,
    started_prefix: String,
}

/// Whether others may have evicted this instance since it last looked for each of its deliveries.
#[derive(Debug, Default)]
struct Eviction {
    noticed: AtomicU64,
    looked_at: AtomicU64,
}

impl Eviction {
    /// The eviction to look into, if there is one.
    fn open(&self) -> Option<u64> {
        let noticed = self.noticed.load(Ordering::SeqCst);
        (noticed != self.looked_at.load(Ordering::SeqCst)).then_some(noticed)
    }

    fn close(&self, noticed: u64) {
        self.looked_at.fetch_max(noticed, Ordering::SeqCst);
    }
}

/// A delivery to confirm, and the starts to record for it, if any.
struct Hold<'a> {
    claim: &'a Arc<Claim>,
    starts: Option<u32>,
}

impl ListQueue {
    /// Serve the list as a new instance.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses.
    pub async fn open(connector: Connector, options: ListOptions) -> Result<Self, StartError> {
        let (consumer, held_max) = (&options.consumer, options.held_max);
        let (outlets, dedup) = (Arc::clone(&options.outlets), options.dedup.clone());
        let effects = (outlets, dedup, options.reply_keep);
        let rules = options.rules();
        let place = (&connector, options.key.as_str());
        let cancelled = keys::cancelled(&options.key, "");
        let base = Base::new(
            place,
            consumer,
            held_max,
            rules,
            effects,
            cancelled,
            |host| {
                let key = options.key.as_str();
                let recovery = options.recovery.as_ref().map(|r| &*r.key);
                let terms = keys::min_idle(key, None);
                Terms::new(terms, (key, host), options.min_idle, recovery)
            },
        );
        let (key, instance) = (&options.key, &base.consumer);
        let mut queue = Self {
            values: Values {
                name: key.as_str().into(),
                framing: options.framing,
                accounting: options.accounting,
                journals: options.journal.is_some(),
                ttl: AtomicTtl::new(options.ttl),
                time: Arc::clone(&base.time),
            },
            keys: Keys {
                retry: keys::retry(key),
                delayed: keys::delayed(key),
                instances: keys::instances(key),
                processing: keys::processing(key, instance),
                started: keys::started(key, instance),
                written: keys::written(key, ""),
                processing_prefix: keys::processing(key, ""),
                started_prefix: keys::started(key, ""),
            },
            tokens: Tokens::new(options.min_idle / 2),
            journals: (options.journal).map(|rules| Journals::new(&connector, rules, key, "")),
            may_wait: AtomicBool::new(true),
            eviction: Eviction::default(),
            passed_over: AtomicU64::new(0),
            base,
            options,
        };
        let link = &queue.base.commands;
        queue.base.terms.open(link).await?;
        let joined = async {
            queue.base.time.read(link).await?;
            // This makes the instance known.
            link.run(&scripts::LIST_HOLD, &queue.hold_call()).await
        };
        let joined = joined.await;
        joined.map_err(|error| StartError::from_error(error, &queue.options.key))?;
        let bell = queue.base.cancels.begin(queue.base.time.now_ms());
        queue.base.due = Due::begin(&connector, vec![queue.keys.delayed.clone()], bell);
        let (key, rules) = (&queue.options.key, queue.options.outbox);
        let opened = queue.base.open_outboxes(&connector, key, rules).await;
        opened.map_err(|error| StartError::from_error(error, key))?;
        Ok(queue)
    }

    /// The name of this instance: unique to this start.
    pub fn instance(&self) -> &str {
        &self.base.consumer
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &ListOptions {
        &self.options
    }

    /// A call of a script with these keys, and with the recovery set if there is one.
    fn keyed(&self, script: &'static Script, keys: &[&str]) -> Cmd {
        match &self.options.recovery {
            Some(recovery) => script.on(&[keys, &[&*recovery.key]].concat()),
            None => script.on(keys),
        }
    }

    /// The same, by this instance.
    fn call(&self, script: &'static Script, keys: &[&str]) -> Cmd {
        let mut call = self.keyed(script, keys);
        call.arg(&self.base.consumer);
        call
    }

    /// How long the recovery set lives without a claim or renewal, in ms; 0 = for ever.
    fn recovery_ttl(&self) -> u64 {
        let ttl = self.options.recovery.as_ref().and_then(|r| r.ttl);
        ttl.map_or(0, millis)
    }

    /// Note the answer of a script: 1 if others evicted this instance.
    fn note_eviction(&self, script: &'static Script, evicted: &redis::Value) -> Result<(), Error> {
        if reply::integer(script.name(), evicted)? == 1 {
            self.eviction.noticed.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn hold_call(&self) -> Cmd {
        let keys = &self.keys;
        let keys = [&keys.processing, &keys.started, &keys.instances].map(String::as_str);
        let mut call = self.call(&scripts::LIST_HOLD, &keys);
        call.arg(self.recovery_ttl());
        call
    }

    /// Confirm that deliveries are held, and record starts. Those that cannot be confirmed by
    /// their records, or all with `look`, are looked for on the processing list.
    async fn hold(&self, held: &[Hold<'_>], look: bool) -> Result<Vec<Reply>, Error> {
        let mut replies: Replies = vec![None; held.len()];
        if !look {
            let all = all_of(held);
            self.hold_these(held, &all, false, &mut replies).await?;
        }
        let unsure: Vec<usize> = (0..held.len()).filter(|&i| replies[i].is_none()).collect();
        self.hold_these(held, &unsure, true, &mut replies).await?;
        complete(&scripts::LIST_HOLD, replies)
    }

    async fn hold_these(
        &self,
        held: &[Hold<'_>],
        places: &[usize],
        look: bool,
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let script = &scripts::LIST_HOLD;
        let size = |place: usize| match look {
            true => value_of(held[place].claim).len(),
            false => 0,
        };
        let call = |places: &[usize]| {
            let mut call = self.hold_call();
            for &place in places {
                let Hold { claim, starts } = &held[place];
                call.arg(&Token::of(claim.id).0[..])
                    .arg(starts.map_or_else(String::new, |starts| starts.to_string()))
                    .arg(if look { name_of(claim) } else { Vec::new() });
            }
            call
        };
        let batches = batches(places, size, call);
        for (places, answer) in calls::answers(&self.base.commands, script, batches).await? {
            let [evicted, words] = reply::tuple(script.name(), answer?)?;
            self.note_eviction(script, &evicted)?;
            note(script, &places, words, replies, |_, word| {
                Ok(match reply::text(script.name(), word)?.as_str() {
                    "done" => Some(Reply::Done),
                    "unsure" => None,
                    _ => Some(Reply::Stolen),
                })
            })?;
        }
        Ok(())
    }

    fn removals<'a>(
        &self,
        places: &[usize],
        claim: impl Fn(usize) -> &'a Arc<Claim>,
    ) -> Vec<Batch> {
        let keys = &self.keys;
        let size = |place| value_of(claim(place)).len();
        batches(places, size, |places| {
            let mut call = self.call(&scripts::LIST_REMOVE, &[&keys.processing, &keys.started]);
            call.arg(self.journal_index());
            for &place in places {
                self.name(claim(place), &mut call);
            }
            call
        })
    }

    /// The index of the journals; empty = no journals.
    fn journal_index(&self) -> &str {
        let journals = self.journals.as_ref();
        journals.map_or("", |journals| &journals.index)
    }

    /// Add the entry of a delivery to a call, and how its journal is called, if it may have one.
    fn name(&self, claim: &Claim, call: &mut Cmd) {
        call.arg(name_of(claim));
        if self.journals.is_some() {
            call.arg(journal_of(claim));
        }
    }

    /// Where a delivery goes back, and its value there.
    fn destination(&self, settlement: &Settlement) -> Result<(String, Written), list::Error> {
        let (claim, has_run) = (&settlement.claim, settlement.has_run);
        let (keep, after) = settlement.action.parking().unwrap_or_default();
        let back = match settlement.action {
            SettleAction::Hold { attempt, .. } => self.values.held(claim, attempt)?,
            SettleAction::HandBack { .. } if !after.is_zero() => {
                if let (Some(start), Some(written)) =
                    (settlement.reserved_ms, self.values.put_off(claim)?)
                {
                    return Ok((format!("+{start}"), written));
                }
                self.values.back(claim, keep, has_run)?
            }
            // The mark of a suspect is in its value: it may go back.
            SettleAction::Leave { .. } => match self.values.back(claim, 0, has_run)? {
                Back::Unchanged(written) | Back::Charged(written) => Back::Unchanged(written),
            },
            _ => self.values.back(claim, keep, has_run)?,
        };
        let (end, written) = match back {
            Back::Charged(written) if !after.is_zero() => {
                return Ok((millis_up(after).to_string(), written));
            }
            Back::Charged(written) => ("back", written),
            Back::Unchanged(written) => ("front", written),
        };
        let beside = written.form.framed || written.form.marked;
        let list = if beside { "retry-" } else { "" };
        Ok((format!("{list}{end}"), written))
    }

    async fn forget(&self, idle_ms: u64, only: &str) -> Result<u64, Error> {
        let script = &scripts::LIST_FORGET;
        let mut call = script.on(&[&self.keys.instances]);
        call.arg(idle_ms)
            .arg(INSTANCES_MAX)
            .arg(&self.keys.processing_prefix)
            .arg(&self.keys.started_prefix)
            .arg(only);
        let reply = self.base.commands.run(script, &call).await?;
        reply::count(script.name(), &reply)
    }

    async fn report(&self, dead_letter: Option<&str>) -> Result<inspect::Report, Error> {
        inspect::list(&self.base.commands, self.key(), dead_letter).await
    }

    /// Claim delayed values that are due.
    async fn look_for_due(&self, max: usize) -> Result<Taken, Error> {
        let script = &scripts::LIST_DUE;
        let max = max.min(claims::CLAIMS_MAX);
        let Some(bytes) = self.base.bounds.for_old() else {
            return Ok(Taken::default());
        };
        let reserved = self.tokens.reserve(max, self.base.time.now_ms());
        let keys = &self.keys;
        let mut call = self.call(
            script,
            &[
                &keys.delayed,
                &keys.processing,
                &keys.instances,
                &keys.retry,
            ],
        );
        // A delayed value carries its count: it is framed. Producers write delayed values as well.
        let form = Form {
            framed: self.options.framing == Framing::Raw,
            marked: false,
        };
        call.arg(&self.tokens.prefix(form)[..])
            .arg(reserved.first())
            .arg(max)
            .arg(bytes)
            .arg(self.recovery_ttl())
            .arg(self.base.limits_starts());
        let sent = Instant::now();
        let reply = self.answer(self.base.commands.run(script, &call).await);
        let reply = reply.map_err(|error| error.among(&[&keys.delayed, &keys.retry]))?;
        let [evicted, claims, wait, starts] = reply::tuple(script.name(), reply)?;
        self.note_eviction(script, &evicted)?;
        let wait = reply::integer(script.name(), &wait)?;
        let mut claims = self.claims(script, claims)?;
        for (claim, start) in claims.iter_mut().zip(reply::array(script.name(), starts)?) {
            let start = reply::count(script.name(), &start)?;
            claim.reserved_ms = Some(start).filter(|start| *start > 0);
        }
        self.base.bounds.answered(&claims, sent.elapsed());
        reserved.answered();
        Ok(Taken {
            claims,
            trimmed: 0,
            next_due: u64::try_from(wait).ok().map(Duration::from_millis),
        })
    }
}

#[async_trait]
impl Queue for ListQueue {
    fn consumer(&self) -> &str {
        &self.base.consumer
    }

    fn time(&self) -> Arc<ServerTime> {
        Arc::clone(&self.base.time)
    }

    async fn fetch(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        if want == 0 {
            return Ok(Vec::new());
        }
        let base = &self.base;
        let _fetching = base.interruption.begin();
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(bytes) = base.bounds.for_new(left, &base.interruption).await else {
                return Ok(Vec::new());
            };
            let (claims, _) = self.claim_beyond(&base.fetches, want, bytes, None).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !claims.is_empty() || left.is_zero() || base.interruption.is_wanted() {
                return Ok(claims);
            }
            self.wait_for_value(left).await?;
            if Instant::now() >= until {
                // Nothing came. If something came just now, the next fetch claims it.
                return Ok(Vec::new());
            }
        }
    }

    fn adopt(&self, rules: Rules) {
        self.values.ttl.set(rules.ttl);
        self.base.rules.replace(rules);
    }

    async fn interrupt(&self) -> Result<(), Error> {
        self.base.interrupt().await
    }

    async fn take_due(&self, max: usize) -> Result<Taken, Error> {
        self.base.due.look(self.look_for_due(max)).await
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
        let max = max.min(claims::ORPHANS_MAX);
        if max == 0 {
            return Ok(taken);
        }
        let lapsed = self.lapsed_instances().await?;
        if lapsed.is_empty() && !self.tokens.is_in_doubt() {
            return Ok(taken);
        }
        if !self.base.terms.stay(&self.base.commands).await? {
            return Ok(taken);
        }
        let mut known = Some(lapsed);
        // First the own deliveries: an error of another instance must not hide them.
        self.adopt_own(max, holds, &mut taken).await?;
        let until = Instant::now() + SCAN_TIME;
        loop {
            let (before, sent) = (taken.claims.len(), Instant::now());
            let scanned = async {
                let lapsed = match known.take() {
                    Some(lapsed) => lapsed,
                    None => self.lapsed_instances().await?,
                };
                self.claim_from(lapsed, max, &mut taken).await
            };
            match scanned.await {
                // The deliveries taken over so far are this host's: the next scan meets the error again.
                Err(error) if !taken.claims.is_empty() => {
                    tracing::debug!(%error, "a scan for orphans ended early");
                    return Ok(taken);
                }
                scanned => scanned?,
            }
            let new = &taken.claims[before..];
            self.base.bounds.answered(new, sent.elapsed());
            if new.is_empty() || taken.claims.len() >= max || Instant::now() >= until {
                return Ok(taken);
            }
        }
    }

    async fn admit(
        &self,
        starts: &[Start],
        permits: Permits,
        may_reserve: bool,
    ) -> Result<Vec<Admitted>, Error> {
        self.base.admit(starts, permits, may_reserve).await
    }

    fn let_go(&self) {
        self.tokens.doubt();
    }

    async fn journal(&self, claim: &Claim) -> Result<Journal, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        journals
            .read(&journal_of(claim), self.values.carried(claim))
            .await
    }

    async fn intend(
        &self,
        claim: &Claim,
        number: u32,
        intent: &[u8],
        is_shared: bool,
    ) -> Result<Noted, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        let (script, id) = (&scripts::LIST_JOURNAL_INTEND, journal_of(claim));
        let [index, own] = journals.keys(&id);
        let mut call = script.on(&[&self.keys.processing, &index, &own]);
        call.arg(name_of(claim)).arg(&id);
        let carried = self.values.carried(claim);
        journals
            .intend((script, call), number, intent, is_shared, &carried)
            .await
    }

    async fn increment(&self, claim: &Claim, increment: Increment<'_>) -> Result<Noted, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        let (script, id) = (&scripts::LIST_JOURNAL_INCREMENT, journal_of(claim));
        let [index, own] = journals.keys(&id);
        let mut call = script.on(&[&self.keys.processing, &index, &own, increment.key]);
        call.arg(name_of(claim)).arg(&id);
        let carried = self.values.carried(claim);
        journals
            .increment((script, call), increment, &carried)
            .await
    }

    async fn answer(
        &self,
        claim: &Claim,
        number: u32,
        intent: &[u8],
        answer: Option<&[u8]>,
    ) -> Result<Noted, Error> {
        let journals = self.journals.as_ref().ok_or_else(journal::none)?;
        let id = journal_of(claim);
        journals.answer(&id, number, intent, answer).await
    }

    async fn cancelled(&self) -> Vec<DeliveryId> {
        let base = &self.base;
        let id = |note: &Bytes| Some(DeliveryId(u128::from_be_bytes(note[..].try_into().ok()?)));
        base.cancels.next(&base.commands, id).await
    }

    fn finds_duplicates(&self) -> bool {
        self.base.finds_duplicates()
    }

    async fn find_duplicates(&self, claims: &mut [Claim]) {
        at_least_once::find_duplicates(self, claims).await;
    }

    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        let held: Vec<Hold<'_>> = records
            .iter()
            .map(|record| Hold {
                claim: &record.claim,
                // Written = expected confirms the lease only.
                starts: (record.write != record.expect)
                    .then(|| self.values.starts(&record.claim, record.write)),
            })
            .collect();
        // A delivery that is about to start must be held now.
        self.hold(&held, self.options.recovery.is_none()).await
    }

    async fn acknowledge(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        let script = &scripts::LIST_REMOVE;
        let mut replies = vec![None; claims.len()];
        let batches = self.removals(&all_of(claims), |place| &claims[place]);
        calls::run(&self.base.commands, script, batches, &mut replies, Err).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        at_least_once::settle(self, settlements).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        self.base.terms.stay_known(&self.base.commands).await?;
        let open = self.eviction.open();
        let held: Vec<Hold<'_>> = claims
            .iter()
            .map(|claim| Hold {
                claim,
                starts: None,
            })
            .collect();
        // Without a recovery set, only the processing list shows which deliveries others took.
        let look = self.options.recovery.is_none() && open.is_some();
        let replies = self.hold(&held, look).await?;
        if let Some(noticed) = open {
            // This host has looked for every delivery that it holds.
            self.eviction.close(noticed);
        }
        Ok(replies)
    }

    async fn maintain(&self) -> Result<Maintenance, Error> {
        at_least_once::maintain(self).await
    }

    /// A list exists as soon as something is in it: nothing is ever missing.
    async fn repair(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error> {
        let claims: Vec<_> = held.iter().map(|(claim, _)| Arc::clone(claim)).collect();
        Ok(Repair {
            repaired: Repaired::Intact,
            held: self.renew(&claims).await?,
        })
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        let report = self.report(None).await?;
        Ok(Backlog {
            unread: report.unread,
            pending: report.pending,
            outbox: self.base.outboxes.length(&self.base.commands).await?,
        })
    }

    async fn probe(&self) -> Result<(), Error> {
        const COMMAND: &str = "ZREM";
        // No instance has this name: it removes nothing. But it is a write.
        let mut write = cmd(COMMAND);
        write.arg(&self.keys.instances).arg("");
        let link = &self.base.commands;
        let write = async { link.call(COMMAND, &write).await.map(drop) };
        // Nothing that only other requests need: they fail by themselves.
        let read = async { link.count("LLEN", self.key()).await.map(drop) };
        // Large: it is moved less.
        Box::pin(link.probe(COMMAND, write, read)).await
    }

    fn hurry(&self) {
        self.base.outboxes.hurry();
    }

    fn relayed(&self) -> Relayed {
        self.base.outboxes.relayed()
    }

    fn contact(&self) -> Contact {
        self.base.contact()
    }

    async fn observe(&self) -> Result<Option<Observation>, Error> {
        let rules = self.base.rules.now();
        let dead_letter = rules.dead_letter.as_ref().map(|d| &*d.key);
        let report = self.report(dead_letter).await?;
        let seen = report.observation(self.base.terms.largest());
        self.base.observed(seen).await.map(Some)
    }

    async fn leave(&self) -> Result<(), Error> {
        self.forget(0, self.instance()).await?;
        self.base.terms.leave(&self.base.commands).await
    }
}

impl AtLeastOnce for ListQueue {
    const DEAD_LETTER: &'static Script = &scripts::LIST_DEAD_LETTER;
    const ACKNOWLEDGE: (&'static Script, &'static Script) =
        (&scripts::LIST_ACKNOWLEDGE, &scripts::LIST_ACKNOWLEDGE_ONLY);

    fn base(&self) -> &Base {
        &self.base
    }

    fn key(&self) -> &str {
        &self.options.key
    }

    fn source_id(&self, claim: &Claim) -> String {
        Token::of(claim.id).to_string()
    }

    fn starts_before(&self, claim: &Claim) -> u32 {
        self.values.starts_before(claim)
    }

    async fn send_away(
        &self,
        settlements: &[Settlement],
        places: &[usize],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let script = &scripts::LIST_RETURN;
        let (mut back, mut front) = (Vec::new(), Vec::new());
        for &place in places {
            match self.destination(&settlements[place]) {
                Ok((to, written)) if to.ends_with("front") => front.push((place, to, written)),
                Ok((to, written)) => back.push((place, to, written)),
                Err(error) => replies[place] = Some(Reply::Refused(error.to_string())),
            }
        }
        // The last one put at the front is the first one claimed: the newest go back first. Numbers of tokens count up.
        front.sort_by_key(|(place, ..)| std::cmp::Reverse(settlements[*place].claim.id));
        back.extend(front);
        let keys = &self.keys;
        let size = |index: usize| 2 * back[index].2.value.len();
        let mut batches = batches(&all_of(&back), size, |indexes| {
            let keys: [&str; 5] = [
                &keys.processing,
                &keys.started,
                self.key(),
                &keys.retry,
                &keys.delayed,
            ];
            let mut call = self.call(script, &keys);
            for &index in indexes {
                let (place, to, written) = &back[index];
                let claim = &settlements[*place].claim;
                call.arg(name_of(claim)).arg(to);
                copy::push_value(&written.value, Some(&claim.raw), &mut call);
            }
            call
        });
        for index in batches.iter_mut().flat_map(|(_, indexes)| indexes) {
            *index = back[*index].0;
        }
        calls::run(&self.base.commands, script, batches, replies, refused).await
    }

    async fn discard(
        &self,
        settlements: &[Settlement],
        places: &[usize],
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let batches = self.removals(places, |place| &settlements[place].claim);
        let script = &scripts::LIST_REMOVE;
        calls::run(&self.base.commands, script, batches, replies, refused).await
    }

    fn acknowledge_call(&self, script: &'static Script, keys: &[&str]) -> (Cmd, usize) {
        let recovery = self.options.recovery.as_ref().map(|r| &*r.key);
        let mine = &self.keys;
        let mut own = vec![&*mine.processing, &*mine.started, &*mine.written];
        own.extend(recovery);
        let mut call = script.on(&[&own, keys].concat());
        call.arg(&self.base.consumer).arg(own.len());
        (call, own.len())
    }

    fn acknowledge_arguments(&self, call: &mut Cmd) {
        call.arg(self.journal_index());
    }

    fn acknowledge_one(&self, settlement: &Settlement, call: &mut Cmd) {
        self.name(&settlement.claim, call);
    }

    async fn records(&self, claim: &Claim) -> Result<BTreeMap<u32, Bytes>, Error> {
        let Some(journals) = &self.journals else {
            return Ok(BTreeMap::new());
        };
        let mut records = self.values.carried(claim);
        let link = &self.base.commands;
        records.extend(journals.records(link, &journal_of(claim)).await?.0);
        Ok(records)
    }

    fn copy_of(
        &self,
        claim: &Claim,
        target: &DeadLetterQueue,
        context: &Context<'_>,
        records: &BTreeMap<u32, Bytes>,
    ) -> Result<(Destination, Raw), list::Error> {
        let (headers, payload) = self.values.parts(claim);
        let (mut copied, died) = dead_letter::list_headers(&headers, context);
        if self.options.framing == Framing::Raw {
            copied.push(dead_letter::FRAMING, "raw".to_owned());
        }
        if !records.is_empty() {
            copied.set(dead_letter::RECORDS, wire::journal::text(records));
        }
        let copy = list::encode(&copied, &payload, self.options.framing.codec())?;
        Ok((Destination::of(target, &died, context), Raw::Value(copy)))
    }

    fn dead_letter_call(&self, key: &str) -> Cmd {
        let keys = [&self.keys.processing, &self.keys.started, key];
        let mut call = self.call(&scripts::LIST_DEAD_LETTER, &keys);
        call.arg(self.journal_index());
        call
    }

    fn dead_letter_one(&self, settlement: &Settlement, call: &mut Cmd) {
        self.name(&settlement.claim, call);
    }

    async fn holds(
        &self,
        settlement: &Settlement,
        trimmed: Option<&str>,
        _is_wide: bool,
    ) -> Result<Reply, Error> {
        let script = &scripts::LIST_HOLDS;
        let mut call = script.on(&[&self.keys.processing, &self.keys.started]);
        call.arg(name_of(&settlement.claim));
        call.arg(trimmed.unwrap_or_default());
        let word = self.base.commands.run(script, &call).await?;
        word_reply(script.name(), word)
    }

    async fn claim_over(&self, length: u64, want: usize) -> Result<(Vec<Claim>, u64), Error> {
        let (link, bytes) = (&self.base.commands, self.base.bounds.request());
        self.claim_beyond(link, want, bytes, Some(length)).await
    }

    async fn keep_tidy(&self, done: &mut Maintenance) -> Result<(), Error> {
        done.consumers_removed = self.forget(INSTANCE_IDLE_MS, "").await?;
        if done.consumers_removed >= INSTANCES_MAX as u64 {
            done.unfinished.push(Sweep::Consumers);
        }
        if let Some(journals) = &self.journals {
            let (script, keys) = (&scripts::LIST_JOURNAL_SWEEP, &self.keys);
            let all = [
                self.key(),
                &keys.retry,
                &keys.delayed,
                &keys.instances,
                &journals.index,
            ];
            let mut call = script.on(&all);
            call.arg(&keys.processing_prefix);
            let link = &self.base.commands;
            journals.sweep(link, script, call, done).await?;
        }
        Ok(())
    }
}
