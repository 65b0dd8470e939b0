//! What happened in a run: publishes, attempts, faults, and what Redis held at its end. All times are in
//! milliseconds of the machine's clock, from the begin of the run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::script::Script;

/// The kinds of queues, by what they promise.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Kind {
    /// A stream: at least once.
    Stream,
    /// A reliable list: at least once.
    List,
    /// A simple list: at most once.
    SimpleList,
    /// A channel: each host at most once.
    Channel,
}

impl Kind {
    /// Whether every message has to come to an end.
    #[must_use]
    pub fn at_least_once(self) -> bool {
        matches!(self, Self::Stream | Self::List)
    }

    /// Its name.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::List => "reliable list",
            Self::SimpleList => "simple list",
            Self::Channel => "channel",
        }
    }
}

/// The settings of the hosts of a run, as far as promises depend on them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Settings {
    /// The kind of queue.
    pub kind: Kind,
    /// The most starts of a message.
    pub cap: u32,
    /// The most attempts that run on a host at the same time.
    pub concurrency: u32,
    /// The most messages that a host at most once holds beyond them.
    pub prefetch: u32,
    /// The lease, in milliseconds: the longest of all hosts.
    pub min_idle_ms: u64,
    /// The longest wait between two attempts, in milliseconds.
    pub backoff_max_ms: u64,
    /// How long a host may take to drain, in milliseconds.
    pub drain_timeout_ms: u64,
    /// Whether one host runs one attempt at a time: handlers then start in the order of publishing.
    pub ordered: bool,
    /// Whether each instance serves one message.
    pub fresh_instances: bool,
    /// The versions of the handler that may run.
    pub versions: BTreeSet<u64>,
    /// The most memory of a host, in KiB.
    pub host_rss_kib: u64,
    /// The most file descriptors of a host.
    pub host_fds: u64,
    /// The most memory by which a host may grow in ten minutes, in KiB, in runs that are long enough.
    pub slope_kib: u64,
    /// How long the drain of the queue may take, in milliseconds.
    pub drain_queue_ms: u64,
    /// Whether hosts abort at steps of a message's way: a variable asks for it.
    pub aborts: bool,
    /// The most memory of the server, in KiB.
    pub redis_kib: u64,
    /// How many messages have to be handled in a second, at least, from the first to the last.
    pub least_rate: u64,
}

/// What a publisher knows of a message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Published {
    /// Redis has confirmed it.
    Ok,
    /// The answer was lost.
    Unknown,
    /// Redis has refused it.
    Failed,
}

/// A message that was published, or may have been.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sent {
    /// What its handler does.
    pub script: Script,
    /// When it was sent.
    pub at_ms: u64,
    /// What became of it.
    pub published: Published,
}

/// What a guest has said.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum What {
    /// An attempt starts.
    Start,
    /// It is about to answer.
    End,
    /// It runs in this version.
    Version(u64),
}

/// A line of the witness: it survives the death of the host that wrote it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Event {
    /// When.
    pub at_ms: u64,
    /// On which host: a process, not a place.
    pub host: u16,
    /// The number of the message.
    pub message: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// What.
    pub what: What,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum FaultKind {
    /// A host is killed.
    KillHost,
    /// A message kills its host.
    HostDies,
    /// A host aborts at a step of a message's way.
    HostAborts,
    /// A host stands still.
    StopHost,
    /// The machine gives a process no CPU for a while: it is not in the plan.
    Starved,
    /// A host gets a signal to stop, and another one comes.
    DrainHost,
    /// A host does not end its handlers in time when it gets a signal to stop.
    DrainTimeout,
    /// The server is killed, and started again.
    KillRedis,
    /// The server is shut down, and started again.
    RestartRedis,
    /// The server stands still.
    PauseRedis,
    /// The server is killed, and the end of its append-only file is lost.
    PowerLoss,
    /// The server is killed, and its replica takes its place.
    Failover,
    /// All connections are closed.
    Cut,
    /// One reply is cut after some bytes.
    CutReply,
    /// Nothing passes between hosts and server.
    BlackHole,
    /// The requests on the open connections come late.
    Stall,
    /// Everything takes longer, in small pieces.
    SlowLink,
    /// The server closes all connections.
    ClientKill,
    /// The server forgets its scripts.
    ScriptFlush,
    /// The server refuses writes that need memory.
    OutOfMemory,
    /// The server cannot write its append-only file.
    DiskFull,
    /// The server's clock jumps.
    ClockJump,
    /// The handler is replaced.
    Swap,
    /// The handler is replaced by a file that is not a handler.
    BadSwap,
    /// A live setting changes.
    Policy,
    /// The policies cannot be read: their key has another type, or there are too many rules.
    Unreadable,
    /// The file of the handler, or the configuration, is written in place, and its writer pauses in the middle.
    HalfWritten,
    /// One more host comes.
    HostComes,
    /// A host goes, and one with other settings comes.
    OtherSettings,
    /// A host goes, and one of another version comes.
    OtherVersion,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::KillHost,
        Self::HostDies,
        Self::HostAborts,
        Self::StopHost,
        Self::Starved,
        Self::DrainHost,
        Self::DrainTimeout,
        Self::KillRedis,
        Self::RestartRedis,
        Self::PauseRedis,
        Self::PowerLoss,
        Self::Failover,
        Self::Cut,
        Self::CutReply,
        Self::BlackHole,
        Self::Stall,
        Self::SlowLink,
        Self::ClientKill,
        Self::ScriptFlush,
        Self::OutOfMemory,
        Self::DiskFull,
        Self::ClockJump,
        Self::Swap,
        Self::BadSwap,
        Self::Policy,
        Self::Unreadable,
        Self::HalfWritten,
        Self::HostComes,
        Self::OtherSettings,
        Self::OtherVersion,
    ];

    /// What to call it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::KillHost => "host killed",
            Self::HostDies => "host killed by a message",
            Self::HostAborts => "host aborted at a step",
            Self::StopHost => "host stopped",
            Self::Starved => "host or Redis without CPU (not planned)",
            Self::DrainHost => "host drained",
            Self::DrainTimeout => "drain over its time",
            Self::KillRedis => "Redis killed",
            Self::RestartRedis => "Redis restarted",
            Self::PauseRedis => "Redis stopped",
            Self::PowerLoss => "power loss",
            Self::Failover => "failover",
            Self::Cut => "connections cut",
            Self::CutReply => "reply cut",
            Self::BlackHole => "black hole",
            Self::Stall => "requests late",
            Self::SlowLink => "slow link",
            Self::ClientKill => "clients killed",
            Self::ScriptFlush => "scripts flushed",
            Self::OutOfMemory => "Redis out of memory",
            Self::DiskFull => "disk of Redis full",
            Self::ClockJump => "clock of Redis jumps",
            Self::Swap => "handler swapped",
            Self::BadSwap => "bad handler",
            Self::Policy => "policy changed",
            Self::Unreadable => "policies unreadable",
            Self::HalfWritten => "file half written",
            Self::HostComes => "host comes",
            Self::OtherSettings => "other settings",
            Self::OtherVersion => "other version",
        }
    }

    /// Whether it may interrupt an attempt, or lose the answer to one, so that the message runs again.
    #[must_use]
    pub fn interrupts(self) -> bool {
        !matches!(
            self,
            Self::DrainHost
                | Self::ScriptFlush
                | Self::Swap
                | Self::BadSwap
                | Self::Policy
                | Self::Unreadable
                | Self::HalfWritten
                | Self::HostComes
                | Self::OtherSettings
                | Self::OtherVersion
        )
    }
}

/// A fault, from its begin until it was healed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// When it began.
    pub at_ms: u64,
    /// When it was healed.
    pub until_ms: u64,
    /// Its kind.
    pub kind: FaultKind,
    /// The host that it hit; `None` = all of them.
    pub host: Option<u16>,
    /// How many milliseconds of confirmed writes the server may have forgotten; 0 = none.
    pub forgets_ms: u64,
}

impl Fault {
    /// Whether the server may have forgotten what it had confirmed.
    #[must_use]
    pub fn forgets(&self) -> bool {
        self.forgets_ms > 0
    }
}

/// A host that got a signal to stop.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Drain {
    /// Which.
    pub host: u16,
    /// When it got the signal.
    pub at_ms: u64,
    /// When it had ended.
    pub ended_ms: u64,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal ended it before it could catch one: it had written nothing.
    #[serde(default)]
    pub unstarted: bool,
}

/// A host that ended without a signal.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Exit {
    /// Which.
    pub host: u16,
    /// When it was noticed.
    pub at_ms: u64,
    /// How it ended.
    pub how: String,
    /// Whether it was aborted, as by a message that kills its host.
    pub aborted: bool,
    /// Its exit code; `None` if a signal ended it.
    #[serde(default)]
    pub code: Option<i32>,
}

/// What processes used at a moment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Sample {
    /// When.
    pub at_ms: u64,
    /// The memory of each host that ran, in KiB, and how many file descriptors it had.
    pub hosts: Vec<(u16, u64, u64)>,
    /// The memory of the server, in KiB.
    pub redis_kib: u64,
}

/// A dead letter.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Dead {
    /// The number of the message.
    pub message: u32,
    /// Why it is dead, as the record says.
    pub reason: String,
    /// What the record says of its attempts.
    pub attempts: u32,
    /// What the handler has said.
    pub detail: String,
    /// The length of its body.
    pub length: u32,
    /// The CRC-32 of its body.
    pub crc: u32,
}

/// What there was when all hosts had ended.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Harvest {
    /// The dead letters.
    pub dead: Vec<Dead>,
    /// The numbers of the messages that still waited, ran or were delayed.
    pub waiting: Vec<u32>,
    /// Ids that no publisher has sent: of attempts, dead letters or messages that waited.
    pub strangers: Vec<String>,
    /// The messages that the server still had, if it keeps those that are done.
    pub kept: Option<BTreeSet<u32>>,
    /// Where a secret was found.
    pub leaks: Vec<String>,
    /// How many messages the hosts say that they have acknowledged, if all of them ended in peace.
    pub acked: Option<u64>,
}

/// A run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct History {
    /// The settings of the hosts.
    pub settings: Settings,
    /// The messages, by number.
    pub messages: Vec<Sent>,
    /// The witness, in order of time.
    pub events: Vec<Event>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The hosts that got a signal to stop.
    pub drains: Vec<Drain>,
    /// The hosts that ended by themselves.
    pub exits: Vec<Exit>,
    /// How many of them aborted at each step.
    pub steps: BTreeMap<String, u64>,
    /// What processes used.
    pub samples: Vec<Sample>,
    /// When the last fault was healed.
    pub healed_ms: u64,
    /// When the queue was empty after that; `None` = it never was.
    pub drained_ms: Option<u64>,
    /// The end.
    pub harvest: Harvest,
}
