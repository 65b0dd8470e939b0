//! Where messages go that are given up.

use std::num::NonZeroU64;

use crate::config::setting::Setting;
use crate::config::settings::Section;
use crate::queue::stream::OnFull;

pub(super) static SECTION: Section = Section {
    title: "Dead letters",
    settings: &[&DEAD_LETTER_KEY, &DEAD_LETTER_MAX_LEN, &DEAD_LETTER_ON_FULL],
};

pub(in crate::config) static DEAD_LETTER_KEY: Setting<String> = Setting::new(
    "dead_letter.key",
    "KEY",
    "The dead-letter queue: a key of the same type as the queue.",
)
.flag("dead-letter")
.unset("none: what a handler drops is discarded");

pub(in crate::config) static DEAD_LETTER_MAX_LEN: Setting<NonZeroU64> = Setting::new(
    "dead_letter.max_len",
    "N",
    "How many dead letters are kept, approximately.",
)
.default("100000");

pub(in crate::config) static DEAD_LETTER_ON_FULL: Setting<OnFull> = Setting::new(
    "dead_letter.on_full",
    "WHAT",
    "What happens when there are that many: `drop-oldest` = the oldest are dropped, counted, \
     `stop` = the queue is no longer consumed.",
)
.default("drop-oldest");
