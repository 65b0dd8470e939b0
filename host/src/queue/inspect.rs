//! The state of a queue: the data of `hostler inspect`. Changes nothing.

use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value};
use serde::Serialize;

use super::Observation;
use crate::delivery::message::DeliveryId;
use crate::outgoing::outbox;
pub use crate::outgoing::outbox::report::OutboxReport;
use crate::queue::list::scripts::LIST_REPORT;
use crate::queue::list::token;
use crate::queue::stream::scripts::BACKLOG;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply::{self, Info};
use crate::wire::entry_id::parse_entry_id;
use crate::wire::keys::{self, EPOCH_CONSUMER, PARKED_CONSUMER, UNPARKED_CONSUMER};

const COMMAND: &str = "inspect";

/// The state of a queue; of a stream, of one of its groups.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Report {
    /// Entries in the stream, or values of a list that no instance holds, its retry list included.
    pub length: u64,
    /// Entries that the group has not read: 0 if the stream holds nothing behind the last entry that the group was
    /// given, else the number of Redis, at most the length of the stream. Redis may not know it. Of a list, its length.
    pub lag: Option<u64>,
    /// Entries that the group has read since it was made, as Redis counts them: it may not know.
    #[serde(skip)]
    pub read: Option<u64>,
    /// Whether some message is unread.
    pub unread: bool,
    /// Deliveries that hosts hold, parked ones included.
    pub pending: u64,
    /// For how long the oldest of them has been in the stream, in milliseconds; of a list, since a host first took
    /// it. Hosts of an earlier release do not write that time.
    pub oldest_pending_ms: Option<u64>,
    /// Parked deliveries with a due time, and messages published for later.
    pub delayed: u64,
    /// Until the first of them is due, in milliseconds.
    pub next_due_ms: Option<u64>,
    /// Messages that their handler has held, and that are not settled. Of a list, only the values say so: not known.
    pub on_hold: Option<u64>,
    /// Entries in the dead-letter queue, if one is named.
    pub dead_letters: Option<u64>,
    /// Messages that have a journal.
    pub journals: u64,
    /// What waits in outboxes for destinations in other slots.
    pub outboxes: Vec<OutboxReport>,
    /// The group's consumers, or the list's instances, by name.
    pub consumers: Vec<ConsumerReport>,
    /// The stream's groups, in the order of their oldest needed entries: the first one limits
    /// `retention = "acked"`.
    pub groups: Vec<GroupReport>,
}

impl Report {
    /// The part of it for gauges, where hosts use this `min_idle`.
    pub(super) fn observation(&self, min_idle: Duration) -> Observation {
        let is_host = |consumer: &&ConsumerReport| consumer.name != PARKED_CONSUMER;
        let is_gone =
            |consumer: &&ConsumerReport| u128::from(consumer.idle_ms) >= min_idle.as_millis();
        let gone = self.consumers.iter().filter(is_host).filter(is_gone);
        Observation {
            unread: self.lag.unwrap_or(u64::from(self.unread)),
            pending: self.pending,
            oldest_pending: self.oldest_pending_ms.map(Duration::from_millis),
            orphans: gone.map(|consumer| consumer.pending).sum(),
            parked: self.delayed,
            on_hold: self.on_hold.unwrap_or_default(),
            dead_letters: self.dead_letters,
            ..Observation::default()
        }
    }
}

/// A consumer of the group.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ConsumerReport {
    /// Its name (lossy where it is not UTF-8).
    pub name: String,
    /// The deliveries that it holds.
    pub pending: u64,
    /// For how long it was not seen, in milliseconds.
    pub idle_ms: u64,
}

/// A group of the stream.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct GroupReport {
    /// Its name (lossy where it is not UTF-8).
    pub name: String,
    /// Its deliveries that are not settled.
    pub pending: u64,
    /// The oldest entry that it needs: its first pending one, or the last one that it read.
    pub needs_from: String,
}

/// Inspect a stream and one of its groups.
///
/// # Errors
/// [`Error::Missing`] if there is no such stream or group, and refusals of Redis.
pub async fn stream(
    link: &Link,
    key: &str,
    group: &str,
    dead_letter: Option<&str>,
) -> Result<Report, Error> {
    look(link, key, group, dead_letter)
        .await
        .map_err(|error| error.about(key, group))
}

async fn look(
    link: &Link,
    key: &str,
    group: &str,
    dead_letter: Option<&str>,
) -> Result<Report, Error> {
    let parked = keys::parked(key, group);
    let mut pipeline = Pipeline::new();
    pipeline.cmd("XLEN").arg(key);
    pipeline.cmd("XINFO").arg("GROUPS").arg(key);
    pipeline.cmd("XINFO").arg("CONSUMERS").arg(key).arg(group);
    pipeline.cmd("ZCARD").arg(&parked);
    pipeline.cmd("ZRANGE").arg(&parked).arg(0).arg(0);
    pipeline.cmd("TIME");
    pipeline.cmd("XLEN").arg(dead_letter.unwrap_or(key));
    let later = keys::delayed(key);
    pipeline.cmd("ZCARD").arg(&later);
    pipeline.cmd("ZRANGE").arg(&later).arg(0).arg(0);
    pipeline.cmd("ZCARD").arg(keys::held(key, group));
    let replies = Value::Array(link.pipeline(COMMAND, &pipeline).await?);
    let [
        length,
        groups,
        consumers,
        delayed,
        next,
        time,
        dead_letters,
        published,
        next_published,
        on_hold,
    ] = reply::tuple(COMMAND, replies)?;
    let length = accepted_count(length)?;
    let (groups, mut own) =
        read_groups(link, key, group, reply::accepted(COMMAND, groups)?).await?;
    let now_ms = reply::time_ms(COMMAND, reply::accepted(COMMAND, time)?)?;
    let mut next_due_ms = None;
    for (set, first) in [(&parked, next), (&later, next_published)] {
        if let Some(first) = reply::array(COMMAND, reply::accepted(COMMAND, first)?)?.pop() {
            let due = due_in(link, set, reply::bytes(COMMAND, first)?, now_ms).await?;
            next_due_ms = [next_due_ms, due].into_iter().flatten().min();
        }
    }
    let mut backlog = BACKLOG.on(&[key, &later, &parked]);
    backlog
        .arg(group)
        .arg(PARKED_CONSUMER)
        .arg(UNPARKED_CONSUMER);
    let backlog = link.run(&BACKLOG, &backlog).await?;
    let [unread, _, _] = reply::tuple(COMMAND, backlog)?;
    let unread = reply::integer(COMMAND, &unread)? > 0;
    Ok(Report {
        length,
        // Redis counts entries that a producer trimmed before they were read, and never stops.
        lag: match own.take("lag") {
            _ if !unread => Some(0),
            Value::Nil => None,
            lag => Some(reply::count(COMMAND, &lag)?.min(length).max(1)),
        },
        read: match own.take("entries-read") {
            Value::Nil => None,
            read => Some(reply::count(COMMAND, &read)?),
        },
        unread,
        pending: own.count("pending")?,
        oldest_pending_ms: first_pending(link, key, group.as_bytes())
            .await?
            .and_then(|id| parse_entry_id(&id))
            .map(|(_, ms)| now_ms.saturating_sub(ms)),
        delayed: accepted_count(delayed)? + accepted_count(published)?,
        next_due_ms,
        on_hold: match accepted_count(on_hold) {
            Err(error) if error.is_missing_right() => None,
            held => Some(held?),
        },
        dead_letters: match dead_letter {
            Some(_) => Some(accepted_count(dead_letters)?),
            None => None,
        },
        consumers: read_consumers(reply::accepted(COMMAND, consumers)?)?,
        groups,
        ..Report::default()
    })
}

/// Inspect a list.
///
/// # Errors
/// Refusals of Redis.
pub async fn list(link: &Link, key: &str, dead_letter: Option<&str>) -> Result<Report, Error> {
    let script = &LIST_REPORT;
    let (retry, delayed, instances) = (keys::retry(key), keys::delayed(key), keys::instances(key));
    let mut call = script.on(&[key, &retry, &delayed, &instances]);
    call.arg(keys::processing(key, "")).arg(token::BEGINNING);
    let reply = link.run(script, &call).await?;
    let command = script.name();
    let [length, delayed, next, now, instances] = reply::tuple(command, reply)?;
    let now = reply::count(command, &now)?;
    let mut first: Option<u64> = None;
    let known = |value| reply::integer(command, value).map(|ms| u64::try_from(ms).ok());
    let mut held = 0;
    let mut reports = Vec::new();
    for instance in reply::array(command, instances)? {
        let [name, pending, idle, oldest] = reply::tuple(command, instance)?;
        let taken = token::first_taken_ms(&reply::bytes(command, oldest)?);
        first = first.into_iter().chain(taken).min();
        let report = ConsumerReport {
            name: String::from_utf8_lossy(&reply::bytes(command, name)?).into_owned(),
            pending: reply::count(command, &pending)?,
            idle_ms: reply::count(command, &idle)?,
        };
        held += report.pending;
        reports.push(report);
    }
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    let delayed = reply::count(command, &delayed)?;
    let length = reply::count(command, &length)?;
    Ok(Report {
        length,
        lag: Some(length),
        unread: length > 0,
        delayed,
        next_due_ms: known(&next)?,
        pending: held + delayed,
        oldest_pending_ms: first.map(|first| now.saturating_sub(first)),
        dead_letters: match dead_letter {
            Some(key) => Some(link.count("LLEN", key).await?),
            None => None,
        },
        consumers: reports,
        ..Report::default()
    })
}

/// How many messages have a journal; `group` is empty for a list. Without the right to ask, none is counted.
///
/// # Errors
/// Other refusals of Redis.
pub(super) async fn journals(link: &Link, key: &str, group: &str) -> Result<u64, Error> {
    match link.count("ZCARD", &keys::journals(key, group)).await {
        Err(error) if error.is_missing_right() => Ok(0),
        // One member holds the bytes of all.
        members => Ok(members?.saturating_sub(1)),
    }
}

/// What the outboxes of a queue hold. Without the right to ask, none is shown.
///
/// # Errors
/// Other refusals of Redis.
pub(super) async fn outboxes(link: &Link, key: &str) -> Result<Vec<OutboxReport>, Error> {
    let asked = async {
        let destinations = outbox::report::destinations(link, key).await?;
        outbox::report::report(link, key, destinations).await
    };
    match asked.await {
        Err(error) if error.is_missing_right() => Ok(Vec::new()),
        asked => asked,
    }
}

/// How many entries each of these keys holds: streams, or lists.
///
/// # Errors
/// Refusals of Redis: a key of another type.
pub async fn lengths(link: &Link, keys: &[String], is_stream: bool) -> Result<Vec<u64>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let command = if is_stream { "XLEN" } else { "LLEN" };
    let mut pipeline = Pipeline::new();
    for key in keys {
        pipeline.cmd(command).arg(key);
    }
    let lengths = link.pipeline(command, &pipeline).await?;
    lengths.into_iter().map(accepted_count).collect()
}

fn accepted_count(value: Value) -> Result<u64, Error> {
    reply::count(COMMAND, &reply::accepted(COMMAND, value)?)
}

/// All groups, the one that needs the oldest entries first, and the report about `group`.
async fn read_groups(
    link: &Link,
    key: &str,
    group: &str,
    value: Value,
) -> Result<(Vec<GroupReport>, Info), Error> {
    let mut groups: Vec<(DeliveryId, GroupReport)> = Vec::new();
    let mut own = None;
    for info in reply::array(COMMAND, value)? {
        let mut info = Info::new(COMMAND, info)?;
        let name = reply::bytes(COMMAND, info.get("name"))?;
        let pending = reply::count(COMMAND, &info.get("pending"))?;
        let mut needs_from = reply::text(COMMAND, info.take("last-delivered-id"))?;
        if pending > 0
            && let Some(first) = first_pending(link, key, &name).await?
        {
            needs_from = first;
        }
        let order = parse_entry_id(&needs_from).map_or(DeliveryId(0), |(id, _)| id);
        groups.push((
            order,
            GroupReport {
                name: String::from_utf8_lossy(&name).into_owned(),
                pending,
                needs_from,
            },
        ));
        if name == group {
            own = Some(info);
        }
    }
    groups.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.name.cmp(&b.name)));
    let own = own.ok_or_else(|| Error::Missing {
        key: key.to_owned(),
        group: group.to_owned(),
    })?;
    Ok((groups.into_iter().map(|(_, report)| report).collect(), own))
}

async fn first_pending(link: &Link, key: &str, group: &[u8]) -> Result<Option<String>, Error> {
    let mut cmd = Cmd::new();
    cmd.arg("XPENDING")
        .arg(key)
        .arg(group)
        .arg("-")
        .arg("+")
        .arg(1);
    let Some(held) = reply::array(COMMAND, link.call(COMMAND, &cmd).await?)?.pop() else {
        return Ok(None);
    };
    let [id, ..] = reply::tuple::<4>(COMMAND, held)?;
    reply::text(COMMAND, id).map(Some)
}

async fn due_in(link: &Link, set: &str, member: Bytes, now_ms: u64) -> Result<Option<u64>, Error> {
    let mut cmd = Cmd::new();
    cmd.arg("ZSCORE").arg(set).arg(member.as_ref());
    Ok(match link.call(COMMAND, &cmd).await? {
        // It was taken back meanwhile.
        Value::Nil => None,
        due => Some(reply::score(COMMAND, &due)?.saturating_sub(now_ms)),
    })
}

fn read_consumers(value: Value) -> Result<Vec<ConsumerReport>, Error> {
    let mut consumers = Vec::new();
    for info in reply::array(COMMAND, value)? {
        let mut info = Info::new(COMMAND, info)?;
        let name = reply::bytes(COMMAND, info.take("name"))?;
        // They mark the group, and hold nothing.
        if name.starts_with(EPOCH_CONSUMER.as_bytes()) || name == UNPARKED_CONSUMER {
            continue;
        }
        consumers.push(ConsumerReport {
            name: String::from_utf8_lossy(&name).into_owned(),
            pending: info.count("pending")?,
            idle_ms: info.count("idle")?,
        });
    }
    consumers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(consumers)
}
