//! `hostler:handler/reply` and `batch-reply`: answers to producers that wait.

use wasmtime::component::Linker;

use super::{Store, VERSION};
use crate::grants::imports::{BATCH_REPLY, REPLY};
use crate::sandbox::host::Host;

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{REPLY}@{VERSION}"))?
        .func_wrap("set", |mut store: Store<'_>, (value,): (Vec<u8>,)| {
            Ok((store.data_mut().reply(0, value.into()),))
        })?;
    linker
        .instance(&format!("{BATCH_REPLY}@{VERSION}"))?
        .func_wrap(
            "set",
            |mut store: Store<'_>, (index, value): (u32, Vec<u8>)| {
                Ok((store.data_mut().reply(index, value.into()),))
            },
        )
}
