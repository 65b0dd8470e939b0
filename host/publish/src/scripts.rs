//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use hostler_redis::script::TIME;
use hostler_redis::scripts;

scripts! {
    /// Publish a message for later.
    PUBLISH_LATER = [TIME] "publish_later" durable;
    /// Publish to a list with a time to live.
    PUBLISH_LAPSING = [] "publish_lapsing" durable;
}
