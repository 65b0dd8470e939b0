//! The grant `config`: `wasi:config`, values that the operator wrote down for this handler.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, Lower};

use super::Grant;
use crate::sandbox::host::Host;

pub(super) static GRANT: Grant = Grant {
    name: "config",
    // The only version with that shape; an import of another one is refused by name.
    interfaces: &["wasi:config/store@0.2.0-rc.1"],
    is_given: |grants| grants.config.is_some(),
    link: Some(link),
};

/// Names and values. They may be secrets: `Debug` tells the names alone.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Values(Arc<BTreeMap<String, String>>);

impl Values {
    /// These values, by name.
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(Arc::new(values))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// `store.error`. Nothing here fails: the values are in memory.
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

fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let values = |store: &StoreContextMut<'_, Host>| store.data().grants().config.clone();
    for name in GRANT.interfaces {
        let mut interface = linker.instance(name)?;
        interface.func_wrap(
            "get",
            move |store: StoreContextMut<'_, Host>, (name,): (String,)| {
                let value = values(&store).and_then(|values| values.0.get(&name).cloned());
                Ok((Ok::<Option<String>, Error>(value),))
            },
        )?;
        interface.func_wrap("get-all", move |store: StoreContextMut<'_, Host>, ()| {
            let all = values(&store).unwrap_or_default();
            let all: Vec<(String, String)> = all
                .0
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            Ok((Ok::<Vec<(String, String)>, Error>(all),))
        })?;
    }
    Ok(())
}
