//! What a handler may use, beyond the limits that everybody sets.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::setting::Setting;
use crate::config::settings::{DAY, Section, at_most, between, sized};
use crate::config::value::ByteSize;

pub(super) static SECTION: Section = Section {
    title: "Further limits",
    settings: &[
        &STACK,
        &TABLE_ELEMENTS,
        &TRANSFER,
        &OUTCOME_TEXT,
        &HANDLES,
        &RANDOM,
        &LOG_ATTEMPT,
        &LOG_LINE,
        &LOG_RATE,
        &COMPONENT,
        &COMPILE_TIME,
        &COMPILE_MEMORY,
    ],
};

const GIB: ByteSize = ByteSize(1 << 30);

pub(in crate::config) static STACK: Setting<ByteSize> = Setting::new(
    "limit.stack",
    "SIZE",
    "The call stack of an instance. Fault: `stack-overflow`.",
)
.default("512KiB")
.check(|size| sized(size, ByteSize(64 << 10), ByteSize(64 << 20)));

pub(in crate::config) static TABLE_ELEMENTS: Setting<NonZeroU32> = Setting::new(
    "limit.table_elements",
    "N",
    "The elements of an instance's tables together. Fault: `memory-limit`.",
)
.default("100000")
.check(|n| at_most(n, 10_000_000));

pub(in crate::config) static TRANSFER: Setting<ByteSize> = Setting::new(
    "limit.transfer",
    "SIZE",
    "What a handler may hand to the host in one call, its answer included. Fault: `output-limit`.",
)
.default("1MiB")
.check(|size| sized(size, ByteSize(4 << 10), GIB));

pub(in crate::config) static OUTCOME_TEXT: Setting<ByteSize> = Setting::new(
    "limit.outcome_text",
    "SIZE",
    "The text that a handler gives with `drop`; the rest is cut off.",
)
.default("1KiB")
.check(|size| sized(size, ByteSize(0), ByteSize(1 << 10)));

pub(in crate::config) static HANDLES: Setting<NonZeroU32> = Setting::new(
    "limit.handles",
    "N",
    "The resources (streams, pollables, ...) that an instance may hold at a time. Fault: `memory-limit`.",
)
.default("1000")
.check(|n| at_most(n, 1_000_000));

pub(in crate::config) static RANDOM: Setting<ByteSize> = Setting::new(
    "limit.random",
    "SIZE",
    "The random bytes that a handler may ask for in one call. Fault: `trap`.",
)
.default("64KiB")
.check(|size| sized(size, ByteSize(0), GIB));

pub(in crate::config) static LOG_ATTEMPT: Setting<ByteSize> = Setting::new(
    "limit.log_attempt",
    "SIZE",
    "What one attempt may write to stdout and stderr; the rest is dropped, counted.",
)
.default("64KiB")
.check(|size| sized(size, ByteSize(0), GIB));

pub(in crate::config) static LOG_LINE: Setting<ByteSize> = Setting::new(
    "limit.log_line",
    "SIZE",
    "The longest line of a handler's log; the rest of the line is dropped.",
)
.default("8KiB")
.check(|size| sized(size, ByteSize(1), ByteSize(1 << 20)));

pub(in crate::config) static LOG_RATE: Setting<ByteSize> = Setting::new(
    "limit.log_rate",
    "SIZE",
    "What all attempts together may write to stdout and stderr in a second; the rest is dropped, \
     counted.",
)
.default("1MiB")
.check(|size| sized(size, ByteSize(0), GIB));

pub(in crate::config) static COMPONENT: Setting<ByteSize> = Setting::new(
    "limit.component",
    "SIZE",
    "The file of a component. A larger one is refused.",
)
.default("64MiB")
.check(|size| sized(size, ByteSize(1 << 10), GIB));

pub(in crate::config) static COMPILE_TIME: Setting<Duration> = Setting::new(
    "limit.compile_time",
    "DURATION",
    "How long the compilation of a component may take. One that takes longer is refused.",
)
.default("60s")
.check(|d| between(d, Duration::from_millis(100), DAY));

pub(in crate::config) static COMPILE_MEMORY: Setting<ByteSize> = Setting::new(
    "limit.compile_memory",
    "SIZE",
    "The address space that the compilation of a component may take. One that takes more is refused.",
)
.default("2GiB")
.check(|size| sized(size, ByteSize(256 << 20), ByteSize(1 << 40)));
