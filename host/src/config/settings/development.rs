//! The settings of `hostler dev`.

use std::path::PathBuf;

use crate::config::settings::section;

section! { "Development";
    /// The shell command with which `hostler dev` builds the handler: at the start, and after every change of
    /// a source. Other commands ignore it.
    BUILD: String = ("dev.build", "COMMAND").unset("no build: `hostler dev` watches the component file");

    /// The folder with the sources for `hostler dev`. It skips hidden files and the folders of build tools:
    /// `target`, `build`, `dist`, `node_modules`, `zig-out`, `__pycache__`.
    WATCH: PathBuf = ("dev.watch", "DIR").default(".");
}
