//! The parts of a queue: from what was read to what a host serves.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::config::collect::Collected;
use crate::config::settings::{dead_letters, queue};
use crate::config::value::Value;
use crate::config::{Config, QueueKind, Reliable};
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::kind::QueueOptions;
use crate::queue::list::{ListOptions, Recovery};
use crate::queue::pubsub::{PubSubOptions, Subscription};
use crate::queue::simple_list::SimpleListOptions;
use crate::queue::stream::{GroupStart, StreamOptions};
use crate::wire;
use crate::wire::list::Framing;

/// The queue whose key holds this, as Redis calls it, for those who know no more of it: a reliable list
/// or a stream. With the word for its kind, if there is such a queue.
pub fn queue_of_type(key: &Arc<str>, holds: &str) -> (Option<&'static str>, QueueKind) {
    let key = Arc::clone(key);
    if holds == "list" {
        let list = QueueKind::List {
            key,
            framing: Framing::default(),
            reliable: Some(Reliable { recovery: None }),
        };
        return (Some(list.kind()), list);
    }
    let stream = QueueKind::Stream {
        key,
        group: "".into(),
        start: GroupStart::default(),
    };
    ((holds == "stream").then_some(stream.kind()), stream)
}

impl Config {
    /// The queue, and how a host serves it whose name begins with `consumer`.
    pub fn queue_options(&self, consumer: &str) -> QueueOptions {
        let consumer = consumer.to_owned();
        let dead_letter = self.dead_letter.as_ref().map(|d| DeadLetterQueue {
            key: d.key.to_string(),
            max_len: Some(d.max_len.get()),
            on_full: d.on_full,
            routes: d.routes.clone(),
        });
        match &self.queue {
            QueueKind::Stream { key, group, start } => QueueOptions::Stream(StreamOptions {
                key: key.to_string(),
                group: group.to_string(),
                consumer,
                start: *start,
                min_idle: self.min_idle,
                dead_letter,
                max_length: self.max_length.map(NonZeroU64::get),
                retention: self.retention,
                decoding: wire::stream::Options {
                    body_field: self.body_field.clone().into(),
                    missing_body: self.missing_body,
                },
            }),
            QueueKind::List {
                key,
                framing,
                reliable: Some(reliable),
            } => QueueOptions::List(ListOptions {
                key: key.to_string(),
                consumer,
                framing: *framing,
                min_idle: self.min_idle,
                recovery: reliable.recovery.clone(),
                dead_letter,
                max_length: self.max_length.map(NonZeroU64::get),
                ttl: self.ttl,
                accounting: self.policy.limit.accounting,
            }),
            QueueKind::List {
                key,
                framing,
                reliable: None,
            } => QueueOptions::SimpleList(SimpleListOptions {
                key: key.to_string(),
                consumer,
                framing: *framing,
            }),
            QueueKind::Channel {
                name,
                subscription,
                framing,
                buffer,
            } => QueueOptions::PubSub(PubSubOptions {
                name: name.to_string(),
                subscription: *subscription,
                consumer,
                framing: *framing,
                buffer: *buffer,
            }),
        }
    }
}

impl Collected {
    /// The channel or pattern that is set.
    pub(super) fn channel(&self) -> Option<(String, Subscription)> {
        let kinds = [
            (&queue::CHANNEL, Subscription::Channel),
            (&queue::PATTERN, Subscription::Pattern),
            (&queue::SHARDED_CHANNEL, Subscription::Sharded),
        ];
        kinds
            .into_iter()
            .find_map(|(setting, kind)| Some((self.value(setting)?, kind)))
    }

    /// How a list is read reliably; `None` = it is not.
    pub(super) fn check_reliable(&mut self, key: &str) -> Option<Reliable> {
        let is_reliable: bool = self.or_default(&queue::RELIABLE);
        let zset = self.value(&queue::RECOVERY_ZSET);
        let source = self.source(&queue::RECOVERY_ZSET).cloned();
        if !is_reliable {
            if zset.is_some() {
                let what = "`recovery_zset` means nothing without `reliable`: a simple list forgets \
                            what it hands out";
                let hint = "set `reliable` as well, or neither";
                self.conflict(source.as_ref(), what.to_owned(), hint.to_owned());
            }
            return None;
        }
        let dead_letter = self.value(&dead_letters::DEAD_LETTER_KEY);
        if let Some(zset) = zset.as_deref()
            && (zset == key || Some(zset) == dead_letter.as_deref())
        {
            let what = format!("`recovery_zset` is another key of this queue (`{zset}`)");
            let hint = format!("give a key of its own, such as `{key}:claims`");
            self.conflict(source.as_ref(), what, hint);
        }
        let ttl = self.value(&queue::RECOVERY_TTL);
        let min_idle = self.or_default(&queue::MIN_IDLE);
        if let Some(ttl) = ttl.filter(|ttl| *ttl <= min_idle) {
            let what = format!(
                "`recovery_ttl` ({}) must be longer than `min_idle` ({}): the records would be gone \
                 before anybody looks at them",
                ttl.show(),
                min_idle.show()
            );
            let source = self.source(&queue::RECOVERY_TTL).cloned();
            self.conflict(
                source.as_ref(),
                what,
                "several times `min_idle` is good".to_owned(),
            );
        }
        Some(Reliable {
            recovery: zset.map(|key| Recovery { key, ttl }),
        })
    }
}
