//! Links the imports that every handler has, without a grant.

#[cfg(feature = "fault-points")]
mod fault_point;
mod flow;
mod logging;
mod reply;

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use hostler_components::program::{EXIT, MEMORY};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::I32Exit;

use super::host::Host;
use crate::delivery::millis::millis;
use crate::delivery::recording::Reading;

/// The version of the interfaces of `hostler:handler`. The linker takes it for older ones of the same
/// major version, too.
pub(crate) const VERSION: &str = "1.2.0";

/// The store of the guest that calls.
pub(crate) type Store<'a> = StoreContextMut<'a, Host>;

/// A guest drops a resource.
pub(crate) fn dropped<R: 'static>(mut store: Store<'_>, rep: u32) -> wasmtime::Result<()> {
    let resource = Resource::<R>::new_own(rep);
    Ok(store.data_mut().table.delete(resource).map(drop)?)
}

/// Link them.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    program(linker)?;
    delivery(linker)?;
    flow::link(linker)?;
    logging::link(linker)?;
    reply::link(linker)?;
    #[cfg(feature = "fault-points")]
    fault_point::link(linker)?;
    Ok(())
}

/// What modules of programs import: their `proc_exit`, and how much memory they may have.
fn program(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.instance(&format!("{EXIT}@1.0.0"))?.func_wrap(
        "exit",
        |_: Store<'_>, (code,): (u32,)| -> wasmtime::Result<()> {
            Err(I32Exit(code.cast_signed()).into())
        },
    )?;
    linker
        .instance(&format!("{MEMORY}@1.0.0"))?
        .func_wrap("pages", |store: Store<'_>, ()| {
            let pages = store.data().limits().memory >> 16;
            Ok((u32::try_from(pages).unwrap_or(u32::MAX),))
        })
}

/// The import `hostler:handler/delivery`.
fn delivery(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut delivery = linker.instance(&format!("hostler:handler/delivery@{VERSION}"))?;
    delivery.func_wrap("deadline-ms", |store: Store<'_>, ()| {
        let deadline = store.data().attempt.deadline;
        let left = || millis(deadline.saturating_duration_since(Instant::now()));
        Ok((store.data().reading(Reading::Deadline, left),))
    })?;
    delivery.func_wrap("is-cancelled", |store: Store<'_>, ()| {
        let cancelled = &store.data().attempt.cancelled;
        let cancelled = || u64::from(cancelled.load(Ordering::Relaxed));
        Ok((store.data().reading(Reading::Cancelled, cancelled) != 0,))
    })?;
    delivery.func_wrap("trace-context", |store: Store<'_>, ()| {
        let attempt = &store.data().attempt;
        if attempt.messages > 1 {
            // Each message of a batch has its own trace, in its headers.
            return Ok(((None, None),));
        }
        let text = |value: Option<Bytes>| value.map(|v| String::from_utf8_lossy(&v).into_owned());
        Ok(((text(attempt.traceparent()), text(attempt.tracestate())),))
    })
}
