//! Where messages go.

use std::time::Duration;

use bytes::Bytes;

use super::error::Error;
use crate::wire::list::Codec;
use crate::wire::stream;

/// Where messages go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    /// Appended to a stream.
    Stream(Stream),
    /// Pushed to the left of a list, whose consumers take from the right.
    List(List),
    /// Sent to whoever listens to a channel now.
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
    /// How values are written.
    pub codec: Codec,
    /// For how long the list lives after the last message that is published so: then it is gone
    /// whole, whatever waits in it.
    pub ttl: Option<Duration>,
    /// Whether hostler reads it with `reliable`: only then somebody looks for what is due.
    pub reliable: bool,
}

/// A channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// How values are written.
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

    /// With values written so.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// It lapses so long after the last message, with everything that waits in it.
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

    /// With values written so.
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

impl From<Stream> for Destination {
    fn from(stream: Stream) -> Self {
        Self::Stream(stream)
    }
}

impl From<List> for Destination {
    fn from(list: List) -> Self {
        Self::List(list)
    }
}

impl From<Channel> for Destination {
    fn from(channel: Channel) -> Self {
        Self::Channel(channel)
    }
}

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

    /// Whether a message can wait for its time there.
    ///
    /// # Errors
    /// [`Error::Delay`] says why not.
    pub fn takes_delays(&self) -> Result<(), Error> {
        let why = match self {
            Self::Stream(stream) if stream.max_len.is_some() => {
                "a stream is trimmed by who appends to it, and that is a host when it is due: leave out the length"
            }
            Self::List(list) if !list.reliable => {
                "only hosts of reliable lists look for what is due: say that the list is reliable"
            }
            Self::List(list) if list.ttl.is_some() => {
                "what waits for its time is not on the list, so it would not lapse with it: leave out the time to live, or let the message expire"
            }
            Self::Channel(_) => "a channel keeps nothing: publish when it is time",
            Self::Stream(_) | Self::List(_) => return Ok(()),
        };
        Err(Error::Delay { why })
    }

    /// The command that a message goes by, in errors.
    pub(super) const fn command(&self) -> &'static str {
        match self {
            Self::Stream(_) => "XADD",
            Self::List(_) => "LPUSH",
            Self::Channel(Channel { sharded: false, .. }) => "PUBLISH",
            Self::Channel(Channel { sharded: true, .. }) => "SPUBLISH",
        }
    }
}
