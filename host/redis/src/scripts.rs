//! The scripts of this room: files of `lua`.

use crate::script::STEP;
use crate::scripts;

scripts! {
    /// Read a stretch of a stream.
    WALK_STREAM = [] "walk_stream";
    /// Read a stretch of a list or of a sorted set.
    WALK_PLACES = [STEP] "walk_places";
}
