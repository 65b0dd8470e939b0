//! `wasi:logging`: log events with a level, within the limits of stdout and stderr.

use wasmtime::component::Linker;

use crate::sandbox::grants::{LOGGING, LOGGING_VERSION};
use crate::sandbox::host::Host;
use crate::sandbox::imports::Store;
use crate::sandbox::log::Level;

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
