//! The component and its limits.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::choices::{CompileCache, Digest};
use crate::config::setting::Setting;
use crate::config::settings::{DAY, Section, at_most, between, sized};
use crate::config::value::ByteSize;

pub(super) static SECTION: Section = Section {
    title: "Handler",
    settings: &[
        &HANDLER,
        &HANDLER_DIGEST,
        &CONCURRENCY,
        &PREFETCH,
        &BATCH_SIZE,
        &BATCH_WAIT,
        &REUSE,
        &REUSE_MEMORY,
        &REUSE_IDLE,
        &TIMEOUT,
        &CPU,
        &MEMORY,
        &MAX_PAYLOAD,
        &COMPILE_CACHE,
        &COMPILE_CACHE_MAX,
    ],
};

pub(in crate::config) static HANDLER: Setting<PathBuf> =
    Setting::new("handler", "FILE", "The component that handles messages.").unset("required");

pub(in crate::config) static HANDLER_DIGEST: Setting<Digest> = Setting::new(
    "handler_digest",
    "DIGEST",
    "Accept no other component than the one with this digest, `sha256:` and 64 hexadecimal digits.",
)
.unset("any component");

pub(in crate::config) static CONCURRENCY: Setting<NonZeroU32> = Setting::new(
    "concurrency",
    "N",
    "How many attempts run at the same time.",
)
.default("16")
.check(|n| at_most(n, 4_096));

pub(in crate::config) static PREFETCH: Setting<NonZeroU32> = Setting::new(
    "prefetch",
    "N",
    "The most deliveries that a host holds beyond those that run. How many it really holds follows \
     the rate of the handler: about 20 ms of work.",
)
.default("1024")
.check(|n| at_most(n, 10_000));

pub(in crate::config) static BATCH_SIZE: Setting<NonZeroU32> = Setting::new(
    "batch_size",
    "N",
    "How many messages a handler of batches (world `batch`) is given in one call, at most. Other \
     handlers always get one.",
)
.default("16")
.check(|n| at_most(n, 1_000));

pub(in crate::config) static BATCH_WAIT: Setting<Duration> = Setting::new(
    "batch_wait",
    "DURATION",
    "How long the first message of a batch waits for others, at most.",
)
.default("5ms")
.check(|d| between(d, Duration::ZERO, Duration::from_secs(60)));

pub(in crate::config) static REUSE: Setting<NonZeroU32> = Setting::new(
    "reuse",
    "N",
    "How many messages one instance of the component serves at most. 1 = a fresh one for every \
     message, so that no state can leak from one to the next. Of more, an instance serves up to a \
     fifth less, by chance, so that not all instances are made anew at once.",
)
.default("1");

pub(in crate::config) static REUSE_MEMORY: Setting<ByteSize> = Setting::new(
    "reuse_memory",
    "SIZE",
    "An instance whose linear memory has grown beyond this is not reused.",
)
.unset("half of `memory`")
.check(|size| sized(size, ByteSize(64 << 10), ByteSize(4 << 30)));

pub(in crate::config) static REUSE_IDLE: Setting<Duration> = Setting::new(
    "reuse_idle",
    "DURATION",
    "How long an instance waits for its next message until it is dropped, with its memory.",
)
.default("60s")
.check(|d| between(d, Duration::from_millis(1), DAY));

pub(in crate::config) static TIMEOUT: Setting<Duration> = Setting::new(
    "timeout",
    "DURATION",
    "The wall time of an attempt, waiting included. Fault: `wall-timeout`.",
)
.default("5s")
.check(|d| between(d, Duration::from_millis(1), DAY));

pub(in crate::config) static CPU: Setting<Duration> = Setting::new(
    "cpu",
    "DURATION",
    "The CPU time of an attempt, to the next 10 ms. Fault: `cpu-timeout`.",
)
.default("2s")
.check(|d| between(d, Duration::from_millis(10), DAY));

pub(in crate::config) static MEMORY: Setting<ByteSize> = Setting::new(
    "memory",
    "SIZE",
    "The linear memory of an instance. Fault: `memory-limit`.",
)
.default("64MiB")
.check(|size| sized(size, ByteSize(64 << 10), ByteSize(4 << 30)));

pub(in crate::config) static MAX_PAYLOAD: Setting<ByteSize> = Setting::new(
    "max_payload",
    "SIZE",
    "The largest body that a handler is given. A larger one is dead-lettered as `oversize`; \
     without `dead_letter.key` it is discarded, with a warning.",
)
.default("1MiB")
.check(|size| sized(size, ByteSize(1), ByteSize(512 << 20)));

pub(in crate::config) static COMPILE_CACHE: Setting<CompileCache> = Setting::new(
    "compile_cache",
    "DIR",
    "The directory in which compiled components are kept, so that the next start need not compile; \
     `off` keeps none. It must be this user's alone (mode 700).",
)
.unset("`$XDG_CACHE_HOME/hostler`, or `~/.cache/hostler`");

pub(in crate::config) static COMPILE_CACHE_MAX: Setting<ByteSize> = Setting::new(
    "compile_cache_max",
    "SIZE",
    "The size of that directory's compiled components together; what was not used for longest goes \
     first.",
)
.default("1GiB")
.check(|size| sized(size, ByteSize(0), ByteSize(1 << 40)));
