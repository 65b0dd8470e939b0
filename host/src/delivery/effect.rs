//! Effects: the messages that an attempt publishes. The host holds them until the attempt ends. They
//! happen with the acknowledgement, or not at all.
//!
//! [`Effects::publish`] finds every mistake of a guest, so that a mistake is an error of its own call and
//! never of the acknowledgement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::declared::headers;
use super::message::{
    Headers, MESSAGE_ID, Message, RETRY_COUNT, RUSTSTREAM_RETRY_COUNT, TRACEPARENT, TRACESTATE,
};

headers! {
    /// How many handlers have published on the way to this message. The host sets it. A handler that
    /// publishes beyond `limits.publish_hops` gets an error.
    HOPS = "x-hops";
    /// Equal for all messages that follow from one message. The host sets it, unless the handler does:
    /// to that of the message being handled, or to its id.
    CORRELATION_ID = "x-correlation-id";
}

/// The longest delay of a published message: 366 days.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The most headers that a handler may give to a published message. Each is two arguments of a script.
pub const HEADERS_MAX: usize = 500;

/// Headers that a handler may not set: the host reads them.
const RESERVED: [&str; 6] = [
    MESSAGE_ID,
    HOPS,
    RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
    "x-only-group",
    "x-death",
];
/// The beginnings of names that a handler may not set.
const RESERVED_PREFIXES: [&str; 3] = ["x-hostler-", "x-dead-letter-", "redis-"];

/// The bounds of what attempts publish.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EffectLimits {
    /// The most messages of an attempt.
    pub count: usize,
    /// The most bytes of an attempt: names, values and bodies.
    pub bytes: usize,
    /// The most bytes of all attempts whose effects are not confirmed.
    pub host_bytes: usize,
    /// The largest value of [`HOPS`].
    pub hops: u64,
}

impl Default for EffectLimits {
    fn default() -> Self {
        Self {
            count: 100,
            bytes: 4 << 20,
            host_bytes: 256 << 20,
            hops: 64,
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
}

/// What one attempt publishes.
#[derive(Debug, Default)]
pub struct Effects {
    publications: Vec<Publication>,
    bytes: usize,
    budget: Budget,
}

/// The bytes of the unconfirmed effects of a host. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<AtomicUsize>);

impl Budget {
    fn take(&self, bytes: usize, most: usize) -> bool {
        let taken = |now: usize| now.checked_add(bytes).filter(|after| *after <= most);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .is_ok()
    }
}

impl PartialEq for Effects {
    fn eq(&self, other: &Self) -> bool {
        self.publications == other.publications
    }
}

impl Eq for Effects {}

impl Drop for Effects {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Effects {
    /// No effects yet. They will count against this budget.
    pub fn new(budget: &Budget) -> Self {
        Self {
            publications: Vec::new(),
            bytes: 0,
            budget: budget.clone(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.publications.is_empty()
    }

    /// The messages, in the order of their calls.
    pub fn publications(&self) -> &[Publication] {
        &self.publications
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
        if self.publications.len() >= limits.count {
            let most = limits.count;
            return Err(format!("an attempt may publish {most} messages at most"));
        }
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
        let bytes = publication.bytes();
        if self.bytes.saturating_add(bytes) > limits.bytes {
            let most = limits.bytes;
            return Err(format!("an attempt may publish {most} bytes at most"));
        }
        if !self.budget.take(bytes, limits.host_bytes) {
            return Err(
                "the host holds too many messages that are not published yet: try again later"
                    .to_owned(),
            );
        }
        self.bytes += bytes;
        self.publications.push(publication);
        Ok(())
    }
}

impl Publication {
    fn bytes(&self) -> usize {
        let pairs = self.headers.iter();
        let headers: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        self.to.len() + self.body.len() + headers
    }

    /// Its headers as they are published, for a destination that takes headers. `id` is its id.
    pub fn complete_headers(&self, source: &Message, id: &str) -> Headers {
        let mut headers = self.headers.clone();
        headers.set(MESSAGE_ID, id.to_owned());
        headers.set(HOPS, (hops(source) + 1).to_string());
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
            inherit(TRACEPARENT, source.headers.find(TRACEPARENT).cloned());
            inherit(TRACESTATE, source.headers.find(TRACESTATE).cloned());
        }
        headers
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

    fn publication(to: &str) -> Publication {
        Publication {
            to: Arc::from(to),
            body: Bytes::from_static(b"body"),
            headers: Headers::default(),
            delay: None,
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
        let next = publication("invoices").complete_headers(&nearly, "id");
        let error = publish(publication("invoices"), &source(next), limits);
        assert!(error.expect_err("too many hops").contains("64 handlers"));
    }

    #[test]
    fn effects_are_bounded_for_an_attempt_and_for_the_host() {
        let from = source(Headers::default());
        let size = publication("invoices").bytes();
        let limits = EffectLimits {
            count: 3,
            bytes: 2 * size,
            host_bytes: 3 * size,
            hops: 64,
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
        let complete = publication("invoices").complete_headers(&from, "orders/g/m1#1");
        let find = |name| complete.find_str(name);
        assert_eq!(find(MESSAGE_ID), Some("orders/g/m1#1"));
        assert_eq!(find(CORRELATION_ID), Some("m1"));
        assert_eq!(find(HOPS), Some("1"));
        assert_eq!(find(TRACEPARENT), Some("trace"));
        assert_eq!(find(TRACESTATE), Some("state"));
        // It goes on in the next message; a trace of the handler's own replaces the other one.
        let mut own = publication("invoices");
        own.headers.push(TRACEPARENT, "own");
        let next = own.complete_headers(&source(complete), "x");
        assert_eq!(next.find_str(CORRELATION_ID), Some("m1"));
        assert_eq!(next.find_str(HOPS), Some("2"));
        assert_eq!(next.find_str(TRACEPARENT), Some("own"));
        assert_eq!(next.find_str(TRACESTATE), None);
    }
}
