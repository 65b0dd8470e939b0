//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::outgoing::scripts::{EFFECTS, MARKS};
use crate::publish::scripts::{ANSWER, JOURNALS};
use crate::queue::scripts::{DUE, JOURNAL_NEW, JOURNAL_ROOM, TERMS};
use crate::redis::script::{ALLOW_OOM, ASKED, STEP, TIME};
use crate::redis::scripts;

const FIND: &str = include_str!("lua/parts/find.lua");

scripts! {
    /// Claim waiting values of a list.
    LIST_CLAIM = [ALLOW_OOM, TIME, STEP] "list_claim";
    /// Claim delayed values of a list that are due.
    LIST_DUE = [ALLOW_OOM, TIME, DUE] "list_due";
    /// Renew leases and record starts on a list.
    LIST_HOLD = [ALLOW_OOM, TIME, STEP, FIND] "list_hold";
    /// Take deliveries off a list.
    LIST_REMOVE = [ALLOW_OOM, STEP, FIND, JOURNALS] "list_remove";
    /// Acknowledge deliveries of a list with their effects.
    LIST_ACKNOWLEDGE = [ASKED, TIME, STEP, FIND, JOURNALS, EFFECTS, MARKS, ANSWER] "list_acknowledge" durable;
    /// The same for deliveries without effects: it takes little memory.
    LIST_ACKNOWLEDGE_ONLY = [ALLOW_OOM, TIME, STEP, FIND, JOURNALS, EFFECTS, MARKS, ANSWER] "list_acknowledge" durable;
    /// Put deliveries of a list back.
    LIST_RETURN = [ALLOW_OOM, TIME, STEP, FIND] "list_return";
    /// Dead-letter deliveries of a list.
    LIST_DEAD_LETTER = [ALLOW_OOM, STEP, FIND, JOURNALS, ANSWER] "list_dead_letter" durable;
    /// Check that a delivery of a list is held.
    LIST_HOLDS = [STEP, FIND] "list_holds";
    /// List the instances of a list that may hold orphans.
    LIST_LAPSED = [ALLOW_OOM, TIME, TERMS] "list_lapsed";
    /// List the orphans of one instance of a list.
    LIST_ORPHANS = [ALLOW_OOM, TIME, TERMS, STEP] "list_orphans";
    /// Take over orphans of a list.
    LIST_TAKE = [ALLOW_OOM, TIME, TERMS, STEP, FIND] "list_take";
    /// List the deliveries that an instance of a list holds.
    LIST_OWN = [STEP] "list_own";
    /// Forget instances of a list.
    LIST_FORGET = [ALLOW_OOM, TIME] "list_forget";
    /// Report the state of a list.
    LIST_REPORT = [TIME, DUE] "list_report";
    /// Write an intent into the journal of a delivery of a list.
    LIST_JOURNAL_INTEND = [TIME, STEP, FIND, JOURNALS, JOURNAL_ROOM, JOURNAL_NEW] "list_journal_intend" durable;
    /// Add to a number, and record the sum.
    LIST_JOURNAL_INCREMENT = [TIME, STEP, FIND, JOURNALS, JOURNAL_ROOM, JOURNAL_NEW] "list_journal_increment" durable;
    /// Remove journals of a list whose messages are gone.
    LIST_JOURNAL_SWEEP = [ALLOW_OOM, TIME, JOURNALS] "list_journal_sweep";
}
