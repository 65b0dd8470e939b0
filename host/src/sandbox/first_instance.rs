//! The first instance of a component: what it needs, and a trial that makes and drops it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use hostler_components::Refusal;
use wasmtime::component::{Component, Instance, InstancePre};
use wasmtime::{Engine, ResourcesRequired, Store};

use super::error::LoadError;
use super::fault::{ErrorContext, host_panic};
use super::host::{Attempt, Host, Shared, store};
use super::limiter::{MEMORIES, TABLES};
use super::limits::Limits;
use super::meter::Meter;
use super::supervise::{drop_caught, supervise};

/// Bytes of a page of linear memory.
pub(crate) const PAGE: u64 = 64 << 10;

/// The initial resources of an instance, if they are within the limits.
pub(crate) fn required(
    component: &Component,
    limits: &Limits,
) -> Result<ResourcesRequired, LoadError> {
    let invalid = || LoadError::Invalid("the component imports core modules".to_owned());
    let required = component.resources_required().ok_or_else(invalid)?;
    for (what, found, most) in [
        ("linear memories", required.num_memories, MEMORIES),
        ("tables", required.num_tables, TABLES),
    ] {
        if found > most {
            return Err(Refusal::TooMany {
                what,
                found: found.into(),
                limit: most.into(),
            }
            .into());
        }
    }
    let pages = required.max_initial_memory_size.unwrap_or(0);
    let bytes = pages.saturating_mul(PAGE);
    let elements = required.max_initial_table_size.unwrap_or(0);
    for (needs, limit, what, setting) in [
        (bytes, limits.memory, "bytes of linear memory", "memory"),
        (
            elements,
            limits.table_elements,
            "table elements",
            "table_elements",
        ),
    ] {
        let limit = limit as u64;
        if needs > limit {
            return Err(LoadError::NeedsMore {
                what,
                needs,
                limit,
                setting,
            });
        }
    }
    Ok(required)
}

/// Make an instance and drop it. `look` sees it in between.
pub(crate) async fn make<T>(
    engine: &Engine,
    pre: &InstancePre<Host>,
    shared: &Arc<Shared>,
    look: impl FnOnce(&mut Store<Host>, &Instance) -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let meter = Arc::new(Meter::default());
    let deadline = Instant::now() + shared.limits.wall;
    let mut store = store(engine, shared, &meter, Attempt::trial(deadline));
    store.set_epoch_deadline(1);
    let making = pre.instantiate_async(&mut store);
    let end = supervise(pin!(Some(making)), &meter, &shared.pace, deadline).await;
    store.data_mut().finish();
    let context = ErrorContext {
        limits: &shared.limits,
        denied: store.data().limiter.denied(),
        instantiated: false,
        names_functions: false,
    };
    let seen = context
        .conclude(end)
        .map_err(LoadError::Start)
        .and_then(|instance| look(&mut store, &instance));
    drop_caught(store).map_err(|payload| LoadError::Start(host_panic(&*payload)))?;
    seen
}
