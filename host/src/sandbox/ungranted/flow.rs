//! `hostler:handler/flow` and `batch-flow`: messages that come again later, uncharged.

use wasmtime::component::Linker;

use super::{Store, VERSION};
use crate::grants::imports::{BATCH_FLOW, FLOW};
use crate::sandbox::host::Host;

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{FLOW}@{VERSION}"))?
        .func_wrap("hold", |mut store: Store<'_>, (ms,): (u64,)| {
            Ok((store.data_mut().hold(0, ms),))
        })?;
    linker
        .instance(&format!("{BATCH_FLOW}@{VERSION}"))?
        .func_wrap("hold", |mut store: Store<'_>, (index, ms): (u32, u64)| {
            Ok((store.data_mut().hold(index, ms),))
        })
}
