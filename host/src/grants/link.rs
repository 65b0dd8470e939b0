//! Links the imports of a handler: those that every handler has, and those that are granted.

use wasmtime::Engine;
use wasmtime::component::Linker;

use super::imports::BATCH_EFFECTS;
use super::{Grants, configuration, files, http, journal, key_value, publish, secrets, tcp};
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::{self, VERSION};

/// All imports of a handler with these grants; `None` = all that there are, which lead nowhere.
pub(crate) fn linker(engine: &Engine, grants: Option<&Grants>) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    ungranted::link(&mut linker)?;
    let is_given = |given: fn(&Grants) -> bool| grants.is_none_or(given);
    let publishes = is_given(|grants| grants.publish.is_some());
    let has_keys = is_given(|grants| grants.key_value.is_some());
    if is_given(|grants| grants.config.is_some()) {
        configuration::link::link(&mut linker)?;
    }
    if publishes {
        publish::link::link(&mut linker)?;
    }
    if has_keys {
        key_value::link::link(&mut linker)?;
    }
    if publishes || has_keys {
        let mut effects = linker.instance(&format!("{BATCH_EFFECTS}@{VERSION}"))?;
        publish::link::link_of_batches(&mut effects)?;
        key_value::link::link_of_batches(&mut effects)?;
    }
    if grants.is_some_and(|grants| !grants.files.is_empty()) {
        files::link::link(&mut linker)?;
    }
    if is_given(|grants| grants.provided.http.is_some()) {
        http::link::link(&mut linker)?;
    }
    if is_given(|grants| grants.journal.is_some()) {
        journal::link::link(&mut linker)?;
    }
    if is_given(|grants| grants.provided.exposes()) {
        secrets::link::link(&mut linker)?;
    }
    if is_given(|grants| grants.provided.tcp.is_some()) {
        tcp::link::link(&mut linker)?;
    }
    Ok(linker)
}
