//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::redis::scripts;

scripts! {
    /// Read values of a handler.
    READ_VALUES = [] "read_values";
    /// Set a value of a handler, if it has not changed.
    SWAP_VALUE = [] "swap_value";
}
