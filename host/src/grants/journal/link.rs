//! `hostler:handler/journal`: values that a guest remembers from attempt to attempt.

use wasmtime::component::Linker;

use crate::sandbox::host::Host;
use crate::sandbox::ungranted::{Store, VERSION};

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut interface = linker.instance(&format!("hostler:handler/journal@{VERSION}"))?;
    interface.func_wrap_async("recall", |store: Store<'_>, (name,): (String,)| {
        let scope = store.data().scope();
        Box::new(async move {
            let recalled = async { scope?.remembered()?.recall(&name).await };
            Ok((recalled.await.map(|value| value.map(Vec::from)),))
        })
    })?;
    interface.func_wrap_async(
        "remember",
        |store: Store<'_>, (name, value): (String, Vec<u8>)| {
            let scope = store.data().scope();
            Box::new(async move {
                let remembered = async { scope?.remembered()?.remember(&name, value.into()).await };
                Ok((remembered.await,))
            })
        },
    )
}
