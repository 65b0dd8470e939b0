//! A message on its way to Redis.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::error::{DELAY_MAX, Error};
use hostler_core::delivery::message::{EXPIRES_AT, Headers, MESSAGE_ID};
use hostler_core::delivery::millis::millis;
use hostler_core::wire::decoded::message_id;
use hostler_core::wire::stream;
use hostler_redis::machine_ms;

/// A message to publish.
///
/// ```
/// use std::time::Duration;
/// use hostler_publish::Outgoing;
///
/// let reminder = Outgoing::new(r#"{"invoice":7}"#)
///     .header("tenant", "acme")
///     .delay(Duration::from_secs(3600))
///     .expires_in(Duration::from_secs(7200));
/// assert_eq!(reminder.headers.find_str("Tenant"), Some("acme"));
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outgoing {
    /// The body, byte for byte.
    pub body: Bytes,
    /// The headers, in their order.
    pub headers: Headers,
    /// Instead of body and headers: the fields of a stream entry, as they are.
    pub fields: Option<Vec<(Bytes, Bytes)>>,
    /// How long it waits before a handler gets it, by the clock of Redis.
    pub delay: Option<Duration>,
    /// How long it is worth handling, by this machine's clock: after that it is dead-lettered unrun, as
    /// `expired`.
    pub expires_in: Option<Duration>,
}

impl Outgoing {
    /// A message without headers.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..Self::default()
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// The same with a delay, for streams and reliable lists. See [`Self::delay`].
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// The same with an expiry. See [`Self::expires_in`].
    #[must_use]
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }

    pub(super) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        let fields = self.fields.iter().flatten();
        let fields: usize = fields.map(|(n, v)| n.len() + v.len()).sum();
        self.body.len() + headers + fields
    }

    /// The delay, if it has one.
    pub(super) fn waits(&self) -> Result<Option<Duration>, Error> {
        let Some(delay) = self.delay.filter(|delay| !delay.is_zero()) else {
            return Ok(None);
        };
        if delay > DELAY_MAX {
            return Err(Error::DelayTooLong);
        }
        if self.expires_in.is_some_and(|lives| lives <= delay) {
            return Err(Error::NeverHandled);
        }
        Ok(Some(delay))
    }

    /// With the header that says when it expires.
    pub(super) fn with_end(&self) -> Cow<'_, Self> {
        let Some(lives) = self.expires_in else {
            return Cow::Borrowed(self);
        };
        let end = machine_ms().saturating_add(millis(lives));
        let mut message = self.clone();
        message.set(EXPIRES_AT, end.to_string().into());
        Cow::Owned(message)
    }

    /// Its id (its own, or `id`), and the message with that id.
    pub(super) fn with_id(&self, id: String) -> (String, Cow<'_, Self>) {
        let own = match &self.fields {
            Some(fields) => message_id(&stream::headers(fields)).map(str::to_owned),
            None => message_id(&self.headers).map(str::to_owned),
        };
        match own {
            Some(own) => (own, Cow::Borrowed(self)),
            None => {
                let mut message = self.clone();
                message.set(MESSAGE_ID, id.clone().into());
                (id, Cow::Owned(message))
            }
        }
    }

    pub(super) fn set(&mut self, name: &'static str, value: Bytes) {
        match &mut self.fields {
            Some(fields) => {
                let holds = |field: &[u8]| {
                    stream::header_name(field)
                        .is_some_and(|header| header.eq_ignore_ascii_case(name.as_bytes()))
                };
                fields.retain(|(field, _)| !holds(field));
                fields.push(stream::header_field(name.as_bytes(), value));
            }
            None => self.headers.set(name, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_host_are_set_once() {
        let message = Outgoing::new("x")
            .header("X-Expires-At", "1")
            .expires_in(Duration::from_secs(60));
        let ended = message.with_end();
        assert_eq!(ended.headers.len(), 1);
        assert!(ended.headers.find_number(EXPIRES_AT).unwrap() > 1);

        let fields = vec![
            (Bytes::from_static(b"id"), Bytes::from_static(b"1")),
            (
                Bytes::from_static(b"h:X-Expires-At"),
                Bytes::from_static(b"1"),
            ),
        ];
        let message = Outgoing {
            fields: Some(fields),
            expires_in: Some(Duration::from_secs(60)),
            ..Outgoing::default()
        };
        let ended = message.with_end();
        let fields = ended.fields.as_ref().unwrap();
        assert_eq!(
            (fields.len(), &fields[1].0[..]),
            (2, &b"h:x-expires-at"[..])
        );
    }

    #[test]
    fn only_a_message_without_an_id_gets_one() {
        let none = Outgoing::new("x");
        let (id, with) = none.with_id("new".to_owned());
        assert_eq!(
            (id.as_str(), with.headers.find_str(MESSAGE_ID)),
            ("new", Some("new"))
        );
        let own = Outgoing::new("x").header("X-Message-Id", "own");
        let (id, with) = own.with_id("new".to_owned());
        assert_eq!((id.as_str(), with.as_ref()), ("own", &own));
        let empty = Outgoing::new("x").header("x-message-id", "");
        assert_eq!(empty.with_id("new".to_owned()).0, "new");
    }

    #[test]
    fn a_message_that_expires_before_it_is_due_is_refused() {
        let message = |delay, lives| {
            let message = Outgoing::new("x").delay(Duration::from_secs(delay));
            message.expires_in(Duration::from_secs(lives)).waits()
        };
        assert!(matches!(message(5, 5), Err(Error::NeverHandled)));
        assert!(matches!(message(5, 6), Ok(Some(_))));
        assert!(matches!(message(0, 0), Ok(None)));
        let long = Outgoing::new("x").delay(DELAY_MAX + Duration::from_millis(1));
        assert!(matches!(long.waits(), Err(Error::DelayTooLong)));
    }
}
