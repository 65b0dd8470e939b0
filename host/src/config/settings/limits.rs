//! Further limits of a handler.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::settings::{DAY, section, up_to};
use crate::values::ByteSize;

const GIB: ByteSize = ByteSize(1 << 30);

section! { "Further limits";
    /// The call stack of an instance. Fault: `stack-overflow`.
    STACK: ByteSize = ("limit.stack", "SIZE")
        .default("512KiB")
        .range(|| (ByteSize(64 << 10), ByteSize(64 << 20)));

    /// The elements of all tables of an instance together. Fault: `memory-limit`.
    TABLE_ELEMENTS: NonZeroU32 = ("limit.table_elements", "N")
        .default("100000")
        .range(|| up_to(10_000_000));

    /// The bytes that a handler may pass to the host in one call, its answer included. Fault:
    /// `output-limit`.
    TRANSFER: ByteSize = ("limit.transfer", "SIZE")
        .default("1MiB")
        .range(|| (ByteSize(4 << 10), GIB));

    /// The text that a handler gives with `drop`. The host cuts off the rest.
    OUTCOME_TEXT: ByteSize = ("limit.outcome_text", "SIZE")
        .default("1KiB")
        .range(|| (ByteSize(0), ByteSize(1 << 10)));

    /// The resources (streams, pollables, ...) that an instance may hold at a time. Fault: `memory-limit`.
    HANDLES: NonZeroU32 = ("limit.handles", "N")
        .default("1000")
        .range(|| up_to(1_000_000));

    /// The HTTP requests of one attempt: further ones fail as `denied`. Also its calls to the key-value
    /// store and its lookups of names: further ones are errors.
    REQUESTS: NonZeroU32 = ("limit.requests", "N")
        .default("1000")
        .range(|| up_to(1_000_000));

    /// The random bytes that a handler may request in one call. Fault: `trap`.
    RANDOM: ByteSize = ("limit.random", "SIZE")
        .default("64KiB")
        .range(|| (ByteSize(0), GIB));

    /// The bytes that one attempt may write to stdout and stderr. The rest is dropped and counted.
    LOG_ATTEMPT: ByteSize = ("limit.log_attempt", "SIZE")
        .default("64KiB")
        .range(|| (ByteSize(0), GIB));

    /// The longest line of the log of a handler, as it is logged. The rest of the line is dropped.
    LOG_LINE: ByteSize = ("limit.log_line", "SIZE")
        .default("8KiB")
        .range(|| (ByteSize(1), ByteSize(1 << 20)));

    /// The bytes of the log events, in a second, of what all attempts together write to stdout and stderr. The
    /// rest is dropped and counted.
    LOG_RATE: ByteSize = ("limit.log_rate", "SIZE")
        .default("1MiB")
        .range(|| (ByteSize(0), GIB));

    /// The file of a component. A larger file is refused.
    COMPONENT: ByteSize = ("limit.component", "SIZE")
        .default("64MiB")
        .range(|| (ByteSize(1 << 10), GIB));

    /// The time for the compilation of a component. A component that takes longer is refused.
    COMPILE_TIME: Duration = ("limit.compile_time", "DURATION")
        .default("60s")
        .range(|| (Duration::from_millis(100), DAY));

    /// The address space for the compilation of a component. A component that takes more is refused.
    COMPILE_MEMORY: ByteSize = ("limit.compile_memory", "SIZE")
        .default("2GiB")
        .range(|| (ByteSize(256 << 20), ByteSize(1 << 40)));
}
