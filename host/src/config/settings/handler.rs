//! The component and its limits.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::choices::{CompileCache, Digest};
use crate::config::settings::{DAY, section, up_to};
use crate::values::ByteSize;

section! { "Handler";
    /// The component that handles the messages.
    HANDLER: PathBuf = ("handler", "FILE").unset("required");

    /// Accept only the component with this digest: `sha256:` and 64 hexadecimal digits.
    HANDLER_DIGEST: Digest = ("handler_digest", "DIGEST").unset("any component");

    /// The most attempts that run at the same time.
    CONCURRENCY: NonZeroU32 = ("concurrency", "N").default("16").range(|| up_to(4_096));

    /// The most deliveries that a host holds beyond the running ones. The real number follows the speed of
    /// the handler: about 20 ms of work.
    PREFETCH: NonZeroU32 = ("prefetch", "N").default("4096").range(|| up_to(10_000));

    /// The most messages in one call of a handler of batches (world `batch`). Other handlers always get one.
    BATCH_SIZE: NonZeroU32 = ("batch_size", "N").default("16").range(|| up_to(1_000));

    /// The longest time that the first message of a batch waits for others.
    BATCH_WAIT: Duration = ("batch_wait", "DURATION")
        .default("5ms")
        .range(|| (Duration::ZERO, Duration::from_secs(60)));

    /// The most messages that one instance of the component serves. 1 = a fresh instance for every message,
    /// so that no state leaks from one message to the next. With more, an instance serves up to a fifth
    /// less, at random, so that the instances are not all replaced at once.
    REUSE: NonZeroU32 = ("reuse", "N").default("1");

    /// An instance whose linear memory has grown beyond this size is not reused.
    REUSE_MEMORY: ByteSize = ("reuse_memory", "SIZE")
        .unset("half of `memory`")
        .range(|| (ByteSize(64 << 10), ByteSize(4 << 30)));

    /// After this time without a message, an instance is dropped with its memory.
    REUSE_IDLE: Duration = ("reuse_idle", "DURATION")
        .default("60s")
        .range(|| (Duration::from_millis(1), DAY));

    /// Run the start of a component once, when it is loaded, and begin each instance after it. `false` runs it
    /// in each instance. `hostler check` says what applies.
    SNAPSHOT: bool = ("snapshot", "BOOL").default("true");

    /// The longest wall time of an attempt, waiting included. Fault: `wall-timeout`.
    TIMEOUT: Duration = ("timeout", "DURATION")
        .default("5s")
        .range(|| (Duration::from_millis(1), DAY));

    /// The longest CPU time of an attempt, rounded up to 10 ms. Fault: `cpu-timeout`.
    CPU: Duration = ("cpu", "DURATION")
        .default("2s")
        .range(|| (Duration::from_millis(10), DAY));

    /// The most linear memory of an instance. Fault: `memory-limit`.
    MEMORY: ByteSize = ("memory", "SIZE")
        .default("64MiB")
        .range(|| (ByteSize(64 << 10), ByteSize(4 << 30)));

    /// The largest body that a handler gets. A message with a larger one is dead-lettered as `oversize`.
    /// Without `dead_letter.key` it is discarded, with a warning.
    MAX_PAYLOAD: ByteSize = ("max_payload", "SIZE")
        .default("1MiB")
        .range(|| (ByteSize(1), ByteSize(512 << 20)));

    /// The directory for compiled components, so that the next start need not compile. `off` keeps none. Only
    /// this user may have access to it (mode 700).
    COMPILE_CACHE: CompileCache = ("compile_cache", "DIR")
        .unset("`$XDG_CACHE_HOME/hostler`, or `~/.cache/hostler`");

    /// The most bytes of compiled components in that directory. The least recently used are removed first.
    COMPILE_CACHE_MAX: ByteSize = ("compile_cache_max", "SIZE")
        .default("1GiB")
        .range(|| (ByteSize(0), ByteSize(1 << 40)));
}
