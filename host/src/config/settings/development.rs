//! The inner loop of whoever writes a handler.

use std::path::PathBuf;

use crate::config::setting::Setting;
use crate::config::settings::Section;

pub(super) static SECTION: Section = Section {
    title: "Development",
    settings: &[&BUILD, &WATCH],
};

pub(in crate::config) static BUILD: Setting<String> = Setting::new(
    "dev.build",
    "COMMAND",
    "What `hostler dev` runs, in a shell, to build the handler: at its start and whenever a source \
     has changed. Other commands pass over it.",
)
.unset("no build: the handler's file is watched");

pub(in crate::config) static WATCH: Setting<PathBuf> = Setting::new(
    "dev.watch",
    "DIR",
    "The folder whose files are the sources for `hostler dev`. What is hidden is none, nor what \
     tools make: `target`, `build`, `dist`, `node_modules`, `zig-out`, `__pycache__`.",
)
.default(".");
