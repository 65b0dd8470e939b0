//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::redis::script::TIME;
use crate::redis::scripts;

scripts! {
    /// List a queue.
    REGISTER = [TIME] "register";
}
