//! The requirements of each kind of queue: the types of its keys, and the rights of its user.
//!
//! The rights name every command with its keys, sent by Rust or by a script. Optional commands
//! (`CLIENT SETNAME`, `CLIENT ID`, `CLIENT UNBLOCK`, `ACL DRYRUN` itself) are left out.

use crate::outgoing::dedup::Dedup;
use crate::outgoing::{Outlets, outbox};
use crate::publish::{Channel, Destination};
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::journal;
use crate::queue::limits;
use crate::queue::list::ListOptions;
use crate::queue::pubsub::PubSubOptions;
use crate::queue::rights::Need;
use crate::queue::simple_list::SimpleListOptions;
use crate::queue::startup::Key;
use crate::queue::stream::{Retention, StreamOptions};
use crate::wire::keys;

/// The keys of this stream: its own first, dead letters last.
pub(super) fn stream_keys(options: &StreamOptions, is_cluster: bool) -> Vec<Key> {
    let (key, group) = (&options.key, &options.group);
    let mut keys = vec![
        Key::new(key, "stream", "the queue"),
        Key::new(keys::parked(key, group), "zset", "parked deliveries"),
        Key::new(keys::delayed(key), "zset", "messages published for later"),
        Key::new(keys::held(key, group), "zset", "holds"),
        Key::new(keys::fences(key, group), "zset", "repeated calls of hosts"),
        Key::new(keys::late(key, group), "zset", "late acknowledgements"),
        Key::new(keys::min_idle(key, Some(group)), "zset", TERMS),
    ];
    if options.journal.is_some() {
        keys.push(Key::new(keys::journals(key, group), "zset", "the journals"));
    }
    keys.extend(schedule_keys(options.schedules, key));
    keys.extend(targets(options.dead_letter.as_ref(), key, "stream"));
    keys.extend(Publishing::of(&options.outlets, key, options.outbox, is_cluster).keys());
    keys
}

/// The keys of this reliable list: its own first, dead letters last.
pub(super) fn list_keys(options: &ListOptions, is_cluster: bool) -> Vec<Key> {
    let key = &options.key;
    let mut keys = vec![
        Key::new(key, "list", "the queue"),
        Key::new(keys::retry(key), "list", "values to try again"),
        Key::new(keys::delayed(key), "zset", "delayed values"),
        Key::new(keys::instances(key), "zset", "the instances"),
        Key::new(keys::min_idle(key, None), "zset", TERMS),
    ];
    if options.journal.is_some() {
        keys.push(Key::new(keys::journals(key, ""), "zset", "the journals"));
    }
    let recovery = options.recovery.iter();
    keys.extend(recovery.map(|r| Key::new(&r.key, "zset", "the recovery set")));
    keys.extend(schedule_keys(options.schedules, key));
    keys.extend(targets(options.dead_letter.as_ref(), key, "list"));
    keys.extend(Publishing::of(&options.outlets, key, options.outbox, is_cluster).keys());
    keys
}

const TERMS: &str = "the terms of the hosts";

/// Every key that a dead letter may go to, other than the queue itself. A single reason may lead back to
/// the queue: a message that no handler has seen since then ends in the cycle key.
fn targets(dead_letter: Option<&DeadLetterQueue>, source: &str, needed: &'static str) -> Vec<Key> {
    let Some(dead_letter) = dead_letter else {
        return Vec::new();
    };
    let refused = dead_letter.key == source || dead_letter.cycle(source) == source;
    let mut targets = dead_letter.targets(source);
    targets.retain(|key| key != source || refused);
    let key = |key| Key::new(key, needed, "the dead-letter queue");
    targets.into_iter().map(key).collect()
}

/// Where a handler publishes: all at once with the acknowledgement, or through outboxes.
struct Publishing<'a> {
    outlets: &'a Outlets,
    /// The queue, and which of its destinations have an outbox; `None` = none has.
    outboxes: Option<(&'a str, outbox::Rules, bool)>,
}

impl<'a> Publishing<'a> {
    fn of(outlets: &'a Outlets, queue: &'a str, rules: outbox::Rules, is_cluster: bool) -> Self {
        Self {
            outlets,
            outboxes: Some((queue, rules, is_cluster)),
        }
    }

    fn has_outbox(&self, to: &Destination) -> bool {
        self.outboxes
            .is_some_and(|(queue, rules, is_cluster)| rules.concern(queue, to, is_cluster))
    }

    /// Every command that publishing needs.
    fn needs(&self, needs: &mut Vec<Need>) {
        let outlets = self.outlets;
        if !outlets.is_empty() {
            needs.push(Need::new("TIME", &[]));
            needs.push(Need::new("SCRIPT LOAD", &["return 1"]));
            needs.push(Need::new("EVALSHA", &["0", "0"]));
        }
        for destination in outlets.values() {
            let name = destination.name();
            let mut need = |command: &'static str, arguments: &[&str]| {
                needs.push(Need::new(command, arguments))
            };
            if let Some((queue, ..)) = self.outboxes
                && self.has_outbox(destination)
            {
                let (all, outbox) = (
                    keys::outboxes(queue),
                    keys::outbox(queue, &destination.label()),
                );
                need("SMEMBERS", &[&all]);
                need("SADD", &[&all, "m"]);
                need("XADD", &[&outbox, "*", "name", "value"]);
                need("XLEN", &[&outbox]);
                need("XRANGE", &[&outbox, "-", "+"]);
                need("XTRIM", &[&outbox, "MINID", "0-1"]);
                need("TYPE", &[&outbox]);
                need("EVALSHA", &["0", "1", &outbox]);
                let from = keys::from(name);
                need("HGET", &[&from, "o"]);
                need("HSET", &[&from, "o", "0-1"]);
                need("EVALSHA", &["0", "1", &from]);
            }
            match destination {
                Destination::Stream(_) => need("XADD", &[name, "*", "name", "value"]),
                Destination::List(_) => need("LPUSH", &[name, "v"]),
                Destination::Channel(Channel { sharded: false, .. }) => {
                    need("PUBLISH", &[name, "v"]);
                }
                Destination::Channel(_) => need("SPUBLISH", &[name, "v"]),
            }
            if destination.is_channel() {
                continue;
            }
            need("TYPE", &[name]);
            need("EVALSHA", &["0", "1", name]);
            if destination.takes_delays().is_ok() {
                let delayed = keys::delayed(name);
                need("ZADD", &[&delayed, "1", "m"]);
                need("TYPE", &[&delayed]);
                need("EVALSHA", &["0", "1", &delayed]);
            }
        }
    }

    /// The keys, but for the queue itself and its delayed messages, which are asked for anyway.
    fn keys(&self) -> Vec<Key> {
        let mut all = Vec::new();
        for destination in self.outlets.values() {
            let name = destination.name();
            let Some((queue, ..)) = self.outboxes.filter(|(queue, ..)| *queue != name) else {
                continue;
            };
            if self.has_outbox(destination) {
                let (all_outboxes, label) = (keys::outboxes(queue), destination.label());
                let outbox = keys::outbox(queue, &label);
                all.push(Key::new(all_outboxes, "set", "the outboxes"));
                all.push(Key::new(outbox, "stream", "an outbox"));
                all.push(Key::new(keys::from(name), "hash", "the marks of outboxes").elsewhere());
            }
            let own = match destination {
                Destination::Stream(_) => "stream",
                Destination::List(_) => "list",
                Destination::Channel(_) => continue,
            };
            all.push(Key::new(name, own, "a destination of the handler").elsewhere());
            if destination.takes_delays().is_ok() {
                let delayed = keys::delayed(name);
                let delayed = Key::new(delayed, "zset", "messages published for later");
                all.push(delayed.elsewhere());
            }
        }
        all
    }
}

/// Every command that looking for duplicates needs.
fn deduplicating(dedup: Option<&Dedup>, key: &str, group: Option<&str>, needs: &mut Vec<Need>) {
    if dedup.is_none() {
        return;
    }
    // Every stretch of time has its own set: any number will do.
    let marks = keys::done(key, group, 1);
    let mut need =
        |command: &'static str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    need("TYPE", &[&marks]);
    need("SADD", &[&marks, "m"]);
    need("SCARD", &[&marks]);
    need("SISMEMBER", &[&marks, "m"]);
    need("SMISMEMBER", &[&marks, "m"]);
    need("PTTL", &[&marks]);
    need("PEXPIRE", &[&marks, "1"]);
    need("EVALSHA", &["0", "1", &marks]);
}

/// Every command that journals need. `group` is empty for a list.
fn journaling(rules: Option<journal::Rules>, key: &str, group: &str, needs: &mut Vec<Need>) {
    if rules.is_none() {
        return;
    }
    let mut need =
        |command: &'static str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    let (index, journal) = (keys::journals(key, group), keys::journal(key, group, "0-1"));
    need("EXISTS", &[&index]);
    need("UNLINK", &[&index]);
    need("ZADD", &[&index, "1", "m"]);
    need("ZREM", &[&index, "m"]);
    need("ZSCORE", &[&index, "m"]);
    need("ZCARD", &[&index]);
    need("ZINCRBY", &[&index, "1", "m"]);
    need("ZRANGEBYSCORE", &[&index, "0", "1"]);
    need("HGETALL", &[&journal]);
    need("HGET", &[&journal, "f"]);
    need("HSET", &[&journal, "f", "v"]);
    need("HDEL", &[&journal, "f"]);
    need("HLEN", &[&journal]);
    need("HINCRBY", &[&journal, "f", "1"]);
    need("UNLINK", &[&journal]);
    need("EVALSHA", &["0", "3", key, &index, &journal]);
}

/// Every command that schedules need.
fn scheduling(has_schedules: bool, key: &str, needs: &mut Vec<Need>) {
    if !has_schedules {
        return;
    }
    let (hash, ticks) = (keys::schedules(key), keys::ticks(key));
    let mut need =
        |command: &'static str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    need("EXISTS", &[&hash]);
    need("HGET", &[&hash, "f"]);
    need("HMGET", &[&hash, "f"]);
    need("HKEYS", &[&hash]);
    need("HLEN", &[&hash]);
    need("HSET", &[&hash, "f", "v"]);
    need("HDEL", &[&hash, "f"]);
    need("ZADD", &[&ticks, "1", "m"]);
    need("ZREM", &[&ticks, "m"]);
    need("ZSCORE", &[&ticks, "m"]);
    need("ZCARD", &[&ticks]);
    need("ZRANGEBYSCORE", &[&ticks, "0", "1"]);
    // Values that carry no headers go this way.
    let delayed = keys::delayed(key);
    need("ZADD", &[&delayed, "1", "m"]);
    need("TYPE", &[&delayed]);
    need("EVALSHA", &["0", "4", &hash, &ticks, key, &delayed]);
}

/// The keys of schedules.
fn schedule_keys(has_schedules: bool, key: &str) -> impl Iterator<Item = Key> {
    let keys = has_schedules.then(|| {
        [
            Key::new(keys::schedules(key), "hash", "the schedules"),
            Key::new(keys::ticks(key), "zset", "the ticks of schedules"),
        ]
    });
    keys.into_iter().flatten()
}

/// Every command that answers to producers need.
fn answering(key: &str, needs: &mut Vec<Need>) {
    // Producers make up the name of an inbox: any will do.
    let inbox = keys::replies(key, "i");
    needs.push(Need::new("XADD", &[&inbox, "*", "name", "value"]));
    needs.push(Need::new("PEXPIRE", &[&inbox, "1"]));
}

/// Every command that the keys of a handler need.
fn keeping(prefix: Option<&str>, needs: &mut Vec<Need>) {
    let Some(prefix) = prefix else {
        return;
    };
    // The handler makes up the rest of a key: any will do.
    let key = format!("{prefix}k");
    let mut need =
        |command: &'static str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    need("TYPE", &[&key]);
    need("STRLEN", &[&key]);
    need("GET", &[&key]);
    need("SET", &[&key, "v"]);
    need("DEL", &[&key]);
    need("INCRBY", &[&key, "1"]);
    need("EVALSHA", &["0", "1", &key]);
}

/// Every command that serving this stream needs.
pub(super) fn stream(options: &StreamOptions, is_cluster: bool) -> Vec<Need> {
    let parked = keys::parked(&options.key, &options.group);
    let fences = keys::fences(&options.key, &options.group);
    let mut needs = Vec::new();
    let mut need =
        |command: &'static str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    let key = options.key.as_str();
    need("INFO", &[]);
    need("TIME", &[]);
    need("SCRIPT LOAD", &["return 1"]);
    need("TYPE", &[key]);
    need("EXISTS", &[key]);
    need(
        "XREADGROUP",
        &["GROUP", "g", "c", "COUNT", "1", "STREAMS", key, ">"],
    );
    need("XACK", &[key, "g", "0-1"]);
    need("XPENDING", &[key, "g"]);
    need("XCLAIM", &[key, "g", "c", "0", "0-1"]);
    need("XRANGE", &[key, "-", "+"]);
    need("XGROUP CREATE", &[key, "g", "0"]);
    need("XGROUP DELCONSUMER", &[key, "g", "c"]);
    need("XINFO GROUPS", &[key]);
    need("XINFO CONSUMERS", &[key, "g"]);
    need("XINFO STREAM", &[key]);
    if options.retention != Retention::Keep {
        need("XTRIM", &[key, "MINID", "0-1"]);
        need("XLEN", &[key]);
    }
    if options.max_length.is_some() {
        need("XLEN", &[key]);
    }
    need("ZADD", &[&parked, "1", "0-1"]);
    need("ZREM", &[&parked, "0-1"]);
    need("ZSCORE", &[&parked, "0-1"]);
    need("ZRANGE", &[&parked, "0", "0"]);
    need("ZRANGEBYSCORE", &[&parked, "0", "1"]);
    need("ZCARD", &[&parked]);
    let held = keys::held(&options.key, &options.group);
    need("ZADD", &[&held, "1", "0-1"]);
    need("ZREM", &[&held, "0-1"]);
    need("ZSCORE", &[&held, "0-1"]);
    need("ZCARD", &[&held]);
    need("ZRANGE", &[&held, "0", "0"]);
    let late = keys::late(&options.key, &options.group);
    need("ZADD", &[&late, "1", "0-1"]);
    need("ZREM", &[&late, "0-1"]);
    need("ZSCORE", &[&late, "0-1"]);
    need("ZCARD", &[&late]);
    need("ZRANGE", &[&late, "0", "0"]);
    need("ZRANGEBYSCORE", &[&late, "0", "1"]);
    need("EVALSHA", &["0", "3", key, &late, &parked]);
    need("ZADD", &[&fences, "GT", "1", "c"]);
    need("ZREM", &[&fences, "c"]);
    need("ZSCORE", &[&fences, "c"]);
    let terms = keys::min_idle(&options.key, Some(&options.group));
    need("ZADD", &[&terms, "1", "h"]);
    need("ZREM", &[&terms, "h"]);
    need("ZCARD", &[&terms]);
    need("ZRANGE", &[&terms, "0", "0"]);
    need("ZRANGEBYSCORE", &[&terms, "0", "1"]);
    let delayed = keys::delayed(&options.key);
    need("XADD", &[key, "*", "name", "value"]);
    need("ZREM", &[&delayed, "m"]);
    need("ZCARD", &[&delayed]);
    need("ZRANGE", &[&delayed, "0", "0"]);
    need("ZRANGEBYSCORE", &[&delayed, "0", "1"]);
    need("EVALSHA", &["0", "2", key, &parked]);
    need("EVALSHA", &["0", "2", key, &delayed]);
    need("EVALSHA", &["0", "2", key, &terms]);
    need("EVALSHA", &["0", "3", key, &parked, &fences]);
    if let Some(dead_letter) = &options.dead_letter {
        // Messages with very many fields.
        need("MULTI", &[]);
        need("EXEC", &[]);
        for dead in dead_letter.targets(key) {
            let dead = dead.as_str();
            need("TYPE", &[dead]);
            need("XADD", &[dead, "*", "name", "value"]);
            need("XLEN", &[dead]);
            need("EVALSHA", &["0", "2", key, dead]);
        }
    }
    // Any producer may wait for an answer: its message is acknowledged with it.
    let written = keys::written(key, &options.group);
    need("ZADD", &[&written, "1", "0-1"]);
    need("ZREM", &[&written, "0-1"]);
    need("ZSCORE", &[&written, "0-1"]);
    need("ZCARD", &[&written]);
    need("ZRANGE", &[&written, "0", "0"]);
    need("PEXPIRE", &[&written, "1"]);
    // Every host has its own: any name will do.
    let acted = keys::acted(key, &options.group, "h");
    need("GETRANGE", &[&acted, "0", "-1"]);
    need("SET", &[&acted, "v", "PX", "1"]);
    need("EVALSHA", &["0", "3", key, &acted, &written]);
    answering(key, &mut needs);
    Publishing::of(&options.outlets, key, options.outbox, is_cluster).needs(&mut needs);
    keeping(options.keys.as_deref(), &mut needs);
    let group = Some(&*options.group);
    deduplicating(options.dedup.as_ref(), key, group, &mut needs);
    journaling(options.journal, key, &options.group, &mut needs);
    limits::needs(&options.limits, &mut needs);
    scheduling(options.schedules, key, &mut needs);
    needs
}

/// Every command that serving this reliable list needs. `BLMOVE` is not among them: without it, a
/// host polls.
pub(super) fn list(options: &ListOptions, is_cluster: bool) -> Vec<Need> {
    let key = options.key.as_str();
    let retry = keys::retry(key);
    let delayed = keys::delayed(key);
    let instances = keys::instances(key);
    let terms = keys::min_idle(key, None);
    // Every instance has its own: any name will do.
    let processing = keys::processing(key, "i");
    let started = keys::started(key, "i");
    let mut needs = Vec::new();
    let mut need =
        |command: &'static str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    need("INFO", &[]);
    need("TIME", &[]);
    need("SCRIPT LOAD", &["return 1"]);
    for list in [key, &retry, &processing] {
        need("TYPE", &[list]);
        need("LLEN", &[list]);
        need("LRANGE", &[list, "0", "1"]);
    }
    for list in [key, &retry] {
        need("LTRIM", &[list, "0", "1"]);
        need("LPUSH", &[list, "v"]);
        need("RPUSH", &[list, "v"]);
    }
    need("LPUSH", &[&processing, "v"]);
    need("LREM", &[&processing, "1", "v"]);
    need("LPOS", &[&processing, "v"]);
    need("HSET", &[&started, "t", "1"]);
    need("HGET", &[&started, "t"]);
    need("HDEL", &[&started, "t"]);
    need("DEL", &[&started]);
    let written = keys::written(key, "");
    need("PEXPIRE", &[&written, "1"]);
    let sets = [
        Some(&delayed),
        Some(&instances),
        Some(&terms),
        Some(&written),
        options.recovery.as_ref().map(|r| &r.key),
    ];
    for set in sets.into_iter().flatten() {
        need("TYPE", &[set]);
        need("ZADD", &[set, "1", "m"]);
        need("ZREM", &[set, "m"]);
        need("ZSCORE", &[set, "m"]);
        need("ZCARD", &[set]);
        need("ZRANGE", &[set, "0", "0"]);
        need("ZRANGEBYSCORE", &[set, "0", "1"]);
    }
    if let Some(recovery) = &options.recovery {
        need("PEXPIRE", &[&recovery.key, "1"]);
    }
    need("EVALSHA", &["0", "2", key, &processing]);
    if let Some(dead_letter) = &options.dead_letter {
        for dead in dead_letter.targets(key) {
            let dead = dead.as_str();
            need("TYPE", &[dead]);
            need("LPUSH", &[dead, "v"]);
            need("LLEN", &[dead]);
            need("LTRIM", &[dead, "0", "1"]);
            need("EVALSHA", &["0", "2", &processing, dead]);
        }
    }
    Publishing::of(&options.outlets, key, options.outbox, is_cluster).needs(&mut needs);
    keeping(options.keys.as_deref(), &mut needs);
    deduplicating(options.dedup.as_ref(), key, None, &mut needs);
    journaling(options.journal, key, "", &mut needs);
    limits::needs(&options.limits, &mut needs);
    scheduling(options.schedules, key, &mut needs);
    answering(key, &mut needs);
    needs
}

/// Every command that serving this simple list needs.
pub(super) fn simple_list(options: &SimpleListOptions) -> Vec<Need> {
    let key = options.key.as_str();
    let mut needs = vec![
        Need::new("INFO", &[]),
        Need::new("TYPE", &[key]),
        Need::new("LLEN", &[key]),
        Need::new("LMPOP", &["1", key, "RIGHT"]),
        Need::new("BLMPOP", &["1", "1", key, "RIGHT"]),
    ];
    Publishing {
        outlets: &options.outlets,
        outboxes: None,
    }
    .needs(&mut needs);
    needs
}

/// Every command that serving this subscription needs.
pub(super) fn pubsub(options: &PubSubOptions) -> Vec<Need> {
    let command = options.subscription.command();
    let mut needs = vec![Need::new("INFO", &[]), Need::new(command, &[&options.name])];
    Publishing {
        outlets: &options.outlets,
        outboxes: None,
    }
    .needs(&mut needs);
    needs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::publish::List;
    use crate::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
    use crate::queue::list::Recovery;

    /// Every command that a script sends is asked for.
    #[test]
    fn scripts_need_nothing_else() {
        let mut options = StreamOptions::new("orders", "g");
        options.retention = Retention::Acked;
        options.dead_letter = Some(DeadLetterQueue {
            key: "dead".to_owned(),
            max_len: None,
            on_full: OnFull::Stop,
            routes: Default::default(),
        });
        options.keys = Some("{orders}:kv:".into());
        options.schedules = true;
        options.journal = Some(journal::Rules {
            bytes: 1,
            keep: Duration::from_secs(1),
        });
        options.dedup = Some(Dedup {
            window: Duration::from_secs(1),
            header: None,
            max_ids: 1,
        });
        let destinations = [
            ("a", Destination::stream("a")),
            ("b", List::new("b").reliable().into()),
            ("c", Channel::new("c").sharded().into()),
        ];
        let named = destinations.map(|(name, to)| (name.to_owned(), to));
        options.outlets = Arc::new(named.into());
        options.outbox.mode = outbox::Mode::Always;
        let lists = ListOptions {
            outlets: Arc::clone(&options.outlets),
            outbox: options.outbox,
            keys: Some("{jobs}:kv:".into()),
            dedup: options.dedup.clone(),
            journal: options.journal,
            schedules: true,
            recovery: Some(Recovery {
                key: "claims".to_owned(),
                ttl: None,
            }),
            dead_letter: options.dead_letter.clone(),
            ..ListOptions::new("jobs")
        };
        let grants = |needs: Vec<Need>| needs.into_iter().map(|n| n.grant).collect();
        let (streams, lists): (BTreeSet<_>, BTreeSet<_>) =
            (grants(stream(&options, false)), grants(list(&lists, false)));
        let mut sent = 0;
        // A host replays nothing, publishes nothing and deploys nothing; and it can serve without the
        // right to report its state.
        let serving = [
            crate::queue::scripts::ALL,
            crate::queue::stream::scripts::ALL,
            crate::queue::list::scripts::ALL,
            crate::outgoing::scripts::ALL,
            crate::key_values::scripts::ALL,
            crate::schedule::scripts::ALL,
            crate::registry::scripts::ALL,
        ];
        for script in serving.concat() {
            let asked = if script.name().starts_with("list_") {
                &lists
            } else {
                &streams
            };
            for call in script.source().split("redis.call('").skip(1) {
                let mut parts = call.split('\'');
                let mut grant = parts.next().unwrap().to_lowercase();
                if grant == "xgroup" || grant == "xinfo" {
                    grant = format!("{grant}|{}", parts.nth(1).unwrap().to_lowercase());
                }
                assert!(asked.contains(&grant), "{} sends {grant}", script.name());
                sent += 1;
            }
        }
        assert!(sent > 50, "only {sent} calls found");
    }
}
