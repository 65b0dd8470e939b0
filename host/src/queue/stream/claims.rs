//! Claiming: new deliveries, due ones, orphans.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Cmd, Value, cmd};

use super::{FROM_START, LATE_MAX, LATE_MS, PARKED_CONSUMER, StreamQueue, Traits};
use crate::delivery::hold::Held;
use crate::delivery::message::{DeliveryId, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use crate::delivery::millis::{millis, millis_up};
use crate::queue::at_least_once::AtLeastOnce;
use crate::queue::stream::scripts;
use crate::queue::{Claim, Origin, Queue, Reply, SettleAction, Settlement, Taken};
use crate::redis::error::{Class, Error};
use crate::redis::reply::{self, Info};
use crate::redis::script::Script;
use crate::wire::entry_id::{GREATEST, parse_entry_id};
use crate::wire::keys::UNPARKED_CONSUMER;
use crate::wire::{Raw, stream};

/// Most deliveries that one script claims.
pub(super) const CLAIMS_MAX: usize = 100;
/// Most scripts in a round trip that claim what is due.
const DUE_CALLS: usize = 4;
/// After how many bytes of messages a script stops appending: copying them blocks Redis.
const APPENDED_MAX: usize = 4 << 20;
/// For how long a group that held nothing is believed to hold no orphan, at most. Less than a sixth of
/// `min_idle`, so that the first delivery after it is seen long before it can be an orphan.
const UNHELD_BELIEVED: Duration = Duration::from_secs(5);
/// How many own deliveries one scan looks at, and how many parked ones: those cost a look-up each.
const PAGE: usize = 1000;
const SWEEP_PAGE: usize = 250;
/// How many consumers one script looks at, and one scan.
const CONSUMERS_PER_CALL: usize = 32;
const CALLS_PER_SCAN: usize = 16;

impl StreamQueue {
    pub(super) async fn read_new(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        if want == 0 {
            return Ok(Vec::new());
        }
        let (base, until) = (&self.base, Instant::now() + wait);
        let _fetching = base.interruption.begin();
        let Some(bytes) = base.bounds.for_new(wait, &base.interruption).await else {
            return Ok(Vec::new());
        };
        let left = until.saturating_duration_since(Instant::now());
        let may_wait = !left.is_zero() && !base.interruption.is_wanted();
        if may_wait && self.waited_in_vain.load(Ordering::Relaxed) {
            return self.wait_for_entry(left).await;
        }
        self.hand_back(Vec::new()).await;
        let plain = match base.bounds.plain(want, bytes) {
            Some(count) => self.read_plainly(count, bytes).await?,
            None => None,
        };
        let claims = match plain {
            Some(claims) => claims,
            None => self.read_by_script(want, bytes).await?,
        };
        base.bounds.saw(&claims);
        let left = until.saturating_duration_since(Instant::now());
        if !claims.is_empty() || left.is_zero() || base.interruption.is_wanted() {
            return Ok(claims);
        }
        self.wait_for_entry(left).await
    }

    /// Claim up to `count` entries where they were small so far: the host itself keeps the bound. `None`: the script
    /// must ask.
    ///
    /// Dies here: pending under this host's name, found as orphans; also those that were not kept.
    async fn read_plainly(&self, count: usize, bytes: usize) -> Result<Option<Vec<Claim>>, Error> {
        const COMMAND: &str = "XREADGROUP";
        let bounds = &self.base.bounds;
        let mut read = cmd(COMMAND);
        read.arg("GROUP").arg(self.group()).arg(&self.base.consumer);
        read.arg("COUNT").arg(count).arg("STREAMS");
        read.arg(self.key()).arg(">");
        let sent = Instant::now();
        let entries = self.base.fetches.read_entries(COMMAND, &read, bytes).await;
        if matches!(&entries, Err(e) if e.class() == Class::Reconnect) {
            bounds.failed();
            // The reply may have been too large for the server, the link or this host.
            bounds.read_by_script();
        }
        let Some(mut entries) = entries? else {
            return Ok(None);
        };
        bounds.took(entries.size(), sent.elapsed());
        let skipped = std::mem::take(&mut entries.skipped);
        let held = entries.held();
        let read = entries.read(|memory| bounds.hold_as(memory, held));
        let claims = read.map(|(id, fields)| self.decode(COMMAND, &id, 1, Origin::Fresh, fields));
        let claims: Vec<Claim> = claims.collect::<Result<_, Error>>()?;
        self.saw_last(&claims);
        if !skipped.is_empty() {
            bounds.read_by_script();
            let back = |id: &Bytes| {
                let unread = self.decode(COMMAND, id, 1, Origin::Fresh, Vec::new())?;
                let after = Duration::ZERO;
                let action = SettleAction::HandBack { keep: 0, after };
                Ok(Settlement::new(Arc::new(unread), 1, action))
            };
            let back: Vec<_> = skipped.iter().map(back).collect::<Result<_, Error>>()?;
            self.saw(
                back.iter()
                    .map(|s| s.claim.id)
                    .fold(DeliveryId(0), DeliveryId::max),
            );
            self.hand_back(back).await;
        }
        Ok(Some(claims))
    }

    /// Hand back entries that were not kept, and those before them that Redis did not take back: due now, uncharged.
    /// After a try without an answer they keep their charge (rule 5).
    ///
    /// Dies here: pending under this host's name, found as orphans.
    async fn hand_back(&self, back: Vec<Settlement>) {
        let back = {
            let mut all = self.returning();
            all.extend(back);
            all.clone()
        };
        if back.is_empty() {
            return;
        }
        let replies = self.settle(&back).await;
        let stays: Vec<Settlement> = match replies {
            Ok(replies) => {
                let refused = |(back, reply)| match reply {
                    Reply::Refused(why) => {
                        tracing::warn!(
                            why,
                            "redis refused to take back a large message: the next fetch tries again"
                        );
                        Some(back)
                    }
                    _ => None,
                };
                back.into_iter().zip(replies).filter_map(refused).collect()
            }
            Err(error) => {
                tracing::debug!(%error, "large messages could not be handed back: the next fetch tries again");
                back.into_iter().map(Settlement::again).collect()
            }
        };
        let mut all = self.returning();
        let ids: HashSet<_> = all.iter().map(|back| back.claim.id).collect();
        *all = stays
            .into_iter()
            .filter(|back| ids.contains(&back.claim.id))
            .collect();
    }

    /// Claim up to `want` entries; fewer where they are large.
    async fn read_by_script(&self, want: usize, bytes: usize) -> Result<Vec<Claim>, Error> {
        let script = &scripts::FETCH;
        let mut call = self.call(script, &[&self.parked]);
        call.arg(PARKED_CONSUMER).arg(UNPARKED_CONSUMER);
        call.arg(want).arg(bytes);
        let sent = Instant::now();
        let entries = self.answer(self.base.fetches.run(script, &call).await)?;
        let claims = self.entries(script.name(), entries)?;
        self.base.bounds.answered(&claims, sent.elapsed());
        Ok(claims)
    }

    /// Wait for an entry, and claim only that one: how large others behind it are is unknown.
    async fn wait_for_entry(&self, left: Duration) -> Result<Vec<Claim>, Error> {
        const COMMAND: &str = "XREADGROUP";
        let mut read = cmd(COMMAND);
        read.arg("GROUP").arg(self.group()).arg(&self.base.consumer);
        // Rounded up: 0 would mean for ever, and a fetch waits as long as it was told.
        read.arg("COUNT").arg(1).arg("BLOCK").arg(millis_up(left));
        read.arg("STREAMS").arg(self.key()).arg(">");
        let reply = self.base.fetches.call_waiting(COMMAND, &read, left).await;
        let mut claims = Vec::new();
        for (_, entries) in streams(COMMAND, reply?)? {
            claims.extend(self.entries(COMMAND, entries)?);
        }
        self.waited_in_vain
            .store(claims.is_empty(), Ordering::Relaxed);
        self.base.bounds.saw(&claims);
        Ok(claims)
    }

    /// Claim parked deliveries that are due. A script claims [`CLAIMS_MAX`] at most. If the last script claimed that
    /// number, several run in one round trip.
    pub(super) async fn claim_parked(&self, max: usize) -> Result<Taken, Error> {
        let script = &scripts::TAKE_DUE;
        let Some(bytes) = self.base.bounds.for_old() else {
            return Ok(Taken::default());
        };
        let most = match self.many_due.load(Ordering::Relaxed) {
            true => DUE_CALLS,
            false => 1,
        };
        let calls = max.div_ceil(CLAIMS_MAX).clamp(1, most);
        let mut left = max;
        let calls: Vec<Cmd> = (0..calls)
            .map(|_| {
                let count = left.min(CLAIMS_MAX);
                left -= count;
                let mut call = self.call_in_epoch(script, &[&self.late, &self.parked]);
                call.arg(PARKED_CONSUMER)
                    .arg(UNPARKED_CONSUMER)
                    .arg(self.records_last())
                    .arg(count)
                    .arg(bytes.div_ceil(calls))
                    .arg(self.base.limits_starts());
                call
            })
            .collect();
        let sent = Instant::now();
        let mut taken = Taken::default();
        let answers = self.base.commands.run_all(script, calls).await;
        for answer in self.answer(answers)? {
            let reply = reply::accepted(script.name(), answer).map_err(|error| self.about(error));
            let reply = match reply {
                // The claims are kept: the next look meets the error again.
                Err(_) if !taken.claims.is_empty() || taken.trimmed > 0 => break,
                reply => reply?,
            };
            let [claims, trimmed, wait, reserved] = reply::tuple(script.name(), reply)?;
            let before = taken.claims.len();
            self.add(script, claims, &trimmed, |_| Origin::Returned, &mut taken)?;
            let reserved = reply::array(script.name(), reserved)?;
            for pair in reserved.chunks_exact(2) {
                let id = reply::text(script.name(), pair[0].clone())?;
                let id = parse_entry_id(&id).map(|(id, _)| id);
                let start = reply::count(script.name(), &pair[1])?;
                let mut claims = taken.claims[before..].iter_mut();
                if let Some(claim) = claims.find(|claim| Some(claim.id) == id) {
                    claim.reserved_ms = Some(start);
                }
            }
            taken.next_due = next_due(script, &wait)?;
            let is_full = taken.claims.len() - before >= CLAIMS_MAX;
            self.many_due.store(is_full, Ordering::Relaxed);
        }
        self.base.bounds.answered(&taken.claims, sent.elapsed());
        Ok(taken)
    }

    /// After how long the record of a claim comes up again, in ms: no lease
    /// lasts as long that was confirmed before.
    fn records_last(&self) -> u64 {
        2 * millis(self.base.terms.largest())
    }

    /// Append messages to the stream that were published for later and are due: any host does it, for
    /// all groups. Returns how long until the next is due.
    ///
    /// Dies here: each is either an entry, or still waits.
    pub(super) async fn append_due(&self) -> Result<Option<Duration>, Error> {
        let script = &scripts::APPEND_DUE;
        let mut call = script.on(&[self.key(), &self.delayed]);
        call.arg(CLAIMS_MAX)
            .arg(APPENDED_MAX)
            .arg(&self.options.decoding.body_field[..]);
        let reply = self.run(script, &call).await?;
        let [_, wait] = reply::tuple(script.name(), reply)?;
        next_due(script, &wait)
    }

    /// `None` if no consumer of the group holds anything, so that a scan for orphans finds none. The answer
    /// holds for a while: a later delivery is not an orphan before `min_idle` has passed.
    /// Otherwise returns the consumers.
    pub(super) async fn holders(&self) -> Result<Option<Vec<(Bytes, u64)>>, Error> {
        let believed = UNHELD_BELIEVED.min(self.options.min_idle / 6);
        let unheld = || self.unheld.lock().unwrap_or_else(PoisonError::into_inner);
        if unheld().is_some_and(|at| at.elapsed() < believed) {
            return Ok(None);
        }
        let at = Instant::now();
        let consumers = self.consumers().await?;
        let is_none = consumers.iter().all(|(_, pending)| *pending == 0);
        *unheld() = is_none.then_some(at);
        Ok((!is_none).then_some(consumers))
    }

    /// Claim deliveries that other consumers have held for `min_idle` without renewing them.
    pub(super) async fn claim_from_others(
        &self,
        consumers: Vec<(Bytes, u64)>,
        max: usize,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let script = &scripts::ORPHANS;
        let mut others = self.others_among(consumers);
        self.base.rotate(&mut others);
        for names in others.chunks(CONSUMERS_PER_CALL).take(CALLS_PER_SCAN) {
            let Some(bytes) = self.room(max, taken) else {
                break;
            };
            let mut call =
                self.call_in_epoch(script, &[self.base.terms.key(), &self.late, &self.parked]);
            call.arg(millis(self.options.min_idle))
                .arg(max - taken.claims.len())
                .arg(bytes)
                .arg(self.records_last())
                .arg(LATE_MS)
                .arg(LATE_MAX);
            for name in names {
                call.arg(name.as_ref());
            }
            let reply = self.take(script, &call).await?;
            let [claims, trimmed] = reply::tuple(script.name(), reply)?;
            self.add(script, claims, &trimmed, orphan, taken)?;
        }
        Ok(())
    }

    /// Consumers with something pending, other than this host and the one of parked deliveries.
    fn others_among(&self, consumers: Vec<(Bytes, u64)>) -> Vec<Bytes> {
        let others = consumers.into_iter().filter(|(name, pending)| {
            *pending > 0 && name != &self.base.consumer && name != PARKED_CONSUMER
        });
        others.map(|(name, _)| name).collect()
    }

    /// The consumers of the group, and how much is pending for each.
    pub(super) async fn consumers(&self) -> Result<Vec<(Bytes, u64)>, Error> {
        const COMMAND: &str = "XINFO CONSUMERS";
        let mut ask = cmd("XINFO");
        ask.arg("CONSUMERS").arg(self.key()).arg(self.group());
        let infos = reply::array(COMMAND, self.ask(COMMAND, &ask).await?)?;
        let consumer = |info| {
            let mut info = Info::new(COMMAND, info)?;
            let name = reply::bytes(COMMAND, info.take("name"))?;
            Ok((name, info.count("pending")?))
        };
        infos.into_iter().map(consumer).collect()
    }

    /// Claim own deliveries that `holds` does not know: their reply was lost.
    pub(super) async fn adopt_own(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
        taken: &mut Taken,
    ) -> Result<(), Error> {
        const COMMAND: &str = "XPENDING";
        let Some(bytes) = self.room(max, taken) else {
            return Ok(());
        };
        let idle = millis(self.options.min_idle / 2);
        let from = self.cursors().own.clone();
        let mut ask = cmd(COMMAND);
        ask.arg(self.key()).arg(self.group()).arg("IDLE").arg(idle);
        ask.arg(&from).arg("+").arg(PAGE).arg(&self.base.consumer);
        let page = reply::array(COMMAND, self.ask(COMMAND, &ask).await?)?;
        let is_full = page.len() == PAGE;
        // Fetches hand these back.
        let returning: HashSet<_> = self.returning().iter().map(|s| s.claim.id).collect();
        let mut unknown = Vec::new();
        let mut next = FROM_START.to_owned();
        for held in page {
            let [id, ..] = reply::tuple::<4>(COMMAND, held)?;
            let id = reply::text(COMMAND, id)?;
            let parsed = parse_entry_id(&id).map(|(id, _)| id);
            let is_known = |id: &DeliveryId| holds(id) || returning.contains(id);
            if parsed.is_some_and(|parsed| !is_known(&parsed)) {
                if unknown.len() == max - taken.claims.len() {
                    next = id;
                    break;
                }
                unknown.push(id);
            } else if is_full && parsed != Some(GREATEST) {
                next = format!("({id}");
            }
        }
        self.cursors().own = next;
        if unknown.is_empty() {
            return Ok(());
        }
        let script = &scripts::ADOPT;
        let mut call = self.call(script, &[&self.parked]);
        call.arg(idle).arg(bytes).arg(self.records_last());
        call.arg(unknown);
        let reply = self.take(script, &call).await?;
        let [claims, trimmed, left] = reply::tuple(script.name(), reply)?;
        let left = reply::text(script.name(), left)?;
        if !left.is_empty() {
            self.cursors().own = left;
        }
        self.add(script, claims, &trimmed, orphan, taken)
    }

    /// Look for deliveries that were renewed before the server's clock was set back, a page at a time:
    /// they count from now. Once after the start, and once after each such step.
    pub(super) async fn count_from_now(&self, taken: &mut Taken) -> Result<(), Error> {
        let script = &scripts::COUNT_FROM_NOW;
        let steps_back = self.base.time.steps_back();
        let from = {
            let mut cursors = self.cursors();
            if cursors.steps_back != steps_back {
                cursors.steps_back = steps_back;
                cursors.ahead = Some(FROM_START.to_owned());
            }
            cursors.ahead.clone()
        };
        let Some(from) = from else {
            return Ok(());
        };
        let mut call = script.on(&[self.key()]);
        call.arg(self.group())
            .arg(PARKED_CONSUMER)
            .arg(&from)
            .arg(PAGE);
        let reply = self.run(script, &call).await?;
        let [trimmed, next] = reply::tuple(script.name(), reply)?;
        let next = reply::text(script.name(), next)?;
        self.cursors().ahead = Some(next).filter(|next| !next.is_empty());
        taken.trimmed += reply::count(script.name(), &trimmed)?;
        Ok(())
    }

    /// Claim parked deliveries that are not in the sorted set: they are due now.
    pub(super) async fn sweep_parked(&self, max: usize, taken: &mut Taken) -> Result<(), Error> {
        let script = &scripts::SWEEP;
        let Some(bytes) = self.room(max, taken) else {
            return Ok(());
        };
        let from = self.cursors().sweep.clone();
        let mut call = self.call_in_epoch(script, &[&self.late, &self.parked]);
        call.arg(PARKED_CONSUMER)
            .arg(&from)
            .arg(SWEEP_PAGE)
            .arg(max - taken.claims.len())
            .arg(bytes)
            .arg(self.records_last());
        let reply = self.take(script, &call).await?;
        let [claims, trimmed, next] = reply::tuple(script.name(), reply)?;
        self.cursors().sweep = reply::text(script.name(), next)?;
        self.add(script, claims, &trimmed, |_| Origin::Returned, taken)
    }

    /// How many bytes the next script of a scan may claim; `None` if the scan has enough.
    fn room(&self, max: usize, taken: &Taken) -> Option<usize> {
        let has_room = taken.claims.len() < max;
        has_room.then(|| self.base.bounds.for_old()).flatten()
    }

    /// Run a script that claims messages that were held before.
    async fn take(&self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        self.answer(self.base.commands.run(script, call).await)
    }

    /// The answer to a request for messages: after none, the next request is smaller.
    fn answer<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if answer
            .as_ref()
            .is_err_and(|e| e.class() == Class::Reconnect)
        {
            self.base.bounds.failed();
        }
        answer.map_err(|error| self.about(error))
    }

    /// Add the claims of a script's reply, `{ id, count, idle ms, fields, holds, time of the first one }` each.
    fn add(
        &self,
        script: &'static Script,
        claims: Value,
        trimmed: &Value,
        origin: impl Fn(Duration) -> Origin,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let command = script.name();
        for claim in reply::array(command, claims)? {
            let [id, count, idle, fields, holds, since] = reply::tuple(command, claim)?;
            let number = |value| -> Result<u32, Error> {
                Ok(u32::try_from(reply::count(command, value)?).unwrap_or(u32::MAX))
            };
            let count = number(&count)?;
            let held = Held {
                count: number(&holds)?,
                since_ms: reply::count(command, &since)?,
            };
            let idle = Duration::from_millis(reply::count(command, &idle)?);
            let fields = reply::fields(command, fields)?;
            let claim = Claim {
                held,
                ..self.claim(command, id, count, origin(idle), fields)?
            };
            // Its hand-back was carried out: a later try would take it away from this host.
            self.returning().retain(|back| back.claim.id != claim.id);
            taken.claims.push(claim);
        }
        taken.trimmed += reply::count(command, trimmed)?;
        Ok(())
    }

    /// New entries, `{ id, fields }` each, as claims.
    pub(super) fn entries(
        &self,
        command: &'static str,
        entries: Value,
    ) -> Result<Vec<Claim>, Error> {
        let entries = reply::array(command, entries)?;
        let mut claims = Vec::with_capacity(entries.len());
        for entry in entries {
            let [id, fields] = reply::tuple(command, entry)?;
            let fields = reply::fields(command, fields)?;
            claims.push(self.claim(command, id, 1, Origin::Fresh, fields)?);
        }
        self.saw_last(&claims);
        Ok(claims)
    }

    fn saw_last(&self, claims: &[Claim]) {
        if let Some(last) = claims.last() {
            let mut cursors = self.cursors();
            if last.id >= cursors.seen {
                cursors.seen = last.id;
                cursors.seen_entry = Traits::of(last);
            }
        }
    }

    fn claim(
        &self,
        command: &'static str,
        entry: Value,
        native: u32,
        origin: Origin,
        mut fields: Vec<(Bytes, Bytes)>,
    ) -> Result<Claim, Error> {
        self.base.bounds.hold_fields(&mut fields);
        let entry = reply::bytes(command, entry)?;
        self.decode(command, &entry, native, origin, fields)
    }

    fn decode(
        &self,
        command: &'static str,
        entry: &[u8],
        native: u32,
        origin: Origin,
        mut fields: Vec<(Bytes, Bytes)>,
    ) -> Result<Claim, Error> {
        let body_field = &self.options.decoding.body_field;
        for (name, _) in &mut fields {
            if name == body_field {
                // All entries have this name: they share it.
                name.clone_from(body_field);
            }
        }
        let entry = std::str::from_utf8(entry).ok();
        let parsed = entry.and_then(|entry| Some((entry, parse_entry_id(entry)?)));
        let (entry, (id, ms)) =
            parsed.ok_or_else(|| reply::invalid(command, "an invalid entry id"))?;
        let mut decoded = stream::decode(&self.name, entry, ms, &fields, &self.options.decoding);
        if let Origin::Orphan { idle } = origin {
            let headers = &mut decoded.message.headers;
            headers.set(REDIS_DELIVERY_COUNT, native.to_string());
            headers.set(REDIS_IDLE_MS, idle.as_millis().to_string());
        }
        Ok(Claim {
            id,
            origin,
            native,
            header: decoded.header,
            expires_at_ms: None,
            message: decoded.message,
            raw: Raw::Fields(fields),
            defect: decoded.defect,
            is_duplicate: false,
            reserved_ms: None,
            held: Held::default(),
        })
    }
}

fn orphan(idle: Duration) -> Origin {
    Origin::Orphan { idle }
}

/// How long until the next is due; -1: none is.
fn next_due(script: &'static Script, wait: &Value) -> Result<Option<Duration>, Error> {
    let wait = reply::integer(script.name(), wait)?;
    Ok(u64::try_from(wait).ok().map(Duration::from_millis))
}

/// Pairs of a stream's key and its entries: a map in RESP3, an array of pairs in RESP2, nil if
/// nothing came.
fn streams(command: &'static str, reply: Value) -> Result<Vec<(Value, Value)>, Error> {
    match reply {
        Value::Nil => Ok(Vec::new()),
        Value::Map(streams) => Ok(streams),
        other => reply::array(command, other)?
            .into_iter()
            .map(|stream| reply::tuple(command, stream).map(|[key, entries]| (key, entries)))
            .collect(),
    }
}
