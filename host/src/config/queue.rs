//! From the queue in the configuration to the options of the queue that a host serves.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::config::{Config, QueueKind, Reliable};
use crate::publish::{Codec, Destination, List, Stream};
use crate::queue::byte_bounds::held_max;
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::kind::QueueOptions;
use crate::queue::list::ListOptions;
use crate::queue::pubsub::PubSubOptions;
use crate::queue::simple_list::SimpleListOptions;
use crate::queue::stream::{GroupStart, StreamOptions};
use crate::wire;
use crate::wire::list::Framing;

/// The queue at this key, by the type that Redis reports, if nothing else is known of it: a reliable list, or
/// else a stream. With the word for its kind, if the key holds a queue.
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
    /// Where the messages of schedules go; `None` = a queue of this kind has none.
    pub fn schedule_destination(&self) -> Option<Destination> {
        match &self.queue {
            QueueKind::Stream { key, .. } => Some(
                Stream::new(&**key)
                    .body_field(self.body_field.clone())
                    .into(),
            ),
            QueueKind::List {
                key,
                framing,
                reliable: Some(_),
            } => {
                let codec = match framing {
                    Framing::Raw => Codec::Raw,
                    framing => framing.codec(),
                };
                Some(List::new(&**key).codec(codec).reliable().into())
            }
            QueueKind::List { reliable: None, .. } | QueueKind::Channel { .. } => None,
        }
    }

    /// The options with which a host serves the queue. The name of the host begins with `consumer`.
    pub fn queue_options(&self, consumer: &str) -> QueueOptions {
        let consumer = consumer.to_owned();
        let handlers = self.sandbox.concurrency;
        let held_max = held_max(handlers.saturating_mul(self.max_payload.as_usize()));
        let outlets = Arc::clone(&self.outlets);
        let keys = self.sandbox.grants.key_value.as_ref();
        let keys = keys.map(|rules| Arc::clone(&rules.prefix));
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
                outlets,
                outbox: self.outbox,
                keys,
                dedup: self.dedup.clone(),
                journal: self.journal,
                schedules: !self.schedules.is_empty(),
                reply_keep: self.reply_keep,
                dead_letter,
                max_length: self.max_length.map(NonZeroU64::get),
                retention: self.retention,
                limits: Arc::clone(&self.limits),
                decoding: wire::stream::Options {
                    body_field: self.body_field.clone().into(),
                    missing_body: self.missing_body,
                },
                held_max,
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
                outlets,
                outbox: self.outbox,
                keys,
                dedup: self.dedup.clone(),
                journal: self.journal,
                schedules: !self.schedules.is_empty(),
                reply_keep: self.reply_keep,
                recovery: reliable.recovery.clone(),
                dead_letter,
                max_length: self.max_length.map(NonZeroU64::get),
                ttl: self.ttl,
                accounting: self.policy.limit.accounting,
                limits: Arc::clone(&self.limits),
                held_max,
            }),
            QueueKind::List {
                key,
                framing,
                reliable: None,
            } => QueueOptions::SimpleList(SimpleListOptions {
                key: key.to_string(),
                consumer,
                framing: *framing,
                held_max,
                outlets,
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
                outlets,
            }),
        }
    }
}
