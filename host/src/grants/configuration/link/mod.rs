//! `wasi:config`: the values that the operator configured for this handler.

mod spin;

use std::collections::BTreeMap;

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
    let values = |store: &Store<'_>| store.data().grants().config.clone();
    spin::link(linker)?;
    for version in CONFIG {
        let mut interface = linker.instance(&format!("wasi:config/store@{version}"))?;
        interface.func_wrap("get", move |store: Store<'_>, (name,): (String,)| {
            let value = values(&store).and_then(|values| values.now().get(&name).cloned());
            Ok((Ok::<Option<String>, Error>(value),))
        })?;
        interface.func_wrap("get-all", move |store: Store<'_>, ()| {
            let all = values(&store).unwrap_or_default();
            let all: Vec<(String, String)> = BTreeMap::from(all).into_iter().collect();
            Ok((Ok::<Vec<(String, String)>, Error>(all),))
        })?;
    }
    Ok(())
}
