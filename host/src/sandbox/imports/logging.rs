//! `wasi:logging`: log events with a level, within the limits of stdout and stderr.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker};

use crate::sandbox::grants::{LOGGING, LOGGING_VERSION};
use crate::sandbox::host::Host;
use crate::sandbox::log;

/// `logging.level`.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the derived code makes them")]
enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
    #[component(name = "critical")]
    Critical,
}

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{LOGGING}@{LOGGING_VERSION}"))?
        .func_wrap(
            "log",
            |mut store: StoreContextMut<'_, Host>,
             (level, context, message): (Level, String, String)| {
                store.data_mut().log_event(level.into(), &context, &message);
                Ok(())
            },
        )
}

impl From<Level> for log::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => Self::Trace,
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
            Level::Critical => Self::Critical,
        }
    }
}
