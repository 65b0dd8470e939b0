//! The directories of the host that a handler may read: `[[grant.files]]`.

use std::path::PathBuf;

/// A directory of the host that a handler may read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Directory {
    /// Where it is on the host.
    pub path: PathBuf,
    /// Where the handler finds it.
    pub at: String,
}
