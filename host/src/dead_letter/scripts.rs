//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::calls::copy::COPIES;
use crate::redis::script::{STEP, TIME};
use crate::redis::scripts;

const DEAD: &str = include_str!("lua/parts/dead.lua");

scripts! {
    /// Count dead letters by reason.
    COUNT_REASONS = [STEP] "count_reasons";
    /// Move dead letters of a stream back.
    REPLAY = [COPIES] "replay";
    /// Move one dead letter of a list back.
    LIST_REPLAY = [DEAD] "list_replay";
    /// Hold a dead letter for a two-phase move.
    MOVE_HOLD = [TIME, DEAD] "move_hold";
    /// Write the copy of a dead letter in a two-phase move.
    MOVE_COPY = [] "move_copy" durable;
    /// Void the copy of a two-phase move.
    MOVE_VOID = [] "move_void";
    /// End a two-phase move.
    MOVE_DONE = [DEAD] "move_done";
}
