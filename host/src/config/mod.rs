//! The configuration: read once, into checked types.
//!
//! Each setting is defined once, in [`settings`]: its TOML key, variable, flag, help, constraints, the rows of
//! `check --config` and of `docs/configuration.md` come from there. [`collect`] takes the values from the
//! file, the variables and the flags. They are checked one by one and then together, and become a
//! [`Config`]. All problems are reported at once.
//!
//! This room does not read the environment or the arguments: its callers pass them.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use crate::values::nearest;
pub use crate::values::{ByteSize, Invalid, Shape, Value};
pub use choices::{Digest, Durability, HeaderNames, RouteTable, SummaryFormat};
pub use collect::{
    CONFIG_VARIABLE, Collected, Effective, Input, PolicyValue, QUEUE_KEYS, VARIABLE_PREFIX,
};
pub use commented::{commented, usual as usual_settings};
pub use file::FILE_MAX;
pub use file_schema::of_settings as file_schema;
pub use problem::{Error, Problem, ProblemKind, Source};
pub use queue::queue_of_type;
pub use reach::{EMBEDDED_DIR, read_token};
pub use secret::{RedisAt, RedisUrl};
pub use setting::{Definition, Facts, Setting};
pub use sources::Sources;

use crate::delivery::policy::Policy;
use crate::grants::Providers;
use crate::outgoing::dedup::Dedup;
use crate::outgoing::{Outlets, outbox};
use crate::queue::dead_letter_queue::{OnFull, Routes};
use crate::queue::journal;
use crate::queue::kind::Place;
use crate::queue::limits::Limit;
use crate::queue::list::Recovery;
use crate::queue::pubsub::{Buffer, Subscription};
use crate::queue::stream::{GroupStart, Retention};
use crate::redis::target::{Secret, Target};
use crate::rollout::breaker::{self, OnBreak};
use crate::rollout::canary::{self, Share};
use crate::rollout::verify;
use crate::runtime::Batching;
use crate::sandbox;
use crate::schedule::ScheduleRule;
use crate::telemetry::logging::{LogFilter, LogFormat};
use crate::telemetry::otlp;
use crate::wire;
use crate::wire::codec::BodyCodec;
use crate::wire::list::Framing;
use crate::wire::stream::MissingBody;

mod build;
mod checks;
mod choices;
mod collect;
mod commented;
mod data_loss;
mod file;
mod file_schema;
pub mod limits;
mod problem;
mod program;
mod queue;
mod reach;
mod sandboxed;
mod secret;
mod selftest;
mod setting;
pub mod settings;
mod sources;

#[cfg(test)]
mod tests;

/// The configuration of a host, checked as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    /// How to reach Redis.
    pub redis: Redis,
    /// The queue.
    pub queue: QueueKind,
    /// The base of the name of the consumer; `None` = the name of the machine.
    pub consumer: Option<String>,
    /// The time without a renewal after which a delivery is an orphan.
    pub min_idle: Duration,
    /// How often the host looks for orphans.
    pub orphan_scan: Duration,
    /// The longest pause between two looks for due deliveries.
    pub parked_scan: Duration,
    /// Which entries are trimmed.
    pub retention: Retention,
    /// The field of a stream entry that holds the body.
    pub body_field: String,
    /// How a stream entry without that field is read.
    pub missing_body: MissingBody,
    /// The format that every body must have.
    pub codec: Option<BodyCodec>,
    /// The headers that every message must have.
    pub require_headers: HeaderNames,
    /// The time to live of a message.
    pub ttl: Option<Duration>,
    /// The most unread messages.
    pub max_length: Option<NonZeroU64>,
    /// Whether the queue is paused.
    pub paused: bool,
    /// The component.
    pub handler: Handler,
    /// How another version of it takes over.
    pub swap: Swap,
    /// Its limits, its grants, its concurrency, and the reuse of instances.
    pub sandbox: sandbox::Settings,
    /// What the grants do outside the sandbox; `None` = nothing is granted.
    pub providers: Option<Providers>,
    /// How messages are gathered for a handler of batches.
    pub batching: Batching,
    /// Where the handler may publish, by the names that it uses.
    pub outlets: Outlets,
    /// When that goes through an outbox.
    pub outbox: outbox::Rules,
    /// How duplicates are found; `None` = they are not looked for.
    pub dedup: Option<Dedup>,
    /// How journals are kept; `None` = no rule asks for one.
    pub journal: Option<journal::Rules>,
    /// The schedules of the queue.
    pub schedules: Vec<ScheduleRule>,
    /// How many messages may start in a time.
    pub limits: Arc<[Limit]>,
    /// How long answers to producers are kept.
    pub reply_keep: Duration,
    /// What follows an outcome.
    pub policy: Policy,
    /// The dead-letter queue.
    pub dead_letter: Option<DeadLetter>,
    /// The largest body that a handler gets.
    pub max_payload: ByteSize,
    /// The most deliveries held beyond the running ones.
    pub prefetch: NonZeroU32,
    /// The process.
    pub process: Process,
    /// Which collector gets telemetry; `None` = nothing is sent.
    pub telemetry: Option<otlp::Settings>,
    /// The settings of `hostler dev`.
    pub development: Development,
}

/// The settings of `hostler dev`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Development {
    /// The shell command that builds the handler.
    pub build: Option<String>,
    /// The folder in which it runs: that of the configuration file.
    pub folder: PathBuf,
    /// The folder of the sources.
    pub watch: PathBuf,
}

/// How to reach Redis.
#[derive(Clone, Debug)]
pub struct Redis {
    /// The server.
    pub server: Server,
    /// How long to wait for the server at the start.
    pub wait: Duration,
    /// Who must have what must not be lost.
    pub durability: Durability,
}

/// A server.
#[derive(Clone, Debug)]
pub enum Server {
    /// A private server with its data in this folder, started and ended with this process.
    Embedded(PathBuf),
    /// A server that runs somewhere.
    At(Box<Target>),
}

/// The queue: one of three kinds.
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
        /// Through processing lists; `None` = a message is forgotten when it is handed out.
        reliable: Option<Reliable>,
    },
    /// A channel.
    Channel {
        /// The channel, or a pattern of channels.
        name: Arc<str>,
        /// Which kind of subscription.
        subscription: Subscription,
        /// How values are read.
        framing: Framing,
        /// The buffer in the host.
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

    /// The place of the queue in Redis, to look at it.
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

    /// Whether the queue forgets a message when it hands it out.
    pub fn is_at_most_once(&self) -> bool {
        match self {
            Self::Stream { .. } => false,
            Self::List { reliable, .. } => reliable.is_none(),
            Self::Channel { .. } => true,
        }
    }
}

/// The configuration of a benchmark.
#[derive(Clone, Debug)]
pub struct Bench {
    /// How to reach Redis.
    pub redis: Redis,
    /// The component.
    pub handler: Handler,
    /// How it is run.
    pub sandbox: sandbox::Settings,
    /// The most deliveries held beyond the running ones.
    pub prefetch: NonZeroU32,
    /// How messages are gathered for a handler of batches.
    pub batching: Batching,
}

/// How a component is tried on dead letters.
#[derive(Clone, Debug)]
pub struct Trying {
    /// How it is run.
    pub sandbox: sandbox::Settings,
    /// The largest body that a handler gets.
    pub max_payload: ByteSize,
    /// `max_deliveries` for the handler; 0 = no cap.
    pub max_attempts: u32,
    /// How stream entries are read.
    pub reading: wire::stream::Options,
}

/// The component and how it is run.
#[derive(Clone, Debug)]
pub struct Handler {
    /// The component's file.
    pub file: PathBuf,
    /// The only digest that is accepted.
    pub digest: Option<Digest>,
}

/// How another version of the handler takes over, and what stops a version that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Swap {
    /// Whether the host takes deployed versions.
    pub accept_deploys: bool,
    /// The checks that a version must pass.
    pub terms: verify::Terms,
    /// The trial of a new version; `None` = it gets all messages at once.
    pub canary: Option<(Share, canary::CanaryRule)>,
    /// How long a version must have run without a complaint until the host has kept it.
    pub window: Duration,
    /// When the breaker stops the queue; `None` = never.
    pub breaker: Option<breaker::BreakerRule>,
    /// What follows then.
    pub on_break: OnBreak,
}

/// The dead-letter queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadLetter {
    /// The key.
    pub key: Arc<str>,
    /// Other destinations by reason.
    pub routes: Routes,
    /// The most dead letters that it keeps.
    pub max_len: NonZeroU64,
    /// What follows when it is that full.
    pub on_full: OnFull,
}

/// The process: its end, its output, its admin server.
#[derive(Clone, Debug)]
pub struct Process {
    /// Exit when the queue is empty.
    pub until_empty: bool,
    /// The longest time for that.
    pub until_empty_timeout: Option<Duration>,
    /// The longest time that running attempts may take to end.
    pub drain_timeout: Duration,
    /// The output at the end.
    pub summary: SummaryFormat,
    /// The address of `/metrics` and the probes.
    pub admin: Option<SocketAddr>,
    /// The dashboard; `None` = it is not served.
    pub ui: Option<Dashboard>,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The filter of log lines.
    pub log_level: LogFilter,
}

/// The dashboard of a host.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// The token for its actions; `None` = it only reads.
    pub token: Option<Secret>,
}

/// A configuration with its warnings.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// The configuration.
    pub value: T,
    /// Problems that do not stop anything.
    pub warnings: Vec<Problem>,
}
