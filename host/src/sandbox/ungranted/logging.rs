//! `wasi:logging`: log events with a level, within the limits of stdout and stderr.

use wasmtime::component::Linker;

use crate::grants::imports::{LOGGING, LOGGING_VERSION};
use crate::sandbox::host::Host;
use crate::sandbox::log::Level;
use crate::sandbox::ungranted::Store;

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{LOGGING}@{LOGGING_VERSION}"))?
        .func_wrap(
            "log",
            |mut store: Store<'_>, (level, context, message): (Level, String, String)| {
                store.data_mut().log_event(level, &context, &message);
                Ok(())
            },
        )
}
