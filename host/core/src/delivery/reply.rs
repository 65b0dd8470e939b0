//! Replies: what a producer that waits learns about its message, and what a handler answers.

use bytes::Bytes;

use super::declared::{declared, headers};
use super::message::Headers;
use super::policy::Rejection;

headers! {
    /// The inbox of a producer that waits: the host writes what becomes of the message, and what its handler answers, to the
    /// stream `{queue}:replies:<inbox>`, together with the settlement. 1 to 128 letters, digits and `.`, `_`, `:`, `-`; anything
    /// else asks for nothing.
    REPLY_TO = "x-reply-to";
}

/// The most bytes that a handler may answer.
pub const REPLY_MAX: usize = 64 << 10;
/// The most bytes in the name of an inbox.
pub const INBOX_MAX: usize = 128;

/// The inbox of the producer that waits for this message, if one does.
pub fn inbox(headers: &Headers) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    let name = headers.find_str(REPLY_TO)?;
    let fits = (1..=INBOX_MAX).contains(&name.len()) && name.bytes().all(is_part);
    fits.then_some(name)
}

declared! {
    /// What became of a message.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum Status (/// The name on the wire and in metrics.
                     label -> &'static str) {
        /// Its handler has acknowledged it.
        Acked = "acked",
        /// It is in the dead-letter queue, for this `reason`.
        DeadLettered = "dead-lettered",
        /// It was given up for this `reason`, and is kept nowhere.
        Discarded = "discarded",
        /// A message with its id was handled before: this one was acknowledged without a run.
        Duplicate = "duplicate",
        /// An operator has cancelled it.
        Cancelled = "cancelled",
    }
}

impl Status {
    /// The status with this name.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.label() == label)
    }
}

/// What a producer that waits learns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The id of the message.
    pub id: String,
    /// The consumer group that has settled it; `None` = the queue has no groups.
    pub group: Option<String>,
    /// What became of it.
    pub status: Status,
    /// Why it was given up: the label of a [`Reason`](super::policy::Reason), perhaps of a newer host.
    pub reason: Option<String>,
    /// Text for people about that, bounded.
    pub detail: Option<String>,
    /// What its handler answered.
    pub value: Option<Bytes>,
}

impl Answer {
    /// The same, with the cause why the message was given up.
    #[must_use]
    pub fn because(self, rejection: &Rejection) -> Self {
        Self {
            reason: Some(rejection.reason.label().to_owned()),
            detail: (!rejection.detail.is_empty()).then(|| rejection.detail.clone()),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_is_part_of_a_key_is_an_inbox() {
        let of = |value: &[u8]| {
            let mut headers = Headers::default();
            headers.push("X-Reply-To", value.to_vec());
            inbox(&headers).map(str::to_owned)
        };
        assert_eq!(of(b"web-1.a_B:7"), Some("web-1.a_B:7".to_owned()));
        assert!(of("x".repeat(INBOX_MAX).as_bytes()).is_some());
        for wrong in [
            &b""[..],
            b"a b",
            b"a{b}",
            b"\xff",
            "\u{e4}".as_bytes(),
            b"a\n",
        ] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
        assert_eq!(of("x".repeat(INBOX_MAX + 1).as_bytes()), None);
        assert_eq!(inbox(&Headers::default()), None);
    }

    #[test]
    fn names_of_statuses_are_read_back() {
        for status in Status::ALL {
            assert_eq!(Status::from_label(status.label()), Some(status));
        }
        assert_eq!(Status::from_label("lost"), None);
    }
}
