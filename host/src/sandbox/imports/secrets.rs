//! `hostler:handler/secrets`: the secrets that the operator exposes to the handler.

use wasmtime::component::Linker;

use crate::sandbox::host::Host;
use crate::sandbox::imports::{Store, VERSION};

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut interface = linker.instance(&format!("hostler:handler/secrets@{VERSION}"))?;
    interface.func_wrap_async("get", |store: Store<'_>, (name,): (String,)| {
        let scope = store.data().scope();
        Box::new(async move {
            let value = async { scope?.secret(&name).await };
            Ok((value.await,))
        })
    })
}
