//! Claiming: what is new, what is due, what was orphaned.

use crate::wire::entry_id::parse_entry_id;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};

use super::{FROM_START, PARKED_CONSUMER, StreamQueue, words};
use crate::delivery::message::DeliveryId;
use crate::queue::{Claim, Origin, Taken};
use crate::redis::error::Error;
use crate::redis::reply::{self, Info};
use crate::redis::script::{self, Script};

/// Most deliveries that one script claims.
const CLAIMS_MAX: usize = 100;
/// After how many bytes of fields a script stops claiming: copying them blocks Redis.
const BYTES_MAX: usize = 4 << 20;
/// How many own deliveries one scan looks at, and how many parked ones: those cost a look-up each.
const PAGE: usize = 1000;
const SWEEP_PAGE: usize = 250;
/// How many consumers one script looks at, and one scan.
const CONSUMERS_PER_CALL: usize = 32;
const CALLS_PER_SCAN: usize = 16;

impl StreamQueue {
    pub(super) async fn read_new(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        const COMMAND: &str = "XREADGROUP";
        if want == 0 {
            return Ok(Vec::new());
        }
        let fetching = self.interruption.begin();
        let wait = if self.interruption.is_wanted() {
            Duration::ZERO
        } else {
            wait
        };
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND)
            .arg("GROUP")
            .arg(self.group())
            .arg(&self.consumer)
            .arg("COUNT")
            .arg(want);
        if !wait.is_zero() {
            // 0 would mean for ever.
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            cmd.arg("BLOCK").arg(ms);
        }
        cmd.arg("STREAMS").arg(self.key()).arg(">");
        let reply = self.fetches.call_waiting(COMMAND, &cmd, wait).await;
        drop(fetching);
        let mut claims = Vec::new();
        for (_, entries) in streams(COMMAND, reply?)? {
            let entries = reply::array(COMMAND, entries)?;
            claims.reserve(entries.len());
            for entry in entries {
                let [id, fields] = reply::tuple(COMMAND, entry)?;
                let id = reply::text(COMMAND, id)?;
                let fields = reply::fields(COMMAND, fields)?;
                claims.push(self.claim(COMMAND, &id, 1, Origin::Fresh, fields)?);
            }
        }
        if let Some(last) = claims.last() {
            self.saw(last.id);
        }
        Ok(claims)
    }

    pub(super) async fn claim_due(&self, max: usize) -> Result<Taken, Error> {
        let mut taken = self.claim_parked(max).await?;
        match self.append_due().await {
            Ok(next) => {
                taken.next_due = [taken.next_due, next].into_iter().flatten().min();
                Ok(taken)
            }
            // What is claimed is not given up for it: it fails again at the next look.
            Err(_) if !taken.claims.is_empty() || taken.trimmed > 0 => Ok(taken),
            Err(error) => Err(error),
        }
    }

    async fn claim_parked(&self, max: usize) -> Result<Taken, Error> {
        let script = Script::TakeDue;
        let mut call = script.on(&[self.key(), &self.parked]);
        call.arg(self.group())
            .arg(&self.consumer)
            .arg(PARKED_CONSUMER)
            .arg(max.min(CLAIMS_MAX))
            .arg(BYTES_MAX);
        let reply = script::run(&self.commands, script, &call).await?;
        let [claims, trimmed, wait] = reply::tuple(script.name(), reply)?;
        let wait = reply::integer(script.name(), &wait)?;
        Ok(Taken {
            claims: self.claims(script, claims, |_| Origin::Returned)?,
            trimmed: reply::count(script.name(), &trimmed)?,
            next_due: u64::try_from(wait).ok().map(Duration::from_millis),
        })
    }

    /// Append what was published for later and is due: any host does it, for all groups. Then it is
    /// read as everything else. Returns how long until the next is due.
    ///
    /// Dies here: each is either an entry, or still waits.
    async fn append_due(&self) -> Result<Option<Duration>, Error> {
        let script = Script::AppendDue;
        let mut call = script.on(&[self.key(), &self.delayed]);
        call.arg(CLAIMS_MAX)
            .arg(BYTES_MAX)
            .arg(&self.options.decoding.body_field[..]);
        let reply = script::run(&self.commands, script, &call).await?;
        let [_, wait] = reply::tuple(script.name(), reply)?;
        let wait = reply::integer(script.name(), &wait)?;
        Ok(u64::try_from(wait).ok().map(Duration::from_millis))
    }

    pub(super) async fn claim_orphans(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        if max == 0 {
            return Ok(taken);
        }
        let max = max.min(CLAIMS_MAX);
        self.claim_from_others(max, &mut taken).await?;
        self.adopt_own(max, holds, &mut taken).await?;
        self.sweep_parked(max, &mut taken).await?;
        Ok(taken)
    }

    /// What other consumers have held for `min_idle` without renewing it.
    async fn claim_from_others(&self, max: usize, taken: &mut Taken) -> Result<(), Error> {
        let mut others = self.other_consumers().await?;
        if others.is_empty() {
            return Ok(());
        }
        // Every scan begins with another consumer, so that none waits behind the others for ever.
        let first = self.rotation.fetch_add(1, Ordering::Relaxed) % others.len();
        others.rotate_left(first);
        let script = Script::Orphans;
        for names in others.chunks(CONSUMERS_PER_CALL).take(CALLS_PER_SCAN) {
            if taken.claims.len() >= max {
                break;
            }
            let mut call = script.on(&[self.key()]);
            call.arg(self.group())
                .arg(&self.consumer)
                .arg(millis(self.options.min_idle))
                .arg(max - taken.claims.len())
                .arg(BYTES_MAX);
            for name in names {
                call.arg(name.as_ref());
            }
            let reply = script::run(&self.commands, script, &call).await?;
            self.add_orphans(script, reply, taken)?;
        }
        Ok(())
    }

    /// Consumers with something pending, other than this host and what is parked.
    async fn other_consumers(&self) -> Result<Vec<Bytes>, Error> {
        const COMMAND: &str = "XINFO CONSUMERS";
        let mut cmd = words(COMMAND);
        cmd.arg(self.key()).arg(self.group());
        let mut others = Vec::new();
        for info in reply::array(COMMAND, self.commands.call(COMMAND, &cmd).await?)? {
            let mut info = Info::new(COMMAND, info)?;
            let name = reply::bytes(COMMAND, info.take("name"))?;
            let is_other = name != self.consumer && name != PARKED_CONSUMER;
            if is_other && info.count("pending")? > 0 {
                others.push(name);
            }
        }
        Ok(others)
    }

    /// Own deliveries that `holds` does not know: their reply was lost on its way.
    async fn adopt_own(
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
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND)
            .arg(self.key())
            .arg(self.group())
            .arg("IDLE")
            .arg(idle)
            .arg(&from)
            .arg("+")
            .arg(PAGE)
            .arg(&self.consumer);
        let page = reply::array(COMMAND, self.commands.call(COMMAND, &cmd).await?)?;
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
        let mut call = script.on(&[self.key()]);
        call.arg(self.group())
            .arg(&self.consumer)
            .arg(idle)
            .arg(BYTES_MAX);
        for id in unknown {
            call.arg(id);
        }
        let reply = script::run(&self.commands, script, &call).await?;
        self.add_orphans(script, reply, taken)
    }

    /// Parked deliveries that the sorted set does not name: they are due now.
    async fn sweep_parked(&self, max: usize, taken: &mut Taken) -> Result<(), Error> {
        let script = Script::Sweep;
        if taken.claims.len() >= max {
            return Ok(());
        }
        let from = self.cursors().sweep.clone();
        let mut call = script.on(&[self.key(), &self.parked]);
        call.arg(self.group())
            .arg(&self.consumer)
            .arg(PARKED_CONSUMER)
            .arg(&from)
            .arg(SWEEP_PAGE)
            .arg(max - taken.claims.len())
            .arg(BYTES_MAX);
        let reply = script::run(&self.commands, script, &call).await?;
        let [claims, trimmed, next] = reply::tuple(script.name(), reply)?;
        self.cursors().sweep = reply::text(script.name(), next)?;
        taken
            .claims
            .extend(self.claims(script, claims, |_| Origin::Returned)?);
        taken.trimmed += reply::count(script.name(), &trimmed)?;
        Ok(())
    }

    fn add_orphans(&self, script: Script, reply: Value, taken: &mut Taken) -> Result<(), Error> {
        let [claims, trimmed] = reply::tuple(script.name(), reply)?;
        let claims = self.claims(script, claims, |idle| Origin::Orphan { idle })?;
        taken.claims.extend(claims);
        taken.trimmed += reply::count(script.name(), &trimmed)?;
        Ok(())
    }

    /// The claims in a script's reply: `{ id, count, idle ms, fields }` each.
    fn claims(
        &self,
        script: Script,
        value: Value,
        origin: impl Fn(Duration) -> Origin,
    ) -> Result<Vec<Claim>, Error> {
        let command = script.name();
        reply::array(command, value)?
            .into_iter()
            .map(|claim| {
                let [id, count, idle, fields] = reply::tuple(command, claim)?;
                let id = reply::text(command, id)?;
                let count = u32::try_from(reply::count(command, &count)?).unwrap_or(u32::MAX);
                let idle = Duration::from_millis(reply::count(command, &idle)?);
                let fields = reply::fields(command, fields)?;
                self.claim(command, &id, count, origin(idle), fields)
            })
            .collect()
    }
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
