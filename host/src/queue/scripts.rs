//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::publish::scripts::JOURNALS;
use crate::redis::script::{ALLOW_OOM, STEP, TIME};
use crate::redis::scripts;

pub(crate) const DUE: &str = include_str!("lua/parts/due.lua");
pub(crate) const JOURNAL_ROOM: &str = include_str!("lua/parts/journal_room.lua");
pub(crate) const JOURNAL_NEW: &str = include_str!("lua/parts/journal_new.lua");
pub(crate) const JOURNAL_TEXT: &str = include_str!("lua/parts/journal_text.lua");
pub(crate) const TERMS: &str = include_str!("lua/parts/terms.lua");

scripts! {
    /// Let messages start, as their limits allow.
    ADMIT = [ALLOW_OOM, TIME] "admit";
    /// The same, where attempts at once are limited: a permit that a failover forgets would be granted twice.
    ADMIT_ATTEMPTS = [ALLOW_OOM, TIME] "admit" durable;
    /// Write the terms of this host, and learn those of all hosts of the queue.
    GO_BY = [ALLOW_OOM, TIME, TERMS] "go_by";
    /// Write the answer to a call into a journal.
    JOURNAL_ANSWER = [ALLOW_OOM, TIME, JOURNALS, JOURNAL_ROOM] "journal_answer" durable;
    /// Take values off a simple list.
    LIST_POP = [ALLOW_OOM, STEP] "list_pop";
}
