//! Where messages go that cannot be handled.

use std::num::NonZeroU64;

use crate::config::choices::{Recording, RouteTable};
use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::section;
use crate::queue::dead_letter_queue::OnFull;
use crate::values::ByteSize;

section! { "Dead letters";
    /// The dead-letter queue: a key of the same type as the queue.
    DEAD_LETTER_KEY: String = ("dead_letter.key", "KEY")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .flag("dead-letter")
        .unset(
            "no dead-letter queue: messages that a handler drops, or that expire by their own header, are \
             discarded; so are, with a warning, messages that are too large or malformed",
        );

    /// Other destinations by reason: `timeout=orders:slow, dropped=discard`. All other reasons go to
    /// `dead_letter.key`, except `cancelled`, of which nothing is kept without a route. `discard` loses the message and counts it. Without `dead_letter.key`, a route can
    /// only be `discard`.
    DEAD_LETTER_ROUTES: RouteTable = ("dead_letter.routes", "ROUTES")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .unset("all dead letters go to `dead_letter.key`");

    /// Where a message goes that would come back to a queue in which it already died, if no handler has
    /// rejected it since.
    DEAD_LETTER_CYCLE_KEY: String = ("dead_letter.cycle_key", "KEY")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .idle_without(&DEAD_LETTER_KEY)
        .unset("the key of the queue with `:cycle`, in its hash slot: `{orders}:cycle`");

    /// The most dead letters in each of these queues, approximately.
    DEAD_LETTER_MAX_LEN: NonZeroU64 = ("dead_letter.max_len", "N")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .idle_without(&DEAD_LETTER_KEY)
        .default("100000");

    /// The action when a queue is that full: `drop-oldest` = the oldest dead letters are dropped, and counted; `stop`
    /// = the host reads no more messages until there is room.
    DEAD_LETTER_ON_FULL: OnFull = ("dead_letter.on_full", "WHAT")
        .live()
        .kinds(&AT_LEAST_ONCE)
        .idle_without(&DEAD_LETTER_KEY)
        .default("drop-oldest");

    /// How much a dead letter keeps of the end of the log of the attempt that failed: whole lines of stdout,
    /// stderr and `wasi:logging`, and the functions in which the handler trapped. `0B` = nothing.
    LOG: ByteSize = ("dead_letter.log", "SIZE")
        .kinds(&AT_LEAST_ONCE)
        .idle_without(&DEAD_LETTER_KEY)
        .default("4KiB")
        .range(|| (ByteSize(0), ByteSize(64 << 10)));

    /// What a dead letter keeps of the last calls of the attempt that failed: HTTP requests, lookups, keys and
    /// published messages. `calls` = name, target, status, time and size, at most 4 KiB, without any content: no query, header, body, key
    /// or value. `full` = also every answer of the host to that attempt, with its content, at most 256 KiB: `hostler dlq
    /// debug` runs it again. `off` = nothing.
    RECORDING: Recording = ("dead_letter.recording", "WHAT")
        .kinds(&AT_LEAST_ONCE)
        .idle_without(&DEAD_LETTER_KEY)
        .default("calls");
}
