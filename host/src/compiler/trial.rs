//! The child's trial of a component: what loading its code takes, and what one instance takes.
//!
//! Some of it no limit counts: wasmtime's own data for types, segments and nested instances. So the child
//! measures all of it, and a component over a bound never reaches a process that handles messages.

use std::sync::Arc;

use hostler_components::describe;
use wasmtime::Engine;
use wasmtime::component::InstancePre;

use super::Artifact;
use super::job::{Job, Taken, Verdict};
use super::measure::{Meters, Usage};
use crate::delivery::effect::{Budget, Outlets};
use crate::delivery::key_value::KeyRules;
use crate::delivery::outcome::FaultKind;
use crate::grants::Grants;
use crate::grants::link::linker;
use crate::sandbox::engine;
use crate::sandbox::error::LoadError;
use crate::sandbox::first_instance::{make, required};
use crate::sandbox::host::{Host, Shared};
use crate::sandbox::limiter::TABLES;
use crate::sandbox::limits::Limits;
use crate::sandbox::log::Rate;
use crate::sandbox::settings::{Allocation, Settings};

/// Bytes of memory that loading code takes, in addition to the code.
const LOADED_MAX: u64 = 64 << 20;

/// Bytes of memory that an instance takes, in addition to its linear memories, tables and stack.
const INSTANCE_MAX: u64 = 24 << 20;

/// Descriptors that a component and its first instance open: one for the image of each memory.
const FILES_MAX: u64 = 48;

/// Memory mappings that an instance adds.
const MAPPINGS_MAX: u64 = 128;

/// Bytes of an element of a table.
const TABLE_ELEMENT: u64 = 8;

/// Bytes that the limits of a handler let a pool for one instance map.
pub(super) fn published_max(limits: &Limits) -> u64 {
    let table = (limits.table_elements as u64).saturating_mul(TABLE_ELEMENT);
    let tables = table.saturating_mul(u64::from(engine::slots(1)) * u64::from(TABLES));
    tables.saturating_add(limits.memory as u64)
}

/// Load the code and make one instance.
pub(super) fn run(job: &Job, artifact: &Artifact, mut meters: Meters) -> wasmtime::Result<Verdict> {
    let allocation = job.allocation();
    let settings = Settings {
        limits: job.limits.clone(),
        concurrency: 1,
        grants: Grants {
            config: Some(job.config.clone().unwrap_or_default()),
            publish: Some(Outlets::default()),
            key_value: Some(KeyRules::none()),
            ..Grants::default()
        },
        lines: job.lines,
        ..Settings::default()
    };
    let limits = &settings.limits;
    let compiler = engine::compiler(&settings, allocation)?;

    let before = meters.begin()?;
    // Kept to the end: a later measurement must not use freed memory again.
    let component = artifact.load(&compiler)?;
    let loaded = memory_taken(before, meters.read()?);
    let most = (artifact.code().len() as u64).saturating_add(LOADED_MAX);
    if loaded > most {
        return Ok(too_large("bytes of memory to load", loaded, most));
    }

    let required = match required(&component, limits) {
        Ok(required) => required,
        Err(error) => return Ok(Verdict::Untried(error.to_string())),
    };
    let built = match engine::runners(&settings, allocation, &required) {
        Ok(built) => built,
        Err(error) if allocation == Allocation::Auto => {
            return Ok(Verdict::NoPool(describe(&error)));
        }
        Err(error) => return Err(error),
    };
    // Every interface is there, and leads nowhere: the parent has checked what is granted.
    let linker = linker(&built.engines[0], None)?;
    let again = artifact.load(&built.engines[0]);
    let pre = match again.and_then(|again| linker.instantiate_pre(&again)) {
        Ok(pre) => pre,
        Err(error) => return Ok(Verdict::Untried(describe(&error))),
    };
    let shared = Arc::new(Shared {
        rate: Arc::new(Rate::new(limits)),
        pace: built.pace,
        limits: limits.clone(),
        grants: settings.grants,
        budget: Budget::default(),
        acts: false,
        records_calls: false,
        recordings: None,
        settings: "".into(),
        digest: "".into(),
        program: None,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    runtime.block_on(one_instance(
        &built.engines[0],
        &pre,
        &shared,
        &mut meters,
        loaded,
    ))
}

async fn one_instance(
    engine: &Engine,
    pre: &InstancePre<Host>,
    shared: &Arc<Shared>,
    meters: &mut Meters,
    loaded: u64,
) -> wasmtime::Result<Verdict> {
    let before = meters.begin()?;
    let made = make(engine, pre, shared, |store, _| {
        let limiter = &store.data().limiter;
        let memory = limiter.memory_bytes() as u64;
        let tables = (limiter.table_elements() as u64).saturating_mul(TABLE_ELEMENT);
        Ok((meters.read(), memory.saturating_add(tables)))
    });
    let (after, counted) = match made.await {
        Ok((after, counted)) => (after?, counted),
        Err(LoadError::Start(fault)) => {
            return Ok(Verdict::Fails {
                panicked: fault.kind == FaultKind::HostPanic,
                detail: fault.detail,
            });
        }
        Err(error) => return Ok(Verdict::Untried(error.to_string())),
    };
    let stack = shared.limits.stack as u64;
    let most = INSTANCE_MAX.saturating_add(stack);
    let taken = Taken {
        loaded,
        memory: memory_taken(before, after).saturating_sub(counted),
        files: after.files.saturating_sub(before.files),
        mappings: after.mappings.saturating_sub(before.mappings),
    };
    let beside = "bytes of memory beside its linear memories and tables";
    for (what, taken, most) in [
        (beside, taken.memory, most),
        ("file descriptors", taken.files, FILES_MAX),
        ("memory mappings", taken.mappings, MAPPINGS_MAX),
    ] {
        if taken > most {
            return Ok(too_large(what, taken, most));
        }
    }
    Ok(Verdict::Good(taken))
}

/// Bytes of memory between two measurements: what is held at the end, or was held for a moment.
fn memory_taken(before: Usage, after: Usage) -> u64 {
    let held = after.data.saturating_sub(before.data);
    if after.peak <= before.peak {
        return held;
    }
    held.max(after.peak.saturating_sub(before.resident))
}

fn too_large(what: &str, taken: u64, most: u64) -> Verdict {
    Verdict::TooLarge(format!("it takes {taken} {what}, the limit is {most}"))
}
