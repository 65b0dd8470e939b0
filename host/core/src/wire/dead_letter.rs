//! The content of a dead letter: the original, byte for byte, and the reason of its death.

use std::ops::Range;

use bytes::Bytes;

use crate::delivery::death::History;
use crate::delivery::declared::headers;
use crate::delivery::evidence::Evidence;
use crate::delivery::message::{
    EXPIRES_AT, Headers, MESSAGE_ID, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS, RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
};
use crate::delivery::policy::Rejection;
use crate::delivery::text::{DETAIL_MAX, truncated};
use crate::wire::death::{self, Incoming, X_DEATH};
use crate::wire::decoded::message_id;
use crate::wire::stream::{HEADER_PREFIX, header_name};

pub mod replay;

headers! {
    /// The reason: one of the labels below.
    REASON = "x-dead-letter-reason";
    /// Text for people, at most 1 KiB: the reason of the handler, the fault, or the missing part.
    DETAIL = "x-dead-letter-detail";
    /// The key of the queue in which the message died.
    SOURCE = "x-dead-letter-source";
    /// The id of the message in that queue: of the entry in a stream, of the delivery in a list.
    SOURCE_ID = "x-dead-letter-source-id";
    /// The starts of the handler that were charged to the message.
    ATTEMPTS = "x-dead-letter-attempts";
    /// The digest of the handler of the last attempt.
    HANDLER = "x-dead-letter-handler";
    /// The end of the log of the last attempt, if it wrote anything: whole lines, and the functions in which it
    /// trapped. `dead_letter.log` bounds it. A replayed copy does not have it.
    LOG = "x-dead-letter-log";
    /// The last calls of the last attempt, if it made any: JSON, at most 4 KiB. A replayed copy does not have it.
    CALLS = "x-dead-letter-calls";
    /// Every answer of the host to the last attempt, with `dead_letter.recording = "full"`: JSON, at most 256 KiB.
    /// `hostler dlq debug` runs the attempt again. A replayed copy does not have it.
    RECORDING = "x-dead-letter-recording";
    /// The consumer group in which the message died; absent in a list.
    GROUP = "x-dead-letter-group";
    /// The queue in which the message died first. This header never changes.
    FIRST_DEATH_QUEUE = "x-first-death-queue";
    /// The reason of the first death. This header never changes.
    FIRST_DEATH_REASON = "x-first-death-reason";
    /// The queue in which the message died last.
    LAST_DEATH_QUEUE = "x-last-death-queue";
    /// The reason of the last death.
    LAST_DEATH_REASON = "x-last-death-reason";
    /// How often the message was replayed.
    REPLAYED = "x-replayed";
    /// On a replayed copy: the only consumer group that runs it.
    ONLY_GROUP = "x-only-group";
    /// The message is handled again although a message with its id was handled already: written by
    /// `dlq replay --again`.
    AGAIN = "x-hostler-again";
    /// `raw` if the values of the source list have no headers. A replay then writes to the list beside it.
    FRAMING = "x-dead-letter-framing";
    /// On a reliable list: how many hosts died while they held the message. It has no effect in a message
    /// that a producer wrote.
    CRASHES = "x-hostler-crashes";
    /// On a reliable list: how often the message was held, and when the first hold ended, in epoch milliseconds. Hosts write it where
    /// they put a message back.
    HELD = "x-hostler-held";
    /// On a reliable list: the token that the message had first. Its journal is called so. Hosts write it where they put a
    /// message back, or take it over.
    JOURNAL = "x-hostler-journal";
    /// On a reliable list: records of the message from before its death, as the field of an entry of a stream has them. No
    /// handler sees it.
    RECORDS = "x-hostler-records";
}

/// Headers of the original that are not copied. Each of them is either written anew, or belongs to
/// one delivery, one queue or one replay only.
const OWNED: [&str; 22] = [
    REASON,
    DETAIL,
    SOURCE,
    SOURCE_ID,
    ATTEMPTS,
    HANDLER,
    LOG,
    CALLS,
    RECORDING,
    GROUP,
    LAST_DEATH_QUEUE,
    LAST_DEATH_REASON,
    X_DEATH,
    RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
    REDIS_DELIVERY_COUNT,
    REDIS_IDLE_MS,
    CRASHES,
    HELD,
    JOURNAL,
    ONLY_GROUP,
    FRAMING,
];

/// The place, reason and time of a message's death.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The key of the queue where the message dies.
    pub source: &'a str,
    /// The id of the message in that queue: a stream's entry id, or a list's token.
    pub source_id: &'a str,
    /// The consumer group, on a stream.
    pub group: Option<&'a str>,
    /// Why the message is given up.
    pub rejection: &'a Rejection,
    /// The digest of the handler that ran or would have run.
    pub handler: &'a str,
    /// The evidence of the last attempt.
    pub evidence: Option<&'a Evidence>,
    /// Now, in epoch milliseconds.
    pub now_ms: u64,
    /// When the message expires by the time to live of its queue, in epoch milliseconds. Its header
    /// may name an earlier time.
    pub expires_at_ms: Option<u64>,
}

fn continued(mut history: History, headers: &Headers, context: &Context<'_>) -> History {
    let by_header = headers.find_number(EXPIRES_AT);
    history.record(
        context.source,
        context.rejection,
        context.now_ms,
        by_header.into_iter().chain(context.expires_at_ms).min(),
    );
    history
}

/// The fields of a stream's dead letter: first the fields of the original in their order, without
/// the headers that the host owns, then the host's headers. And its history, including the present death, with
/// whether the incoming one was damaged.
///
/// `raw` is the entry as it is in Redis; `headers` are its headers.
pub fn stream_fields(
    raw: &[(Bytes, Bytes)],
    headers: &Headers,
    context: &Context<'_>,
) -> (Vec<(Bytes, Bytes)>, Incoming) {
    let (rewrite, history) = Rewrite::of_death(headers, context);
    (rewrite.fields(raw), history)
}

/// The headers of a list's dead letter, and its history: the same as in [`stream_fields`].
pub fn list_headers(headers: &Headers, context: &Context<'_>) -> (Headers, Incoming) {
    let (rewrite, history) = Rewrite::of_death(headers, context);
    (rewrite.headers(headers), history)
}

/// The only group that runs a replayed copy. Other groups acknowledge the copy without running it.
///
/// The header counts only if a replay has written it: it needs a count of replays, and the group
/// must be the one where the message died. A producer's own `x-only-group` has no effect.
pub fn only_group(headers: &Headers) -> Option<&str> {
    let group = headers.find_str(ONLY_GROUP)?;
    let replayed = headers.find_number(REPLAYED).is_some_and(|n| n > 0);
    (replayed && headers.find_str(GROUP) == Some(group)).then_some(group)
}

/// A copy of a message: the headers of the original that are dropped, and those that are added behind the others.
/// Their values share one buffer.
struct Rewrite {
    always_dropped: &'static [&'static str],
    dropped: Vec<&'static str>,
    added: Vec<(&'static str, Range<usize>)>,
    text: Vec<u8>,
}

impl Rewrite {
    fn without(always_dropped: &'static [&'static str]) -> Self {
        Self {
            always_dropped,
            dropped: Vec::new(),
            added: Vec::with_capacity(15),
            text: Vec::with_capacity(1024),
        }
    }

    fn of_death(headers: &Headers, context: &Context<'_>) -> (Self, Incoming) {
        let mut rewrite = Self::without(&OWNED);
        // A value that is not a time expires nothing, so it stays.
        if headers.find_number(EXPIRES_AT).is_some() {
            rewrite.dropped.push(EXPIRES_AT);
        }
        if message_id(headers).is_none() {
            rewrite.replace(MESSAGE_ID, context.source_id);
        }
        let rejection = context.rejection;
        let reason = rejection.reason.label();
        rewrite.add(REASON, reason);
        rewrite.add(DETAIL, truncated(&rejection.detail, DETAIL_MAX));
        rewrite.add(SOURCE, context.source);
        rewrite.add(SOURCE_ID, context.source_id);
        rewrite.add(ATTEMPTS, rejection.attempts.to_string());
        rewrite.add(HANDLER, context.handler);
        let kept = context.evidence;
        if let Some(log) = kept.and_then(|kept| kept.log.as_deref()) {
            rewrite.add(LOG, log);
        }
        if let Some(calls) = kept.and_then(|kept| kept.calls.as_deref()) {
            rewrite.add(CALLS, calls);
        }
        if let Some(recording) = kept.and_then(|kept| kept.recording.as_deref()) {
            rewrite.add(RECORDING, recording.text());
        }
        if let Some(group) = context.group {
            rewrite.add(GROUP, group);
        }
        let Incoming { history, damaged } = death::read(headers);
        rewrite.first_death(headers, &history, context);
        rewrite.add(LAST_DEATH_QUEUE, context.source);
        rewrite.add(LAST_DEATH_REASON, reason);
        let history = continued(history, headers, context);
        rewrite.add(X_DEATH, death::write(&history));
        (rewrite, Incoming { history, damaged })
    }

    /// Keep the first death if there is a history. Without a history a producer wrote the headers
    /// of the first death, so they are replaced. If a damaged history lost the first death, it is
    /// taken from the oldest record.
    fn first_death(&mut self, headers: &Headers, past: &History, context: &Context<'_>) {
        let told = |name| headers.find(name).is_some();
        if told(X_DEATH) && told(FIRST_DEATH_QUEUE) && told(FIRST_DEATH_REASON) {
            return;
        }
        let (queue, reason) = past.records().last().map_or(
            (context.source, context.rejection.reason.label()),
            |oldest| (oldest.queue.as_str(), oldest.reason.as_str()),
        );
        self.replace(FIRST_DEATH_QUEUE, queue);
        self.replace(FIRST_DEATH_REASON, reason);
    }

    /// The fields of the copy of a stream's entry.
    fn fields(mut self, raw: &[(Bytes, Bytes)]) -> Vec<(Bytes, Bytes)> {
        let added = std::mem::take(&mut self.added);
        let added: Vec<_> = added
            .into_iter()
            .map(|(name, value)| (self.write(&[HEADER_PREFIX, name.as_bytes()]), value))
            .collect();
        let text = Bytes::from(std::mem::take(&mut self.text));
        let keeps = |field: &[u8]| header_name(field).is_none_or(|name| self.keeps(name));
        let kept = raw.iter().filter(|(field, _)| keeps(field)).cloned();
        let added = added
            .into_iter()
            .map(|(name, value)| (text.slice(name), text.slice(value)));
        kept.chain(added).collect()
    }

    /// The headers of the copy.
    fn headers(mut self, headers: &Headers) -> Headers {
        let text = Bytes::from(std::mem::take(&mut self.text));
        let kept = headers.iter().filter(|(name, _)| self.keeps(name)).cloned();
        let added = self.added.iter().map(|(name, value)| {
            let name = Bytes::from_static(name.as_bytes());
            (name, text.slice(value.clone()))
        });
        Headers::new(kept.chain(added).collect())
    }

    fn keeps(&self, name: &[u8]) -> bool {
        let mut dropped = self.always_dropped.iter().chain(&self.dropped);
        !dropped.any(|dropped| name.eq_ignore_ascii_case(dropped.as_bytes()))
    }

    fn replace(&mut self, name: &'static str, value: &str) {
        self.dropped.push(name);
        self.add(name, value);
    }

    fn add(&mut self, name: &'static str, value: impl AsRef<[u8]>) {
        let value = self.write(&[value.as_ref()]);
        self.added.push((name, value));
    }

    /// Where these parts stand in the buffer, one behind the other.
    fn write(&mut self, parts: &[&[u8]]) -> Range<usize> {
        let start = self.text.len();
        for part in parts {
            self.text.extend_from_slice(part);
        }
        start..self.text.len()
    }
}

#[cfg(test)]
mod tests;
