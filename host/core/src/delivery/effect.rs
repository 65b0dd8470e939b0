//! Effects: the messages that an attempt publishes, and the keys that it writes. The host holds them until
//! the attempt ends. They happen with the acknowledgement, or not at all.
//!
//! [`Effects::publish`] and [`Effects::write`] find every mistake of a guest, so that a mistake is an error
//! of its own call and never of the acknowledgement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::declared::headers;
use super::hold::{HOLD_MIN, HoldRoom};
use super::key_value::{KeyRules, Keys, Seen, Written};
use super::message::{
    Headers, MESSAGE_ID, Message, RETRY_COUNT, RUSTSTREAM_RETRY_COUNT, TRACEPARENT, TRACESTATE,
};
use super::millis::millis;
use super::reply::REPLY_MAX;
use super::trace::Trace;

headers! {
    /// How many handlers have published on the way to this message. The host sets it. A handler that
    /// publishes beyond `publish.max_hops` gets an error.
    HOPS = "x-hops";
    /// How many messages may still follow from this message, through all handlers. The host sets it: the
    /// messages that an attempt publishes share the number of the message being handled. A number above
    /// `publish.max_follow_ups`, and a missing one, count as `publish.max_follow_ups`.
    FOLLOW_UPS_LEFT = "x-follow-ups-left";
    /// Equal for all messages that follow from one message. The host sets it, unless the handler does:
    /// to that of the message being handled, or to its id.
    CORRELATION_ID = "x-correlation-id";
}

/// The longest delay of a published message: 366 days.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The most headers that a handler may give to a published message. Each is two arguments of a script.
pub const HEADERS_MAX: usize = 500;

/// Headers that a handler may not set: the host reads them.
const RESERVED: [&str; 7] = [
    MESSAGE_ID,
    HOPS,
    FOLLOW_UPS_LEFT,
    RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
    "x-only-group",
    "x-death",
];
/// The beginnings of names that a handler may not set.
const RESERVED_PREFIXES: [&str; 3] = ["x-hostler-", "x-dead-letter-", "redis-"];

/// The bounds of what attempts publish and write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EffectLimits {
    /// The most messages and keys of an attempt.
    pub count: usize,
    /// The most bytes of an attempt: names, headers and bodies, keys and values.
    pub bytes: usize,
    /// The most bytes of all attempts whose effects are not confirmed.
    pub host_bytes: usize,
    /// The largest value of [`HOPS`].
    pub hops: u64,
    /// The largest value of [`FOLLOW_UPS_LEFT`].
    pub follow_ups: u64,
}

impl Default for EffectLimits {
    fn default() -> Self {
        Self {
            count: 100,
            bytes: 4 << 20,
            host_bytes: 256 << 20,
            hops: 64,
            follow_ups: 100_000,
        }
    }
}

/// A destination, as far as it decides which messages a handler may publish there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outlet {
    /// Whether a message may have a delay.
    pub takes_delays: bool,
    /// Whether a message may have headers.
    pub takes_headers: bool,
}

/// The destinations that the operator granted, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outlets(Arc<BTreeMap<String, Outlet>>);

impl Outlets {
    /// These destinations.
    pub fn new(outlets: BTreeMap<String, Outlet>) -> Self {
        Self(Arc::new(outlets))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// A message that an attempt publishes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Publication {
    /// The name of its destination.
    pub to: Arc<str>,
    /// The body.
    pub body: Bytes,
    /// The headers that the handler set.
    pub headers: Headers,
    /// How long it waits, from the acknowledgement.
    pub delay: Option<Duration>,
    /// The span in which it is published; `None` = that of the message which is handled.
    pub trace: Option<Trace>,
}

/// What one attempt publishes and writes, and what must not have changed for it.
#[derive(Debug, Default)]
pub struct Effects {
    publications: Vec<Publication>,
    /// How many messages may follow from the message being handled, these included.
    follow_ups: u64,
    keys: Keys,
    /// What the handler answers to a producer that waits.
    reply: Option<Bytes>,
    bytes: usize,
    budget: Budget,
    /// What became of the last call that asked for a hold.
    hold: Option<Result<Duration, String>>,
    /// Redis has acknowledged the message without them.
    is_void: AtomicBool,
    /// How many of them are written, where the next one was refused.
    written: AtomicUsize,
}

/// Bytes that a host holds: of unconfirmed effects, or of recordings. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// Hold so many bytes more, unless that makes more than `most`. Returns whether it does.
    pub fn take(&self, bytes: usize, most: usize) -> bool {
        let taken = |now: usize| now.checked_add(bytes).filter(|after| *after <= most);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .is_ok()
    }

    /// Hold so many bytes less.
    pub fn give(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl PartialEq for Effects {
    fn eq(&self, other: &Self) -> bool {
        self.publications == other.publications
            && self.keys == other.keys
            && self.reply == other.reply
    }
}

impl Eq for Effects {}

impl Drop for Effects {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

impl Effects {
    /// No effects yet. They will count against this budget.
    pub fn new(budget: &Budget) -> Self {
        Self {
            publications: Vec::new(),
            follow_ups: 0,
            keys: Keys::default(),
            reply: None,
            bytes: 0,
            budget: budget.clone(),
            hold: None,
            is_void: AtomicBool::new(false),
            written: AtomicUsize::new(0),
        }
    }

    /// Hold the message: a `nack-requeue` brings it again after `ms` milliseconds, uncharged. A later call
    /// replaces this one.
    ///
    /// # Errors
    /// There is no room for the hold, or the attempt has effects already: a text for the guest.
    pub fn hold(&mut self, room: HoldRoom, ms: u64) -> Result<(), String> {
        let has_acted =
            !self.publications.is_empty() || !self.keys.written.is_empty() || self.reply.is_some();
        let held = match has_acted {
            false => room.take(ms),
            true => Err(
                "the attempt has published, answered or written a key, which happens with an acknowledgement only: hold before \
                 that, or not at all"
                    .to_owned(),
            ),
        };
        self.hold.insert(held).clone().map(drop)
    }

    /// The host holds the message, unless its handler does. Effects do not matter: they happen with an acknowledgement, and then there
    /// is no hold. It is shorter if there is less room: a message that comes too
    /// early is refused again, and one that is not held is charged.
    pub fn hold_unless_held(&mut self, room: HoldRoom, hold: Duration) {
        let hold = match room {
            HoldRoom::UpTo(most) if most >= HOLD_MIN => hold.min(most),
            _ => hold,
        };
        if room != HoldRoom::AtMostOnce && !matches!(self.hold, Some(Ok(_))) {
            self.hold = Some(room.take(millis(hold)));
        }
    }

    /// What became of the last call that asked for a hold: how long it lasts, or why it was refused. `None` = there was
    /// no such call.
    pub fn held(&self) -> Option<&Result<Duration, String>> {
        self.hold.as_ref()
    }

    /// Whether there are no effects.
    pub fn is_empty(&self) -> bool {
        self.publications.is_empty() && self.keys == Keys::default() && self.reply.is_none()
    }

    /// What the handler answers, if it answers.
    pub fn reply(&self) -> Option<&Bytes> {
        self.reply.as_ref()
    }

    /// Answer to a producer that waits, with the acknowledgement. The last answer counts.
    ///
    /// # Errors
    /// The bound that is reached, or the attempt holds its message: a text for the guest.
    pub fn answer(&mut self, limits: &EffectLimits, value: Bytes) -> Result<(), String> {
        self.check_hold()?;
        if value.len() > REPLY_MAX {
            let size = value.len();
            return Err(format!(
                "the reply has {size} bytes, {REPLY_MAX} are allowed: answer with the name of a key that holds it"
            ));
        }
        let before = self.reply.as_ref().map_or(0, Bytes::len);
        self.keep(limits, before, value.len())?;
        self.reply = Some(value);
        Ok(())
    }

    /// The message is acknowledged, and they did not happen: those of a duplicate did before.
    pub fn did_not_happen(&self) {
        self.is_void.store(true, Ordering::Relaxed);
    }

    /// Whether they did not happen, although the message is acknowledged.
    pub fn is_void(&self) -> bool {
        self.is_void.load(Ordering::Relaxed)
    }

    /// The first `count` are written, and the next one was refused: the next try begins there.
    pub fn are_written(&self, count: usize) {
        self.written.store(count, Ordering::Relaxed);
    }

    /// How many of them are written already.
    pub fn progress(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// The messages, in the order of their calls.
    pub fn publications(&self) -> &[Publication] {
        &self.publications
    }

    /// How many messages may follow from each of them.
    pub fn follow_ups_left(&self) -> u64 {
        let count = self.publications.len() as u64;
        let left = self.follow_ups.saturating_sub(count);
        left.checked_div(count).unwrap_or(left)
    }

    /// What is written, by the keys in Redis.
    pub fn written(&self) -> impl ExactSizeIterator<Item = (&str, &Written)> {
        let written = self.keys.written.iter();
        written.map(|(key, written)| (&**key, written))
    }

    /// What was read and must not have changed, by the keys in Redis.
    pub fn seen(&self) -> impl ExactSizeIterator<Item = (&str, &Seen)> {
        self.keys.seen.iter().map(|(key, seen)| (&**key, seen))
    }

    /// What this attempt has written to a key in Redis.
    pub fn own(&self, key: &str) -> Option<&Written> {
        self.keys.written.get(key)
    }

    /// The size of names, values and bodies.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Publish a message with the acknowledgement of `source`.
    ///
    /// # Errors
    /// The mistake of the guest, or the bound that is reached: a text for the guest.
    pub fn publish(
        &mut self,
        outlets: &Outlets,
        limits: &EffectLimits,
        source: &Message,
        publication: Publication,
    ) -> Result<(), String> {
        let Publication {
            to, headers, delay, ..
        } = &publication;
        let Some(outlet) = outlets.0.get(&**to) else {
            let names: Vec<&str> = outlets.names().collect();
            let granted = match names.is_empty() {
                true => "none".to_owned(),
                false => names.join(", "),
            };
            return Err(format!("no destination has this name; granted: {granted}"));
        };
        self.check_count(limits)?;
        check_headers(headers, *outlet)?;
        if let Some(delay) = delay.filter(|delay| !delay.is_zero()) {
            if !outlet.takes_delays {
                return Err(
                    "messages to this destination cannot have a delay: only streams and lists with `reliable = true` can"
                        .to_owned(),
                );
            }
            if delay > DELAY_MAX {
                return Err("the delay is longer than 366 days".to_owned());
            }
        }
        if hops(source) >= limits.hops {
            return Err(format!(
                "the message has come through {} handlers that publish, the most allowed",
                limits.hops
            ));
        }
        let most = limits.follow_ups;
        let left = source.headers.find_number(FOLLOW_UPS_LEFT);
        let left = left.unwrap_or(most).min(most);
        if self.publications.len() as u64 >= left {
            return Err(format!(
                "at most {most} messages may follow from one message, through all handlers, and {left} are left for this one"
            ));
        }
        self.keep(limits, 0, publication.bytes())?;
        self.follow_ups = left;
        self.publications.push(publication);
        Ok(())
    }

    /// Write a key of the handler with the acknowledgement. The last write of a key counts.
    ///
    /// # Errors
    /// The mistake of the guest, or the bound that is reached: a text for the guest.
    pub fn write(
        &mut self,
        rules: &KeyRules,
        limits: &EffectLimits,
        key: &str,
        written: Written,
    ) -> Result<(), String> {
        let key = rules.full(key)?;
        if let Some(value) = &written.value {
            rules.check_value(value)?;
        }
        let before = self.own(&key).map(|before| before.bytes(&key));
        if before.is_none() {
            self.check_count(limits)?;
        }
        self.keep(limits, before.unwrap_or(0), written.bytes(&key))?;
        self.keys.written.insert(key, written);
        Ok(())
    }

    /// The attempt has read this value of a key in Redis: it must be the same at the acknowledgement. The
    /// first value of a key counts.
    ///
    /// # Errors
    /// The bound that is reached: a text for the guest.
    pub fn saw(&mut self, limits: &EffectLimits, key: String, seen: Seen) -> Result<(), String> {
        if !self.keys.seen.contains_key(&key) {
            self.keep(limits, 0, seen.bytes(&key))?;
            self.keys.seen.insert(key, seen);
        }
        Ok(())
    }

    /// The attempt has changed this key in Redis at once: a value that it had read before does not count.
    pub fn changed_at_once(&mut self, key: &str) {
        if let Some(seen) = self.keys.seen.remove(key) {
            self.give_back(seen.bytes(key));
        }
    }

    fn check_hold(&self) -> Result<(), String> {
        match self.hold {
            Some(Ok(_)) => {
                Err("the attempt holds its message, so it acknowledges nothing".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_count(&self, limits: &EffectLimits) -> Result<(), String> {
        self.check_hold()?;
        let most = limits.count;
        match self.publications.len() + self.keys.written.len() < most {
            true => Ok(()),
            false => Err(format!(
                "an attempt may publish {most} messages at most, written keys included"
            )),
        }
    }

    /// Keep `more` bytes more, and `fewer` fewer.
    fn keep(&mut self, limits: &EffectLimits, fewer: usize, more: usize) -> Result<(), String> {
        let after = (self.bytes - fewer).saturating_add(more);
        if after > limits.bytes {
            let most = limits.bytes;
            return Err(format!(
                "an attempt may publish {most} bytes at most, keys and values included"
            ));
        }
        if after > self.bytes && !self.budget.take(after - self.bytes, limits.host_bytes) {
            return Err(
                "the host holds too many messages that are not published yet: try again later"
                    .to_owned(),
            );
        }
        match self.bytes.checked_sub(after) {
            Some(freed) => self.give_back(freed),
            None => self.bytes = after,
        }
        Ok(())
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.budget.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Publication {
    fn bytes(&self) -> usize {
        let pairs = self.headers.iter();
        let headers: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        self.to.len() + self.body.len() + headers
    }

    /// Its headers as they are published, for a destination that takes headers. `id` is its id; `follow_ups` messages
    /// may follow from it.
    pub fn complete_headers(&self, source: &Message, id: &str, follow_ups: u64) -> Headers {
        let mut headers = self.headers.clone();
        headers.set(MESSAGE_ID, id.to_owned());
        headers.set(HOPS, (hops(source) + 1).to_string());
        headers.set(FOLLOW_UPS_LEFT, follow_ups.to_string());
        let mut inherit = |name: &str, value: Option<Bytes>| {
            if headers.find(name).is_none()
                && let Some(value) = value
            {
                headers.set(name, value);
            }
        };
        let own = || Bytes::copy_from_slice(source.id.as_bytes());
        let correlation = source.headers.find(CORRELATION_ID).cloned();
        inherit(CORRELATION_ID, Some(correlation.unwrap_or_else(own)));
        // A trace of the handler's own has a state of its own, too.
        if self.headers.find(TRACEPARENT).is_none() {
            let own = self.trace.map(|trace| Bytes::from(trace.to_string()));
            let parent = own.or_else(|| source.headers.find(TRACEPARENT).cloned());
            inherit(TRACEPARENT, parent);
            inherit(TRACESTATE, source.headers.find(TRACESTATE).cloned());
        }
        headers
    }
}

/// The name of a message of a queue, which no other message has, whatever id its producer chose: `queue/group/id`,
/// or `queue/id` in a queue that has no groups. A `/` in the name of a queue or group is `%2F`.
pub fn message_name(queue: &str, group: Option<&str>, id: &str) -> String {
    let escaped = |name: &str| name.replace('%', "%25").replace('/', "%2F");
    match group {
        Some(group) => format!("{}/{}/{id}", escaped(queue), escaped(group)),
        None => format!("{}/{id}", escaped(queue)),
    }
}

/// How many handlers have published on the way to this message.
fn hops(message: &Message) -> u64 {
    message.headers.find_number(HOPS).unwrap_or(0)
}

fn check_headers(headers: &Headers, outlet: Outlet) -> Result<(), String> {
    if headers.len() > HEADERS_MAX {
        return Err(format!("a message may have {HEADERS_MAX} headers at most"));
    }
    if !outlet.takes_headers && !headers.is_empty() {
        return Err("messages to this destination are raw: they have no headers".to_owned());
    }
    for (name, _) in headers.iter() {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let is_reserved = RESERVED.contains(&&*name)
            || RESERVED_PREFIXES
                .iter()
                .any(|start| name.starts_with(start));
        if is_reserved {
            let shown: String = name.chars().take(64).collect();
            return Err(format!("the host sets the header `{shown}`"));
        }
        if name.is_empty() {
            return Err("a header has no name".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::key_value::TTL_MAX;

    fn source(headers: Headers) -> Message {
        Message {
            id: Arc::from("m1"),
            queue: Arc::from("orders"),
            body: Bytes::new(),
            headers,
            enqueued_ms: 0,
        }
    }

    fn outlets() -> Outlets {
        let outlet = |takes_delays, takes_headers| Outlet {
            takes_delays,
            takes_headers,
        };
        Outlets::new(BTreeMap::from([
            ("invoices".to_owned(), outlet(true, true)),
            ("raw".to_owned(), outlet(false, false)),
        ]))
    }

    #[test]
    fn a_hold_of_the_host_is_as_long_as_there_is_room() {
        let hour = Duration::from_secs(3600);
        for (most, held) in [(hour, hour), (HOLD_MIN, HOLD_MIN), (2 * hour, hour)] {
            let mut effects = Effects::default();
            effects.hold_unless_held(HoldRoom::UpTo(most), hour);
            assert_eq!(effects.held(), Some(&Ok(held)));
        }
        let mut effects = Effects::default();
        effects.hold_unless_held(HoldRoom::Spent(100), hour);
        assert!(effects.held().is_some_and(Result::is_err));
    }

    fn publication(to: &str) -> Publication {
        Publication {
            to: Arc::from(to),
            body: Bytes::from_static(b"body"),
            headers: Headers::default(),
            delay: None,
            trace: None,
        }
    }

    fn publish(
        publication: Publication,
        from: &Message,
        limits: EffectLimits,
    ) -> Result<(), String> {
        Effects::new(&Budget::default()).publish(&outlets(), &limits, from, publication)
    }

    #[test]
    fn a_mistake_is_an_error_of_its_call() {
        let plain = source(Headers::default());
        let refused = |publication| {
            publish(publication, &plain, EffectLimits::default()).expect_err("refused")
        };
        assert!(refused(publication("invoice")).contains("granted: invoices, raw"));
        for name in [
            "X-Retry-Count",
            "x-death",
            "x-hostler-crashes",
            "x-hops",
            "x-message-id",
        ] {
            let mut one = publication("invoices");
            one.headers.push(name, "1");
            assert!(refused(one).contains("the host sets"), "{name}");
        }
        let mut one = publication("raw");
        one.headers.push("tenant", "a");
        assert!(refused(one).contains("raw"));
        let late = |to, delay| Publication {
            delay: Some(delay),
            ..publication(to)
        };
        assert!(refused(late("raw", Duration::from_secs(1))).contains("delay"));
        assert!(refused(late("invoices", DELAY_MAX + Duration::from_millis(1))).contains("366"));
        let mut many = publication("invoices");
        for _ in 0..=HEADERS_MAX {
            many.headers.push("a", "b");
        }
        assert!(refused(many).contains("500 headers"));
        let mut expires = publication("invoices");
        expires.headers.push("x-expires-at", "1");
        assert_eq!(publish(expires, &plain, EffectLimits::default()), Ok(()));
        let now = late("raw", Duration::ZERO);
        assert_eq!(publish(now, &plain, EffectLimits::default()), Ok(()));
    }

    #[test]
    fn a_handler_that_publishes_to_its_own_queue_ends() {
        let mut headers = Headers::default();
        headers.push(HOPS, "63");
        let limits = EffectLimits::default();
        let nearly = source(headers);
        assert_eq!(publish(publication("invoices"), &nearly, limits), Ok(()));
        let next = publication("invoices").complete_headers(&nearly, "id", 1);
        let error = publish(publication("invoices"), &source(next), limits);
        assert!(error.expect_err("too many hops").contains("64 handlers"));
    }

    /// How many messages follow from a message whose handlers publish `breadth` messages each, or none if they
    /// may not.
    fn follow_ups(from: &Message, limits: EffectLimits, breadth: u64) -> u64 {
        let budget = Budget::default();
        let mut effects = Effects::new(&budget);
        for _ in 0..breadth {
            let published = effects.publish(&outlets(), &limits, from, publication("invoices"));
            if published.is_err() {
                return 0;
            }
        }
        let left = effects.follow_ups_left();
        let headers = publication("invoices").complete_headers(from, "x", left);
        breadth * (1 + follow_ups(&source(headers), limits, breadth))
    }

    #[test]
    fn a_message_leads_to_no_more_messages_than_allowed_however_broad_its_handlers_publish() {
        for most in [1, 2, 7, 100, 500] {
            for breadth in [1, 2, 3, 10, 100] {
                let limits = EffectLimits {
                    follow_ups: most,
                    hops: most + 1,
                    ..EffectLimits::default()
                };
                let found = follow_ups(&source(Headers::default()), limits, breadth);
                assert!(found <= most, "{found} of {most} by {breadth}");
                assert_eq!(found > 0, breadth <= most, "{found} of {most} by {breadth}");
                // A producer can lower the number, and not raise it.
                for (forged, bound) in [
                    ("0", 0),
                    ("3", 3.min(most)),
                    ("18446744073709551615", most),
                    ("x", most),
                ] {
                    let mut headers = Headers::default();
                    headers.push(FOLLOW_UPS_LEFT, forged);
                    let found = follow_ups(&source(headers), limits, breadth);
                    assert!(found <= bound, "{found} of {bound} by {breadth}");
                }
            }
        }
        let refused = EffectLimits {
            follow_ups: 0,
            ..EffectLimits::default()
        };
        let error = publish(
            publication("invoices"),
            &source(Headers::default()),
            refused,
        );
        assert!(
            error
                .expect_err("none is left")
                .contains("at most 0 messages may follow")
        );
    }

    #[test]
    fn effects_are_bounded_for_an_attempt_and_for_the_host() {
        let from = source(Headers::default());
        let size = publication("invoices").bytes();
        let limits = EffectLimits {
            count: 3,
            bytes: 2 * size,
            host_bytes: 3 * size,
            ..EffectLimits::default()
        };
        let budget = Budget::default();
        let mut first = Effects::new(&budget);
        let publish = |effects: &mut Effects| {
            effects.publish(&outlets(), &limits, &from, publication("invoices"))
        };
        assert_eq!(publish(&mut first), Ok(()));
        assert_eq!(publish(&mut first), Ok(()));
        assert!(
            publish(&mut first)
                .expect_err("bytes")
                .contains("bytes at most")
        );
        let mut second = Effects::new(&budget);
        assert_eq!(publish(&mut second), Ok(()));
        assert!(
            publish(&mut second)
                .expect_err("host")
                .contains("the host holds")
        );
        drop(first);
        assert_eq!(publish(&mut second), Ok(()));
        drop(second);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
        let mut small = Effects::new(&budget);
        let one = EffectLimits { count: 1, ..limits };
        let mut publish = || small.publish(&outlets(), &one, &from, publication("raw"));
        assert_eq!(publish(), Ok(()));
        assert!(publish().expect_err("count").contains("1 messages"));
    }

    #[test]
    fn a_follow_up_carries_the_trace_and_a_correlation_id() {
        let mut headers = Headers::default();
        headers.push(TRACEPARENT, "trace");
        headers.push(TRACESTATE, "state");
        let from = source(headers);
        let complete = publication("invoices").complete_headers(&from, "orders/g/m1#1", 7);
        let find = |name| complete.find_str(name);
        assert_eq!(find(MESSAGE_ID), Some("orders/g/m1#1"));
        assert_eq!(find(CORRELATION_ID), Some("m1"));
        assert_eq!(find(HOPS), Some("1"));
        assert_eq!(find(FOLLOW_UPS_LEFT), Some("7"));
        assert_eq!(find(TRACEPARENT), Some("trace"));
        assert_eq!(find(TRACESTATE), Some("state"));
        // It goes on in the next message; a trace of the handler's own replaces the other one.
        let mut own = publication("invoices");
        own.headers.push(TRACEPARENT, "own");
        let next = own.complete_headers(&source(complete), "x", 7);
        assert_eq!(next.find_str(CORRELATION_ID), Some("m1"));
        assert_eq!(next.find_str(HOPS), Some("2"));
        assert_eq!(next.find_str(TRACEPARENT), Some("own"));
        assert_eq!(next.find_str(TRACESTATE), None);
    }

    #[test]
    fn keys_are_held_within_the_same_bounds_and_their_last_write_counts() {
        let rules = KeyRules {
            prefix: Arc::from("{o}:kv:"),
            value_max: 4,
            checked: true,
            journal: false,
        };
        let limits = EffectLimits {
            count: 2,
            bytes: 60,
            host_bytes: 60,
            ..EffectLimits::default()
        };
        let budget = Budget::default();
        let held = || budget.0.load(Ordering::Relaxed);
        let mut effects = Effects::new(&budget);
        let value = |text: &'static str| Written::value(Bytes::from(text), None).unwrap();
        let mut write = |key: &str, written| effects.write(&rules, &limits, key, written);
        assert_eq!(write("a", value("1234")), Ok(()));
        assert_eq!(held(), 12);
        assert_eq!(write("a", Written::nothing()), Ok(()));
        assert_eq!(held(), 8);
        assert_eq!(write("b", value("1")), Ok(()));
        let refused = write("c", value("1")).expect_err("count");
        assert!(refused.contains("2 messages at most"), "{refused}");
        assert_eq!(write("b", value("2")), Ok(()));
        assert!(write("", value("1")).expect_err("empty").contains("empty"));
        let large = write("a", value("12345")).expect_err("large");
        assert!(large.contains("more than 4 bytes"), "{large}");
        assert_eq!(effects.own("{o}:kv:a"), Some(&Written::nothing()));
        assert_eq!(effects.own("{o}:kv:b"), Some(&value("2")));
        assert_eq!(effects.own("a"), None);

        // A value that was read is held, too; the first look counts, until the key is changed at once.
        let seen = |value: Option<&str>| Seen {
            value: value.map(|digest| (1, digest.to_owned())),
        };
        assert_eq!(effects.saw(&limits, "k".to_owned(), seen(None)), Ok(()));
        assert_eq!(
            effects.saw(&limits, "k".to_owned(), seen(Some("x"))),
            Ok(())
        );
        assert_eq!(effects.seen().next(), Some(("k", &seen(None))));
        assert!(
            effects
                .saw(&limits, "other".to_owned(), seen(None))
                .is_err()
        );
        effects.changed_at_once("k");
        assert_eq!((effects.seen().len(), held()), (0, 17));
        drop(effects);
        assert_eq!(held(), 0);
        let ttl = |ttl| Written::value(Bytes::new(), Some(ttl)).is_ok();
        assert!(ttl(TTL_MAX) && !ttl(Duration::ZERO) && !ttl(TTL_MAX + Duration::from_millis(1)));
    }
}
