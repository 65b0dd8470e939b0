//! What the operator wants: read once, into types that cannot be wrong.
//!
//! Each setting is defined once, in [`settings`]: from there come the TOML key, the variable, the
//! flag, the help, `check --config` and `docs/configuration.md`. What is set is collected from the
//! file, the variables and the flags ([`collect`]), checked value by value and then together, and
//! becomes a [`Config`]: all problems are told at once.
//!
//! Deliberately absent: the environment and the arguments themselves. They come in.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use choices::{Digest, HeaderNames, RouteTable, SummaryFormat};
pub use collect::{CONFIG_VARIABLE, Collected, Effective, Input, PolicyValue, VARIABLE_PREFIX};
pub use file::FILE_MAX;
pub use problem::{Error, Problem, ProblemKind, Source};
pub use queue::queue_of_type;
pub use secret::{RedisUrl, Secret};
pub use setting::{Definition, Setting};
pub use value::{ByteSize, Invalid, RedisAt, Shape, Value};

use crate::delivery::policy::Policy;
use crate::queue::dead_letter_queue::{OnFull, Routes};
use crate::queue::kind::Place;
use crate::queue::list::Recovery;
use crate::queue::pubsub::{Buffer, Subscription};
use crate::queue::stream::{GroupStart, Retention};
use crate::redis::target::Target;
use crate::rollout::breaker::{self, OnBreak};
use crate::rollout::canary::{self, Share};
use crate::rollout::verify;
use crate::runtime::Batching;
use crate::sandbox;
use crate::telemetry::logging::{LogFilter, LogFormat};
use crate::wire;
use crate::wire::codec::BodyCodec;
use crate::wire::list::{Codec, Framing};
use crate::wire::stream::MissingBody;

mod at_most_once;
mod build;
mod checks;
mod choices;
mod collect;
mod destination;
mod file;
mod losses;
mod problem;
mod queue;
mod reach;
mod rules;
mod sandboxed;
mod secret;
mod selftest;
mod setting;
pub mod settings;
mod value;

#[cfg(test)]
mod tests;

/// A configuration that can be run: checked as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where Redis is and how to get in.
    pub redis: Redis,
    /// What is read.
    pub queue: QueueKind,
    /// The base of the consumer's name; `None` = the name of the machine.
    pub consumer: Option<String>,
    /// How long a delivery must go unrenewed until it is an orphan.
    pub min_idle: Duration,
    /// How often orphans are looked for.
    pub orphan_scan: Duration,
    /// How often due deliveries are looked for, at the least.
    pub parked_scan: Duration,
    /// What is trimmed.
    pub retention: Retention,
    /// How stream entries are read: the body's field.
    pub body_field: String,
    /// How stream entries are read: without that field.
    pub missing_body: MissingBody,
    /// What every body must parse as.
    pub codec: Option<BodyCodec>,
    /// The headers that every message must have.
    pub require_headers: HeaderNames,
    /// How long after it was enqueued a message is worth handling.
    pub ttl: Option<Duration>,
    /// How many messages may be unread.
    pub max_length: Option<NonZeroU64>,
    /// The component.
    pub handler: Handler,
    /// How another version of it takes over.
    pub swap: Swap,
    /// What it may use, how many attempts run at the same time, how instances are reused.
    pub sandbox: sandbox::Settings,
    /// How messages are gathered for a handler of batches.
    pub batching: Batching,
    /// What an outcome leads to.
    pub policy: Policy,
    /// Where dead letters go; `None` = nowhere.
    pub dead_letter: Option<DeadLetter>,
    /// The largest body that a handler is given.
    pub max_payload: ByteSize,
    /// The most deliveries held beyond those that run.
    pub prefetch: NonZeroU32,
    /// How the process lives and ends.
    pub process: Process,
    /// How the handler is built while it is written.
    pub development: Development,
}

/// How the handler is built while it is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Development {
    /// The command, for a shell.
    pub build: Option<String>,
    /// The folder of the sources.
    pub watch: PathBuf,
}

/// Where Redis is and how to get in.
#[derive(Clone, Debug)]
pub struct Redis {
    /// The server.
    pub server: Server,
    /// How long to wait for the server at start.
    pub wait: Duration,
}

/// A server.
#[derive(Clone, Debug)]
pub enum Server {
    /// One of our own, started and ended with this process.
    Embedded,
    /// One that runs somewhere.
    At(Box<Target>),
}

/// What is read: one of three kinds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum QueueKind {
    /// A stream, through a consumer group.
    Stream {
        /// The stream.
        key: Arc<str>,
        /// The group.
        group: Arc<str>,
        /// Where a new group starts.
        start: GroupStart,
    },
    /// A list.
    List {
        /// The list.
        key: Arc<str>,
        /// How values are read.
        framing: Framing,
        /// Through processing lists; `None` = what is handed out is forgotten.
        reliable: Option<Reliable>,
    },
    /// A channel.
    Channel {
        /// The channel, or a pattern of channels.
        name: Arc<str>,
        /// Which of them.
        subscription: Subscription,
        /// How values are read.
        framing: Framing,
        /// What waits in the host.
        buffer: Buffer,
    },
}

/// How a list is read reliably.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reliable {
    /// Where claims are recorded.
    pub recovery: Option<Recovery>,
}

impl QueueKind {
    /// The key or the channel.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Stream { key, .. } | Self::List { key, .. } => key,
            Self::Channel { name, .. } => name,
        }
    }

    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stream { .. } => "stream",
            Self::List { .. } => "list",
            Self::Channel { .. } => "channel",
        }
    }

    /// The consumer group of a stream.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Stream { group, .. } => Some(group),
            Self::List { .. } | Self::Channel { .. } => None,
        }
    }

    /// Where it is, to look at it.
    pub fn place(&self) -> Place {
        match self {
            Self::Stream { key, group, .. } => Place::Stream {
                key: Arc::clone(key),
                group: Arc::clone(group),
            },
            Self::List {
                key,
                reliable: Some(reliable),
                ..
            } => Place::List {
                key: Arc::clone(key),
                recovery: reliable.recovery.as_ref().map(|r| r.key.clone()),
            },
            Self::List { key, .. } => Place::SimpleList {
                key: Arc::clone(key),
            },
            Self::Channel { .. } => Place::PubSub,
        }
    }

    /// Whether a message is forgotten when it is handed out.
    pub fn is_at_most_once(&self) -> bool {
        match self {
            Self::Stream { .. } => false,
            Self::List { reliable, .. } => reliable.is_none(),
            Self::Channel { .. } => true,
        }
    }
}

/// What a benchmark goes by.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Where Redis is and how to get in.
    pub redis: Redis,
    /// The component.
    pub handler: Handler,
    /// How it is run.
    pub sandbox: sandbox::Settings,
    /// The most deliveries held beyond those that run.
    pub prefetch: NonZeroU32,
    /// How messages are gathered for a handler of batches.
    pub batching: Batching,
}

/// How a component is tried on dead letters.
#[derive(Clone, Debug)]
pub struct Trying {
    /// How it is run.
    pub sandbox: sandbox::Settings,
    /// The largest body that a handler is given.
    pub max_payload: ByteSize,
    /// `max_deliveries`, as the handler is told; 0 = no cap.
    pub max_attempts: u32,
    /// How stream entries are read.
    pub reading: wire::stream::Options,
}

/// Where messages are published to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    /// Appended to a stream.
    Stream {
        /// The stream.
        key: String,
        /// The field that holds the body.
        body_field: String,
    },
    /// Pushed to a list.
    List {
        /// The list.
        key: String,
        /// Whether hosts read it through processing lists.
        reliable: bool,
        /// How values are written.
        codec: Codec,
    },
    /// Sent to a channel.
    Channel {
        /// The channel.
        name: String,
        /// Whether it is a sharded one.
        sharded: bool,
        /// How values are written.
        codec: Codec,
    },
}

/// The component and how it is run.
#[derive(Clone, Debug)]
pub struct Handler {
    /// The component's file.
    pub file: PathBuf,
    /// The only digest that is accepted.
    pub digest: Option<Digest>,
}

/// How another version of the handler takes over, and what stops one that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Swap {
    /// Whether deployed versions are taken.
    pub accept_deploys: bool,
    /// What a version must stand.
    pub terms: verify::Terms,
    /// The trial of a new version; `None` = it gets all messages at once.
    pub canary: Option<(Share, canary::Rule)>,
    /// When the queue is stopped; `None` = never.
    pub breaker: Option<breaker::Rule>,
    /// What happens then.
    pub on_break: OnBreak,
}

/// Where dead letters go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadLetter {
    /// The key.
    pub key: Arc<str>,
    /// What goes elsewhere.
    pub routes: Routes,
    /// How many are kept.
    pub max_len: NonZeroU64,
    /// What happens when there are that many.
    pub on_full: OnFull,
}

/// How the process lives and ends.
#[derive(Clone, Debug)]
pub struct Process {
    /// Exit when the queue holds nothing to do.
    pub until_empty: bool,
    /// How long that may take.
    pub until_empty_timeout: Option<Duration>,
    /// How long running attempts may take to end.
    pub drain_timeout: Duration,
    /// What is printed on exit.
    pub summary: SummaryFormat,
    /// Where `/metrics` and the probes are served.
    pub admin: Option<SocketAddr>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_level: LogFilter,
}

/// A configuration and what looked odd about it.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// What was read.
    pub value: T,
    /// What should be looked at, but does not stop anything.
    pub warnings: Vec<Problem>,
}
