//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::redis::script::TIME;
use crate::redis::scripts;

scripts! {
    /// Store a version of the handler.
    DEPLOY = [TIME] "deploy";
    /// Want another version of the handler.
    REQUEST_VERSION = [TIME] "request_version";
    /// Report the state of a host.
    SEEN = [TIME] "seen";
}
