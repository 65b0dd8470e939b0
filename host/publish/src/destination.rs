//! The destination of messages.

use std::time::Duration;

use bytes::Bytes;

use super::error::Error;
use hostler_core::delivery::effect::Outlet;
use hostler_core::wire::list::Codec;
use hostler_core::wire::stream;

/// The destination of messages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    /// Appended to a stream.
    Stream(Stream),
    /// Pushed to the left of a list, whose consumers take from the right.
    List(List),
    /// Sent to the present subscribers of a channel.
    Channel(Channel),
}

/// A stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stream {
    /// Its key.
    pub key: String,
    /// The field that holds the body: usually [`stream::BODY_FIELD`].
    pub body_field: Bytes,
    /// Trim the stream to about this many entries: the oldest go, read or not.
    pub max_len: Option<u64>,
}

/// A list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct List {
    /// Its key.
    pub key: String,
    /// The codec of values.
    pub codec: Codec,
    /// The time to live of the list, which begins again with each such message: then the whole list is
    /// deleted, with all values.
    pub ttl: Option<Duration>,
    /// Whether hostler reads it with `reliable`: only then a message may have a delay.
    pub reliable: bool,
}

/// A channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// The codec of values.
    pub codec: Codec,
    /// Whether it is a sharded channel (`SPUBLISH`).
    pub sharded: bool,
}

impl Stream {
    /// This stream, with the usual body field, never trimmed.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            body_field: Bytes::from_static(stream::BODY_FIELD.as_bytes()),
            max_len: None,
        }
    }

    /// With the body in this field.
    #[must_use]
    pub fn body_field(mut self, name: impl Into<Bytes>) -> Self {
        self.body_field = name.into();
        self
    }

    /// Trimmed to about this many entries: the oldest go, read or not.
    #[must_use]
    pub fn max_len(mut self, entries: u64) -> Self {
        self.max_len = Some(entries);
        self
    }
}

impl List {
    /// This list, of framed values.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            codec: Codec::Frame,
            ttl: None,
            reliable: false,
        }
    }

    /// With values in this codec.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// With this time to live after the last message, for the list and all its values.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Hostler reads it with `reliable`: messages may have a delay.
    #[must_use]
    pub fn reliable(mut self) -> Self {
        self.reliable = true;
        self
    }
}

impl Channel {
    /// This channel, of framed values.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            codec: Codec::Frame,
            sharded: false,
        }
    }

    /// With values in this codec.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// A sharded channel of a cluster.
    #[must_use]
    pub fn sharded(mut self) -> Self {
        self.sharded = true;
        self
    }
}

macro_rules! destinations {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Destination {
            fn from(to: $kind) -> Self {
                Self::$kind(to)
            }
        }
    )*};
}

destinations!(Stream, List, Channel);

impl Destination {
    /// A stream, with the usual body field, never trimmed.
    pub fn stream(key: impl Into<String>) -> Self {
        Stream::new(key).into()
    }

    /// A list of framed values.
    pub fn list(key: impl Into<String>) -> Self {
        List::new(key).into()
    }

    /// A channel of framed values.
    pub fn channel(name: impl Into<String>) -> Self {
        Channel::new(name).into()
    }

    /// The key, or the name of the channel.
    pub fn name(&self) -> &str {
        match self {
            Self::Stream(to) => &to.key,
            Self::List(to) => &to.key,
            Self::Channel(to) => &to.name,
        }
    }

    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stream(_) => "stream",
            Self::List(_) => "list",
            Self::Channel(_) => "channel",
        }
    }

    /// Its kind and its name, as `grant.publish` has them: `stream:invoices`.
    pub fn label(&self) -> String {
        format!("{}:{}", self.kind(), self.name())
    }

    /// Whether its messages carry headers, and so ids.
    pub fn takes_headers(&self) -> bool {
        match self {
            Self::Stream(_) => true,
            Self::List(List { codec, .. }) | Self::Channel(Channel { codec, .. }) => {
                *codec != Codec::Raw
            }
        }
    }

    /// Which messages a handler may publish here.
    pub fn outlet(&self) -> Outlet {
        Outlet {
            takes_delays: self.takes_delays().is_ok(),
            takes_headers: self.takes_headers(),
        }
    }

    /// Whether it is a channel, which keeps nothing.
    pub fn is_channel(&self) -> bool {
        matches!(self, Self::Channel(_))
    }

    /// Whether a message there can have a delay.
    ///
    /// # Errors
    /// [`Error::Delay`] says why not.
    pub fn takes_delays(&self) -> Result<(), Error> {
        let why = match self {
            Self::Stream(stream) if stream.max_len.is_some() => {
                "a host appends it to the stream when it is due, and does not trim: leave out the length"
            }
            Self::List(list) if !list.reliable => {
                "only hosts of reliable lists look for due messages: say that the list is reliable"
            }
            Self::List(list) if list.ttl.is_some() => {
                "until it is due it is not on the list, and would not be deleted with it: leave out the time to live, or let the message expire"
            }
            Self::Channel(_) => "a channel keeps nothing: publish when it is time",
            Self::Stream(_) | Self::List(_) => return Ok(()),
        };
        Err(Error::Delay(why))
    }

    /// The command of a message, for errors.
    pub(super) const fn command(&self) -> &'static str {
        match self {
            Self::Stream(_) => "XADD",
            Self::List(_) => "LPUSH",
            Self::Channel(Channel { sharded: false, .. }) => "PUBLISH",
            Self::Channel(Channel { sharded: true, .. }) => "SPUBLISH",
        }
    }
}
