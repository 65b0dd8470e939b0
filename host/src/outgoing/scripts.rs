//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::redis::script::{ALLOW_OOM, ASKED, STEP, TIME};
use crate::redis::scripts;

pub(crate) const EFFECTS: &str = include_str!("lua/parts/effects.lua");
pub(crate) const MARKS: &str = include_str!("lua/parts/marks.lua");

scripts! {
    /// Find messages that were handled already.
    MARKED = [] "marked";
    /// Publish what attempts of an at-most-once queue published.
    PUBLISH = [ASKED, TIME, EFFECTS] "publish" durable;
    /// Read the head of an outbox.
    OUTBOX_HEAD = [TIME, STEP] "outbox_head";
    /// Remove entries of an outbox that its destination confirms.
    OUTBOX_TRIM = [ALLOW_OOM] "outbox_trim";
    /// Report how much outboxes hold.
    OUTBOX_REPORT = [TIME] "outbox_report";
    /// Write entries of an outbox to their destination.
    RELAY = [ASKED, TIME, EFFECTS] "relay" durable;
}
