//! Claiming: new deliveries, due ones, orphans, and entries over the length limit.

use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd};

use super::{FROM_START, PARKED_CONSUMER, StreamQueue};
use crate::delivery::message::{DeliveryId, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use crate::delivery::millis::millis;
use crate::queue::at_least_once::AtLeastOnce;
use crate::queue::{Claim, Origin, Taken};
use crate::redis::error::Error;
use crate::redis::reply::{self, Info};
use crate::redis::script::Script;
use crate::wire::entry_id::parse_entry_id;
use crate::wire::{Raw, stream};

/// Most deliveries that one script claims.
pub(super) const CLAIMS_MAX: usize = 100;
/// After how many bytes of fields a script stops claiming: copying them blocks Redis.
const BYTES_MAX: usize = 4 << 20;
/// How many own deliveries one scan looks at, and how many parked ones: those cost a look-up each.
const PAGE: usize = 1000;
const SWEEP_PAGE: usize = 250;
/// How many consumers one script looks at, and one scan.
const CONSUMERS_PER_CALL: usize = 32;
const CALLS_PER_SCAN: usize = 16;
/// How many entries one script counts where Redis does not know how many are unread.
const COUNTED_MAX: u64 = 10_000;

impl StreamQueue {
    pub(super) async fn read_new(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        const COMMAND: &str = "XREADGROUP";
        if want == 0 {
            return Ok(Vec::new());
        }
        let base = &self.base;
        let fetching = base.interruption.begin();
        let wait = match base.interruption.is_wanted() {
            true => Duration::ZERO,
            false => wait,
        };
        let mut read = cmd(COMMAND);
        read.arg("GROUP").arg(self.group()).arg(&base.consumer);
        read.arg("COUNT").arg(want);
        if !wait.is_zero() {
            // 0 would mean for ever.
            read.arg("BLOCK").arg(millis(wait).max(1));
        }
        read.arg("STREAMS").arg(self.key()).arg(">");
        let reply = base.fetches.call_waiting(COMMAND, &read, wait).await;
        drop(fetching);
        let mut claims = Vec::new();
        for (_, entries) in streams(COMMAND, reply?)? {
            claims.extend(self.entries(COMMAND, entries)?);
        }
        Ok(claims)
    }

    /// Claim the oldest unread entries over a length, at most `want`; and how many more there are.
    pub(super) async fn claim_unread_over(
        &self,
        length: u64,
        want: usize,
    ) -> Result<(Vec<Claim>, u64), Error> {
        let script = Script::Overflow;
        let mut call = self.call(script, &[]);
        call.arg(length).arg(want).arg(BYTES_MAX).arg(COUNTED_MAX);
        let reply = self.run(script, &call).await?;
        let [claimed, left] = reply::tuple(script.name(), reply)?;
        let left = reply::count(script.name(), &left)?;
        Ok((self.entries(script.name(), claimed)?, left))
    }

    pub(super) async fn claim_parked(&self, max: usize) -> Result<Taken, Error> {
        let script = Script::TakeDue;
        let mut call = self.call(script, &[&self.parked]);
        call.arg(PARKED_CONSUMER)
            .arg(max.min(CLAIMS_MAX))
            .arg(BYTES_MAX);
        let reply = self.run(script, &call).await?;
        let [claims, trimmed, wait] = reply::tuple(script.name(), reply)?;
        let mut taken = Taken {
            next_due: next_due(script, &wait)?,
            ..Taken::default()
        };
        self.add(script, claims, &trimmed, |_| Origin::Returned, &mut taken)?;
        Ok(taken)
    }

    /// Append messages to the stream that were published for later and are due: any host does it, for
    /// all groups. Returns how long until the next is due.
    ///
    /// Dies here: each is either an entry, or still waits.
    pub(super) async fn append_due(&self) -> Result<Option<Duration>, Error> {
        let script = Script::AppendDue;
        let mut call = script.on(&[self.key(), &self.delayed]);
        call.arg(CLAIMS_MAX)
            .arg(BYTES_MAX)
            .arg(&self.options.decoding.body_field[..]);
        let reply = self.run(script, &call).await?;
        let [_, wait] = reply::tuple(script.name(), reply)?;
        next_due(script, &wait)
    }

    /// Claim deliveries that other consumers have held for `min_idle` without renewing them.
    pub(super) async fn claim_from_others(
        &self,
        max: usize,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let script = Script::Orphans;
        let mut others = self.other_consumers().await?;
        self.base.rotate(&mut others);
        for names in others.chunks(CONSUMERS_PER_CALL).take(CALLS_PER_SCAN) {
            if taken.claims.len() >= max {
                break;
            }
            let mut call = self.call(script, &[]);
            call.arg(millis(self.options.min_idle))
                .arg(max - taken.claims.len())
                .arg(BYTES_MAX);
            for name in names {
                call.arg(name.as_ref());
            }
            let reply = self.run(script, &call).await?;
            let [claims, trimmed] = reply::tuple(script.name(), reply)?;
            self.add(script, claims, &trimmed, orphan, taken)?;
        }
        Ok(())
    }

    /// Consumers with something pending, other than this host and the one of parked deliveries.
    async fn other_consumers(&self) -> Result<Vec<Bytes>, Error> {
        const COMMAND: &str = "XINFO CONSUMERS";
        let mut ask = cmd("XINFO");
        ask.arg("CONSUMERS").arg(self.key()).arg(self.group());
        let mut others = Vec::new();
        for info in reply::array(COMMAND, self.ask(COMMAND, &ask).await?)? {
            let mut info = Info::new(COMMAND, info)?;
            let name = reply::bytes(COMMAND, info.take("name"))?;
            let is_other = name != self.base.consumer && name != PARKED_CONSUMER;
            if is_other && info.count("pending")? > 0 {
                others.push(name);
            }
        }
        Ok(others)
    }

    /// Claim own deliveries that `holds` does not know: their reply was lost.
    pub(super) async fn adopt_own(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
        taken: &mut Taken,
    ) -> Result<(), Error> {
        const COMMAND: &str = "XPENDING";
        if taken.claims.len() >= max {
            return Ok(());
        }
        let idle = millis(self.options.min_idle / 2);
        let from = self.cursors().own.clone();
        let mut ask = cmd(COMMAND);
        ask.arg(self.key()).arg(self.group()).arg("IDLE").arg(idle);
        ask.arg(&from).arg("+").arg(PAGE).arg(&self.base.consumer);
        let page = reply::array(COMMAND, self.ask(COMMAND, &ask).await?)?;
        let is_full = page.len() == PAGE;
        let mut unknown = Vec::new();
        let mut next = FROM_START.to_owned();
        for held in page {
            let [id, ..] = reply::tuple::<4>(COMMAND, held)?;
            let id = reply::text(COMMAND, id)?;
            let parsed = parse_entry_id(&id);
            if parsed.is_some_and(|(parsed, _)| !holds(&parsed)) {
                if unknown.len() == max - taken.claims.len() {
                    next = id;
                    break;
                }
                unknown.push(id);
            } else if is_full {
                next = format!("({id}");
            }
        }
        self.cursors().own = next;
        if unknown.is_empty() {
            return Ok(());
        }
        let script = Script::Adopt;
        let mut call = self.call(script, &[]);
        call.arg(idle).arg(BYTES_MAX).arg(unknown);
        let reply = self.run(script, &call).await?;
        let [claims, trimmed] = reply::tuple(script.name(), reply)?;
        self.add(script, claims, &trimmed, orphan, taken)
    }

    /// Claim parked deliveries that are not in the sorted set: they are due now.
    pub(super) async fn sweep_parked(&self, max: usize, taken: &mut Taken) -> Result<(), Error> {
        let script = Script::Sweep;
        if taken.claims.len() >= max {
            return Ok(());
        }
        let from = self.cursors().sweep.clone();
        let mut call = self.call(script, &[&self.parked]);
        call.arg(PARKED_CONSUMER)
            .arg(&from)
            .arg(SWEEP_PAGE)
            .arg(max - taken.claims.len())
            .arg(BYTES_MAX);
        let reply = self.run(script, &call).await?;
        let [claims, trimmed, next] = reply::tuple(script.name(), reply)?;
        self.cursors().sweep = reply::text(script.name(), next)?;
        self.add(script, claims, &trimmed, |_| Origin::Returned, taken)
    }

    /// Add the claims of a script's reply, `{ id, count, idle ms, fields }` each.
    fn add(
        &self,
        script: Script,
        claims: Value,
        trimmed: &Value,
        origin: impl Fn(Duration) -> Origin,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let command = script.name();
        for claim in reply::array(command, claims)? {
            let [id, count, idle, fields] = reply::tuple(command, claim)?;
            let count = u32::try_from(reply::count(command, &count)?).unwrap_or(u32::MAX);
            let idle = Duration::from_millis(reply::count(command, &idle)?);
            let claim = self.claim(command, id, count, origin(idle), fields)?;
            taken.claims.push(claim);
        }
        taken.trimmed += reply::count(command, trimmed)?;
        Ok(())
    }

    /// New entries, `{ id, fields }` each, as claims.
    fn entries(&self, command: &'static str, entries: Value) -> Result<Vec<Claim>, Error> {
        let entries = reply::array(command, entries)?;
        let mut claims = Vec::with_capacity(entries.len());
        for entry in entries {
            let [id, fields] = reply::tuple(command, entry)?;
            claims.push(self.claim(command, id, 1, Origin::Fresh, fields)?);
        }
        if let Some(last) = claims.last() {
            self.saw(last.id);
        }
        Ok(claims)
    }

    fn claim(
        &self,
        command: &'static str,
        entry: Value,
        native: u32,
        origin: Origin,
        fields: Value,
    ) -> Result<Claim, Error> {
        let entry = reply::text(command, entry)?;
        let fields = reply::fields(command, fields)?;
        let (id, ms) =
            parse_entry_id(&entry).ok_or_else(|| reply::invalid(command, "an invalid entry id"))?;
        let mut decoded = stream::decode(&self.name, &entry, ms, &fields, &self.options.decoding);
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
        })
    }
}

fn orphan(idle: Duration) -> Origin {
    Origin::Orphan { idle }
}

/// How long until the next is due; -1: none is.
fn next_due(script: Script, wait: &Value) -> Result<Option<Duration>, Error> {
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
