//! What Redis holds when all is over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use hostler_tests::redis::{Entry, RawRedis};

use crate::history::{Dead, Harvest, Kind};
use crate::publisher::QUEUE;
use crate::wire;

/// The consumer group.
pub const GROUP: &str = "workers";
/// The dead letters.
pub const DEAD: &str = "orders:dead";
/// The recovery set of a reliable list.
pub const CLAIMS: &str = "orders:claims";
/// How many entries are read at once.
const PAGE: usize = 2_000;
/// How many messages that wait are named.
const NAMED: usize = 1_000;

/// How much is not done: unread, running, delayed. `None` if the server does not answer.
pub async fn backlog(raw: &RawRedis, kind: Kind) -> Option<u64> {
    match kind {
        Kind::Stream => stream_backlog(raw).await,
        Kind::List => {
            // In one step: a message that moves from one key to another is in one of them.
            const COUNT: &str = "local left = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2]) \
                + redis.call('ZCARD', KEYS[3]) \
                for _, key in ipairs(redis.call('KEYS', ARGV[1])) do left = left + redis.call('LLEN', key) end \
                return left";
            let keys = [
                QUEUE.to_owned(),
                format!("{{{QUEUE}}}:retry"),
                format!("{{{QUEUE}}}:delayed"),
                format!("{{{QUEUE}}}:processing:*"),
            ];
            let mut words: Vec<&[u8]> = vec![b"EVAL", COUNT.as_bytes(), b"3"];
            words.extend(keys.iter().map(String::as_bytes));
            let left = raw.try_ask_words(&words).await.ok()?;
            redis::from_redis_value(left).ok()
        }
        Kind::SimpleList => length(raw, QUEUE).await,
        Kind::Channel => Some(0),
    }
}

async fn stream_backlog(raw: &RawRedis) -> Option<u64> {
    let summary = raw.try_ask(&format!("XPENDING {QUEUE} {GROUP}")).await;
    let pending = match summary {
        Ok(redis::Value::Array(parts)) => redis::from_redis_value(parts.first()?.clone()).ok()?,
        Ok(_) => 0,
        // No host has made the group yet, or no message the stream.
        Err(error) if error.code() == Some("NOGROUP") => {
            return u64::try_from(raw.number(&format!("XLEN {QUEUE}")).await).ok();
        }
        Err(_) => return None,
    };
    let last = last_delivered(raw).await?;
    let unread = raw
        .try_ask(&format!("XRANGE {QUEUE} ({last} + COUNT 100"))
        .await
        .ok()?;
    let unread: Vec<Entry> = redis::from_redis_value(unread).ok()?;
    let delayed = length(raw, &format!("{{{QUEUE}}}:delayed")).await?;
    Some(pending + unread.len() as u64 + delayed)
}

async fn last_delivered(raw: &RawRedis) -> Option<String> {
    let groups = raw.try_ask(&format!("XINFO GROUPS {QUEUE}")).await.ok()?;
    let groups: Vec<BTreeMap<String, redis::Value>> = redis::from_redis_value(groups).ok()?;
    for mut group in groups {
        let name: String = redis::from_redis_value(group.remove("name")?).ok()?;
        if name == GROUP {
            return redis::from_redis_value(group.remove("last-delivered-id")?).ok();
        }
    }
    None
}

/// The keys that hold messages of a reliable list.
async fn list_keys(raw: &RawRedis) -> Option<Vec<String>> {
    let found = raw
        .try_ask(&format!("KEYS {{{QUEUE}}}:processing:*"))
        .await
        .ok()?;
    let mut keys: Vec<String> = redis::from_redis_value(found).ok()?;
    keys.extend([QUEUE.to_owned(), format!("{{{QUEUE}}}:retry")]);
    keys.push(format!("{{{QUEUE}}}:delayed"));
    Some(keys)
}

async fn length(raw: &RawRedis, key: &str) -> Option<u64> {
    let kind = raw.try_ask(&format!("TYPE {key}")).await.ok()?;
    let kind: String = redis::from_redis_value(kind).ok()?;
    let command = match &*kind {
        "list" => "LLEN",
        "zset" => "ZCARD",
        _ => return Some(0),
    };
    let length = raw.try_ask(&format!("{command} {key}")).await.ok()?;
    redis::from_redis_value(length).ok()
}

/// Look at everything. `kept` = also at the messages of a stream that are done.
///
/// # Errors
/// Redis says something unexpected.
pub async fn harvest(raw: &RawRedis, kind: Kind, kept: bool, secret: &str) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    match kind {
        Kind::Stream => {
            let letters = entries(raw, DEAD, "-").await?;
            for (id, fields) in letters {
                let fields = pairs(fields);
                add_dead(&mut harvest, &id, &fields, "h:", secret);
            }
            stream_waiting(raw, &mut harvest).await?;
            if kept {
                let all = entries(raw, QUEUE, "-").await?;
                let numbers = all
                    .into_iter()
                    .filter_map(|(_, fields)| number_of(&pairs(fields)));
                harvest.kept = Some(numbers.collect::<BTreeSet<u32>>());
            }
        }
        Kind::List => {
            for value in values(raw, DEAD).await? {
                let (headers, body) = hostler::wire::frame::decode(&value.into())
                    .context("a dead letter is no frame")?;
                let mut fields: BTreeMap<Vec<u8>, Vec<u8>> = headers
                    .iter()
                    .map(|(name, value)| (name.to_vec(), value.to_vec()))
                    .collect();
                fields.insert(b"_payload".to_vec(), body.to_vec());
                add_dead(&mut harvest, "a dead letter", &fields, "", secret);
            }
            for key in list_keys(raw).await.context("the keys of the list")? {
                wait_in(raw, &key, &mut harvest).await?;
            }
        }
        Kind::SimpleList => wait_in(raw, QUEUE, &mut harvest).await?,
        Kind::Channel => {}
    }
    Ok(harvest)
}

/// The messages whose publish is in an append-only file of this directory. A list keeps nothing of what is done; but
/// the file of a server that was killed has all that this server had written, and the server began with it again.
///
/// # Errors
/// A file cannot be read.
pub fn written(dir: &Path) -> std::io::Result<BTreeSet<u32>> {
    let mut written = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let bytes = std::fs::read(entry?.path())?;
        written.extend(
            wire::ids_in(&bytes)
                .iter()
                .filter_map(|id| wire::number(id)),
        );
    }
    Ok(written)
}

async fn wait_in(raw: &RawRedis, key: &str, harvest: &mut Harvest) -> Result<()> {
    for value in values(raw, key).await? {
        match wire::id_in(&value)
            .as_deref()
            .map(|id| (id, wire::number(id)))
        {
            Some((_, Some(number))) => harvest.waiting.push(number),
            Some((id, None)) => harvest.strangers.push(id.to_owned()),
            None => harvest.strangers.push(format!("a value of {key}")),
        }
    }
    harvest.waiting.truncate(NAMED);
    harvest.strangers.truncate(NAMED);
    Ok(())
}

/// The members of a list or of a sorted set.
async fn values(raw: &RawRedis, key: &str) -> Result<Vec<Vec<u8>>> {
    let kind = raw.text(&format!("TYPE {key}")).await;
    let command = match &*kind {
        "list" => "LRANGE",
        "zset" => "ZRANGE",
        _ => return Ok(Vec::new()),
    };
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        let to = all.len() + PAGE - 1;
        let page = raw
            .ask(&format!("{command} {key} {} {to}", all.len()))
            .await;
        let page: Vec<Vec<u8>> = redis::from_redis_value(page)?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

async fn entries(raw: &RawRedis, key: &str, from: &str) -> Result<Vec<Entry>> {
    let mut all: Vec<Entry> = Vec::new();
    let mut from = from.to_owned();
    loop {
        let page = raw
            .ask(&format!("XRANGE {key} {from} + COUNT {PAGE}"))
            .await;
        let page: Vec<Entry> = redis::from_redis_value(page)?;
        let Some((last, _)) = page.last() else {
            return Ok(all);
        };
        from = format!("({last}");
        all.extend(page);
    }
}

async fn stream_waiting(raw: &RawRedis, harvest: &mut Harvest) -> Result<()> {
    let Some(last) = last_delivered(raw).await else {
        return Ok(());
    };
    let unread = raw
        .ask(&format!("XRANGE {QUEUE} ({last} + COUNT {NAMED}"))
        .await;
    let mut waiting: Vec<Entry> = redis::from_redis_value(unread)?;
    let pending = raw
        .ask(&format!("XPENDING {QUEUE} {GROUP} - + {NAMED}"))
        .await;
    let pending: Vec<(String, String, u64, u64)> = redis::from_redis_value(pending)?;
    for (id, ..) in pending {
        let entry = raw.ask(&format!("XRANGE {QUEUE} {id} {id}")).await;
        let entry: Vec<Entry> = redis::from_redis_value(entry)?;
        match entry.is_empty() {
            true => harvest.strangers.push(format!("the pending entry {id}")),
            false => waiting.extend(entry),
        }
    }
    for (id, fields) in waiting {
        match number_of(&pairs(fields)) {
            Some(number) => harvest.waiting.push(number),
            None => harvest.strangers.push(id),
        }
    }
    Ok(())
}

fn pairs(fields: Vec<Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut fields = fields.into_iter();
    let mut pairs = BTreeMap::new();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        pairs.insert(name, value);
    }
    pairs
}

fn number_of(fields: &BTreeMap<Vec<u8>, Vec<u8>>) -> Option<u32> {
    let id = fields.get(b"h:x-message-id".as_slice())?;
    wire::number(std::str::from_utf8(id).ok()?)
}

fn add_dead(
    harvest: &mut Harvest,
    id: &str,
    fields: &BTreeMap<Vec<u8>, Vec<u8>>,
    prefix: &str,
    secret: &str,
) {
    let text = |name: &str| {
        let value = fields.get(format!("{prefix}{name}").as_bytes());
        value.map_or_else(String::new, |value| {
            String::from_utf8_lossy(value).into_owned()
        })
    };
    let own = text("x-message-id");
    let Some(message) = wire::number(&own) else {
        harvest.strangers.push(format!("{own} ({id})"));
        return;
    };
    let body = fields
        .get(b"_payload".as_slice())
        .cloned()
        .unwrap_or_default();
    let is_secret = |value: &Vec<u8>| String::from_utf8_lossy(value).contains(secret);
    if fields.values().any(is_secret) {
        harvest.leaks.push(format!("the dead letter {own}"));
    }
    harvest.dead.push(Dead {
        message,
        reason: text("x-dead-letter-reason"),
        attempts: text("x-dead-letter-attempts").parse().unwrap_or(0),
        detail: text("x-dead-letter-detail"),
        length: u32::try_from(body.len()).unwrap_or(u32::MAX),
        crc: crc32fast::hash(&body),
    });
}
