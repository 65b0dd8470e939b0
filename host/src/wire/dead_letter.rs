//! What a dead letter looks like: the original, byte for byte, and why it died.

use bytes::Bytes;

use crate::delivery::death::History;
use crate::delivery::message::{
    EXPIRES_AT, Headers, MESSAGE_ID, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS, RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
};
use crate::delivery::policy::{DETAIL_MAX, Rejection, truncate_utf8};
use crate::wire::death::{self, Incoming, X_DEATH};
use crate::wire::decoded::message_id;
use crate::wire::stream::{header_field, header_name};

pub mod replay;

/// Why it died: the label of a [`crate::delivery::policy::Reason`].
pub const REASON: &str = "x-dead-letter-reason";
/// Text for people, at most 1 KiB.
pub const DETAIL: &str = "x-dead-letter-detail";
/// The key of the queue it died in.
pub const SOURCE: &str = "x-dead-letter-source";
/// Its id there.
pub const SOURCE_ID: &str = "x-dead-letter-source-id";
/// The starts charged to it in all.
pub const ATTEMPTS: &str = "x-dead-letter-attempts";
/// The digest of the handler that ran or would have run.
pub const HANDLER: &str = "x-dead-letter-handler";
/// The consumer group it died in, if it died in a stream.
pub const GROUP: &str = "x-dead-letter-group";
/// The first queue it died in: never changed.
pub const FIRST_DEATH_QUEUE: &str = "x-first-death-queue";
/// Why it died there: never changed.
pub const FIRST_DEATH_REASON: &str = "x-first-death-reason";
/// The last queue it died in.
pub const LAST_DEATH_QUEUE: &str = "x-last-death-queue";
/// Why it died there.
pub const LAST_DEATH_REASON: &str = "x-last-death-reason";
/// How often it was replayed.
pub const REPLAYED: &str = "x-replayed";
/// On a replayed copy: the one consumer group that runs it.
pub const ONLY_GROUP: &str = "x-only-group";
/// In a list whose values are raw: that they are, so that a replay knows where headers belong.
pub const FRAMING: &str = "x-dead-letter-framing";
/// On reliable lists: how many hosts died holding it.
pub const CRASHES: &str = "x-hostler-crashes";

/// Headers that the original may carry and its copy does not: each of them is either written anew
/// or true of one delivery, one queue or one replay only.
const OWNED: [&str; 17] = [
    REASON,
    DETAIL,
    SOURCE,
    SOURCE_ID,
    ATTEMPTS,
    HANDLER,
    GROUP,
    LAST_DEATH_QUEUE,
    LAST_DEATH_REASON,
    X_DEATH,
    RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
    REDIS_DELIVERY_COUNT,
    REDIS_IDLE_MS,
    CRASHES,
    ONLY_GROUP,
    FRAMING,
];

/// Where, why and when a message dies.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The key of the queue it dies in.
    pub source: &'a str,
    /// Its id there: a stream's entry id, or a list's token.
    pub source_id: &'a str,
    /// The consumer group, on a stream.
    pub group: Option<&'a str>,
    /// Why it is given up.
    pub rejection: &'a Rejection,
    /// The digest of the handler that ran or would have run.
    pub handler: &'a str,
    /// Now, in epoch milliseconds.
    pub now_ms: u64,
    /// When it stops being worth handling by the time to live of the queue, in epoch milliseconds;
    /// its header may say that it is sooner.
    pub expires_at_ms: Option<u64>,
}

/// The message's history with the present death: what to ask for cycles
/// ([`History::cycles_to`]) before the target is chosen, and whether what came in was damaged.
pub fn history(headers: &Headers, context: &Context<'_>) -> Incoming {
    let Incoming { history, damaged } = death::read(headers);
    Incoming {
        history: continued(history, headers, context),
        damaged,
    }
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

/// The fields of a stream's dead letter: those of the original in their order, without the headers
/// that the host owns, and then the host's.
///
/// `raw` is the entry as it stands in Redis, `headers` its headers.
pub fn stream_fields(
    raw: &[(Bytes, Bytes)],
    headers: &Headers,
    context: &Context<'_>,
) -> Vec<(Bytes, Bytes)> {
    let rewrite = Rewrite::new(headers, context);
    let mut fields: Vec<_> = raw
        .iter()
        .filter(|(field, _)| header_name(field).is_none_or(|name| rewrite.keeps(name)))
        .cloned()
        .collect();
    fields.extend(
        rewrite
            .added
            .into_iter()
            .map(|(name, value)| header_field(name.as_bytes(), value)),
    );
    fields
}

/// The headers of a list's dead letter, as [`stream_fields`] has them.
pub fn list_headers(headers: &Headers, context: &Context<'_>) -> Headers {
    let rewrite = Rewrite::new(headers, context);
    let mut copy: Vec<_> = headers
        .iter()
        .filter(|(name, _)| rewrite.keeps(name))
        .cloned()
        .collect();
    copy.extend(
        rewrite
            .added
            .into_iter()
            .map(|(name, value)| (Bytes::from_static(name.as_bytes()), value)),
    );
    Headers::new(copy)
}

/// The group that a replayed copy is meant for: other groups acknowledge it unrun.
///
/// Heeded only on what a replay has written: together with its count, and for the group that the
/// message died in. A producer's own `x-only-group` means nothing.
pub fn only_group(headers: &Headers) -> Option<&str> {
    let group = headers.find_str(ONLY_GROUP)?;
    let replayed = headers.find_number(REPLAYED).is_some_and(|n| n > 0);
    (replayed && headers.find_str(GROUP) == Some(group)).then_some(group)
}

/// Which headers of the original stay, and which are added.
struct Rewrite {
    dropped: Vec<&'static str>,
    added: Vec<(&'static str, Bytes)>,
}

impl Rewrite {
    fn new(headers: &Headers, context: &Context<'_>) -> Self {
        let mut rewrite = Self {
            dropped: OWNED.to_vec(),
            added: Vec::with_capacity(14),
        };
        // What is no time expires nothing: it stays as it was.
        if headers.find_number(EXPIRES_AT).is_some() {
            rewrite.dropped.push(EXPIRES_AT);
        }
        if message_id(headers).is_none() {
            rewrite.replace(MESSAGE_ID, context.source_id.to_owned());
        }
        let rejection = context.rejection;
        let reason = rejection.reason.label();
        let mut detail = rejection.detail.clone();
        truncate_utf8(&mut detail, DETAIL_MAX);
        rewrite.add(REASON, reason);
        rewrite.add(DETAIL, detail);
        rewrite.add(SOURCE, context.source.to_owned());
        rewrite.add(SOURCE_ID, context.source_id.to_owned());
        rewrite.add(ATTEMPTS, rejection.attempts.to_string());
        rewrite.add(HANDLER, context.handler.to_owned());
        if let Some(group) = context.group {
            rewrite.add(GROUP, group.to_owned());
        }
        let past = death::read(headers).history;
        rewrite.first_death(headers, &past, context);
        rewrite.add(LAST_DEATH_QUEUE, context.source.to_owned());
        rewrite.add(LAST_DEATH_REASON, reason);
        rewrite.add(X_DEATH, death::write(&continued(past, headers, context)));
        rewrite
    }

    /// The first death is never changed, as long as there is a history: without one, the header is
    /// a producer's invention. What a damaged history has lost is taken from its oldest record.
    fn first_death(&mut self, headers: &Headers, past: &History, context: &Context<'_>) {
        let told = |name| headers.find(name).is_some();
        if told(X_DEATH) && told(FIRST_DEATH_QUEUE) && told(FIRST_DEATH_REASON) {
            return;
        }
        let (queue, reason) = past.records().last().map_or(
            (context.source, context.rejection.reason.label()),
            |oldest| (oldest.queue.as_str(), oldest.reason.as_str()),
        );
        self.replace(FIRST_DEATH_QUEUE, queue.to_owned());
        self.replace(FIRST_DEATH_REASON, reason.to_owned());
    }

    fn keeps(&self, name: &[u8]) -> bool {
        !self
            .dropped
            .iter()
            .any(|owned| name.eq_ignore_ascii_case(owned.as_bytes()))
    }

    fn replace(&mut self, name: &'static str, value: String) {
        self.dropped.push(name);
        self.add(name, value);
    }

    fn add(&mut self, name: &'static str, value: impl Into<Bytes>) {
        self.added.push((name, value.into()));
    }
}

#[cfg(test)]
mod tests;
