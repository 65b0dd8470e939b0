//! `wasi:config`: the values that the operator configured for this handler.

mod spin;

use wasmtime::component::{ComponentType, Linker, Lower};

use crate::grants::configuration::CONFIG;
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::Store;

/// `store.error`. Calls never fail, because the values are in memory.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum Error {
    #[component(name = "upstream")]
    #[expect(dead_code, reason = "the WIT has it")]
    Upstream(String),
    #[component(name = "io")]
    #[expect(dead_code, reason = "the WIT has it")]
    Io(String),
}

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    spin::link(linker)?;
    for version in CONFIG {
        let mut interface = linker.instance(&format!("wasi:config/store@{version}"))?;
        interface.func_wrap("get", move |store: Store<'_>, (name,): (String,)| {
            Ok((Ok::<_, Error>(store.data().configured(&name)),))
        })?;
        interface.func_wrap("get-all", move |store: Store<'_>, ()| {
            let all: Vec<_> = store.data().all_configured().into_iter().collect();
            Ok((Ok::<_, Error>(all),))
        })?;
    }
    Ok(())
}
