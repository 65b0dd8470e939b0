//! Where messages go that are given up.

use std::num::NonZeroU64;

use crate::config::choices::RouteTable;
use crate::config::setting::Setting;
use crate::config::settings::Section;
use crate::queue::dead_letter_queue::OnFull;

pub(super) static SECTION: Section = Section {
    title: "Dead letters",
    settings: &[
        &DEAD_LETTER_KEY,
        &DEAD_LETTER_ROUTES,
        &DEAD_LETTER_CYCLE_KEY,
        &DEAD_LETTER_MAX_LEN,
        &DEAD_LETTER_ON_FULL,
    ],
};

pub(in crate::config) static DEAD_LETTER_KEY: Setting<String> = Setting::new(
    "dead_letter.key",
    "KEY",
    "The dead-letter queue: a key of the same type as the queue.",
)
.live()
.flag("dead-letter")
.unset(
    "none: what a handler drops, or what expires by its own header, is discarded; so is, with a \
     warning, what is too large or malformed",
);

pub(in crate::config) static DEAD_LETTER_ROUTES: Setting<RouteTable> = Setting::new(
    "dead_letter.routes",
    "ROUTES",
    "Where else it goes, by reason: `timeout=orders:slow, dropped=discard`. A reason that is not \
     named goes to `dead_letter.key`; `discard` loses the message, counted, and is the only route \
     that can be given without `dead_letter.key`.",
)
.live()
.unset("everything goes to `dead_letter.key`");

pub(in crate::config) static DEAD_LETTER_CYCLE_KEY: Setting<String> = Setting::new(
    "dead_letter.cycle_key",
    "KEY",
    "Where a message ends that would come back to a queue it already died in, without a handler \
     having rejected it in between.",
)
.live()
.unset("the queue's key with `:cycle` behind it, in its hash slot: `{orders}:cycle`");

pub(in crate::config) static DEAD_LETTER_MAX_LEN: Setting<NonZeroU64> = Setting::new(
    "dead_letter.max_len",
    "N",
    "How many dead letters are kept in each of these queues, approximately.",
)
.live()
.default("100000");

pub(in crate::config) static DEAD_LETTER_ON_FULL: Setting<OnFull> = Setting::new(
    "dead_letter.on_full",
    "WHAT",
    "What happens when there are that many: `drop-oldest` = the oldest are dropped, counted, \
     `stop` = nothing more is read from the queue until there is room again.",
)
.live()
.default("drop-oldest");
