//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::calls::copy::COPIES;
use crate::outgoing::scripts::{EFFECTS, MARKS};
use crate::publish::scripts::{ANSWER, DELIVERED, HELD, IDS, INFO, JOURNALS, KEPT, MISSING, NOTE};
use crate::queue::scripts::{DUE, JOURNAL_NEW, JOURNAL_ROOM, JOURNAL_TEXT, TERMS};
use crate::redis::script::{ALLOW_OOM, ASKED, STEP, TIME};
use crate::redis::scripts;

const PENDING: &str = include_str!("lua/parts/pending.lua");
const BEHIND: &str = include_str!("lua/parts/behind.lua");
const UNREAD: &str = include_str!("lua/parts/unread.lua");
const EPOCH: &str = include_str!("lua/parts/epoch.lua");
const CLAIM: &str = include_str!("lua/parts/claim.lua");
const FENCED: &str = include_str!("lua/parts/fenced.lua");

scripts! {
    /// Record starts.
    RECORD = [EPOCH, PENDING] "record";
    /// Renew leases.
    RENEW = [EPOCH, PENDING] "renew";
    /// Park deliveries.
    PARK = [FENCED, TIME, KEPT, HELD, MISSING, EPOCH, PENDING] "park";
    /// Leave suspects to other hosts.
    LEAVE = [FENCED, EPOCH, PENDING] "leave";
    /// Void the calls that had no answer.
    FENCE = [ALLOW_OOM] "fence";
    /// Discard deliveries.
    DISCARD = [EPOCH, PENDING, JOURNALS, KEPT, HELD] "discard";
    /// Acknowledge deliveries with their effects.
    ACKNOWLEDGE = [ASKED, EPOCH, TIME, PENDING, JOURNALS, KEPT, HELD, EFFECTS, MARKS, ANSWER] "acknowledge" durable;
    /// The same for deliveries without effects: it takes little memory.
    ACKNOWLEDGE_ONLY = [ALLOW_OOM, EPOCH, TIME, PENDING, JOURNALS, KEPT, HELD, EFFECTS, MARKS, ANSWER] "acknowledge" durable;
    /// Acknowledge deliveries that other hosts may have by now.
    ACKNOWLEDGE_LATE = [ALLOW_OOM, EPOCH, TIME, PENDING, KEPT, HELD] "acknowledge_late";
    /// Dead-letter deliveries.
    DEAD_LETTER = [EPOCH, PENDING, JOURNALS, JOURNAL_TEXT, KEPT, HELD, COPIES, ANSWER] "dead_letter" durable;
    /// Discard a delivery whose copy was written just before.
    DISCARD_COPIED = [INFO, EPOCH, PENDING, JOURNALS, KEPT, HELD, ANSWER] "discard_copied" durable;
    /// Check that a delivery is owned.
    HOLDS = [EPOCH, PENDING] "holds";
    /// Claim unread entries.
    FETCH = [TIME, KEPT, MISSING, STEP] "fetch";
    /// Take back parked deliveries that are due.
    TAKE_DUE = [TIME, DUE, KEPT, HELD, MISSING, INFO, IDS, DELIVERED, UNREAD, EPOCH, PENDING, STEP, NOTE, CLAIM] "take_due";
    /// Take back parked deliveries without a due time.
    SWEEP = [TIME, KEPT, HELD, NOTE, CLAIM] "sweep";
    /// Claim orphans.
    ORPHANS = [TIME, TERMS, KEPT, HELD, NOTE, CLAIM] "orphans";
    /// Renew deliveries whose last renewal lies ahead of the clock.
    COUNT_FROM_NOW = [] "count_from_now";
    /// Read own deliveries again after a lost reply.
    ADOPT = [TIME, KEPT, HELD, NOTE, CLAIM] "adopt";
    /// Count what waits.
    BACKLOG = [INFO, BEHIND] "backlog";
    /// Trim what every group acknowledged, or to a length.
    RETAIN = [INFO, IDS] "retain";
    /// Delete consumers that are gone.
    CONSUMERS = [INFO] "consumers";
    /// Make a deleted group again, or mark one.
    REPAIR = [ALLOW_OOM, INFO, IDS, MISSING] "repair";
    /// Park deliveries of an earlier group again.
    PARK_AGAIN = [INFO, IDS, KEPT, MISSING, DELIVERED, UNREAD, EPOCH] "park_again";
    /// Take back deliveries that a new group does not know.
    READOPT = [EPOCH, PENDING] "readopt";
    /// Append messages to a stream that are due.
    APPEND_DUE = [ALLOW_OOM, TIME, DUE] "append_due";
    /// Count unread entries.
    COUNT_UNREAD = [INFO, DELIVERED, BEHIND] "count_unread";
    /// Claim unread entries over a length.
    OVERFLOW = [INFO, IDS, DELIVERED] "overflow";
    /// Write an intent into the journal of a delivery.
    JOURNAL_INTEND = [EPOCH, TIME, PENDING, JOURNALS, JOURNAL_ROOM, JOURNAL_NEW] "journal_intend" durable;
    /// Add to a number, and record the sum.
    JOURNAL_INCREMENT = [EPOCH, TIME, PENDING, JOURNALS, JOURNAL_ROOM, JOURNAL_NEW] "journal_increment" durable;
    /// Forget the holds of deliveries that are gone.
    HELD_SWEEP = [ALLOW_OOM, EPOCH, PENDING, KEPT, HELD] "held_sweep";
    /// Remove journals whose messages are gone.
    JOURNAL_SWEEP = [ALLOW_OOM, EPOCH, TIME, INFO, IDS, DELIVERED, UNREAD, PENDING, JOURNALS] "journal_sweep";
}
