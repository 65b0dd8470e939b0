//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use hostler_redis::script::{ASKED, TIME};
use hostler_redis::scripts;

/// Part: the answer to a producer that waits.
pub const ANSWER: &str = include_str!("lua/parts/answer.lua");
/// Part: the journals of messages.
pub const JOURNALS: &str = include_str!("lua/parts/journals.lua");
/// Part: ids of entries.
pub const IDS: &str = include_str!("lua/parts/ids.lua");
/// Part: a reply of `XINFO`.
pub const INFO: &str = include_str!("lua/parts/info.lua");
/// Part: the last entry that a group has handed out.
pub const DELIVERED: &str = include_str!("lua/parts/delivered.lua");
/// Part: the count of a parked delivery.
pub const KEPT: &str = include_str!("lua/parts/kept.lua");
/// Part: how often deliveries were held.
pub const HELD: &str = include_str!("lua/parts/held.lua");
/// Part: a group that lacks parked deliveries.
pub const MISSING: &str = include_str!("lua/parts/missing.lua");
/// Part: a note of a message that must not be brought back.
pub const NOTE: &str = include_str!("lua/parts/note.lua");
/// Part: what is left of a cancelled message.
const NOTES: &str = include_str!("lua/parts/notes.lua");

scripts! {
    /// Cancel deliveries of a group of a stream.
    CANCEL = [ASKED, TIME, INFO, IDS, DELIVERED, JOURNALS, KEPT, HELD, ANSWER, NOTES, NOTE] "cancel" durable;
    /// Cancel entries of a stream that no group needs.
    CANCEL_UNREAD = [ASKED, TIME, INFO, IDS, ANSWER, NOTES, NOTE] "cancel_unread" durable;
    /// Hand out the entries of a stream up to one, to nobody.
    CANCEL_AHEAD = [TIME, INFO, IDS, DELIVERED, KEPT, MISSING] "cancel_ahead";
    /// Cancel values of a list, or delayed messages.
    CANCEL_VALUE = [ASKED, TIME, JOURNALS, ANSWER, NOTES, NOTE] "cancel_value" durable;
    /// Publish a message for later.
    PUBLISH_LATER = [TIME] "publish_later" durable;
    /// Publish to a list with a time to live.
    PUBLISH_LAPSING = [] "publish_lapsing" durable;
}
