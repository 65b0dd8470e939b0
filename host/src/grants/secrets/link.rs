//! `hostler:handler/secrets`: the secrets that the operator exposes to the handler.

use wasmtime::component::Linker;

use crate::sandbox::host::Host;
use crate::sandbox::ungranted::{Store, VERSION};

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut interface = linker.instance(&format!("hostler:handler/secrets@{VERSION}"))?;
    interface.func_wrap_async("get", |store: Store<'_>, (name,): (String,)| {
        let secrets = store.data().scope().and_then(|scope| scope.secrets());
        Box::new(async move {
            let value = async { secrets?.get(&name).await };
            Ok((value.await,))
        })
    })
}
