//! `hostler:handler/key-value`, and its part of `batch-effects`: keys that are read at once, and written with
//! the acknowledgement.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wasmtime::component::{Linker, LinkerInstance};

use crate::delivery::key_value::{Seen, Written};
use crate::sandbox::host::Host;
use crate::sandbox::imports::{Store, VERSION};
use crate::sandbox::outside::{ReadValues, Reading, Scope, Stored};

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut interface = linker.instance(&format!("hostler:handler/key-value@{VERSION}"))?;
    interface.func_wrap_async("get", |mut store: Store<'_>, (key,): (String,)| {
        Box::new(async move { Ok((get(&mut store, 0, key).await,)) })
    })?;
    interface.func_wrap(
        "set",
        |mut store: Store<'_>, (key, value, ttl): (String, Vec<u8>, Option<u64>)| {
            Ok((set(&mut store, 0, &key, value, ttl),))
        },
    )?;
    interface.func_wrap("delete", |mut store: Store<'_>, (key,): (String,)| {
        Ok((store.data_mut().write_key(0, &key, Written::nothing()),))
    })?;
    interface.func_wrap_async(
        "increment",
        |mut store: Store<'_>, (key, delta): (String, i64)| {
            Box::new(async move { Ok((increment(&mut store, 0, &key, delta).await,)) })
        },
    )
}

/// The calls of `batch-effects`, which name the message.
pub(super) fn link_of_batches(interface: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    interface.func_wrap_async(
        "get",
        |mut store: Store<'_>, (index, key): (u32, String)| {
            Box::new(async move { Ok((get(&mut store, index, key).await,)) })
        },
    )?;
    interface.func_wrap(
        "set",
        |mut store: Store<'_>, (index, key, value, ttl): (u32, String, Vec<u8>, Option<u64>)| {
            Ok((set(&mut store, index, &key, value, ttl),))
        },
    )?;
    interface.func_wrap(
        "delete",
        |mut store: Store<'_>, (index, key): (u32, String)| {
            let deleted = store.data_mut().write_key(index, &key, Written::nothing());
            Ok((deleted,))
        },
    )?;
    interface.func_wrap_async(
        "increment",
        |mut store: Store<'_>, (index, key, delta): (u32, String, i64)| {
            Box::new(async move { Ok((increment(&mut store, index, &key, delta).await,)) })
        },
    )
}

/// The value of a key of the guest, as the attempt at this message of the call sees it.
pub(super) async fn get(
    store: &mut Store<'_>,
    index: u32,
    key: String,
) -> Result<Option<Vec<u8>>, String> {
    let mut values = read(store, index, &[key]).await?;
    Ok(values.pop().flatten().map(Vec::from))
}

/// Set a key of the guest with the acknowledgement of this message of the call.
pub(super) fn set(
    store: &mut Store<'_>,
    index: u32,
    key: &str,
    value: Vec<u8>,
    ttl: Option<u64>,
) -> Result<(), String> {
    let written = Written::value(Bytes::from(value), ttl.map(Duration::from_millis))?;
    store.data_mut().write_key(index, key, written)
}

/// The values of these keys of the guest, as the attempt at this message of the call sees them.
pub(super) async fn read(
    store: &mut Store<'_>,
    index: u32,
    keys: &[String],
) -> Result<Vec<Option<Bytes>>, String> {
    let host = store.data_mut();
    let rules = host.keys()?.clone();
    let effects = host.effects(index)?;
    let mut values = Vec::with_capacity(keys.len());
    let mut others = Vec::new();
    for key in keys {
        let full = rules.full(key)?;
        let own = effects.own(&full);
        values.push(own.and_then(|own| own.value.clone()));
        if own.is_none() {
            others.push((values.len() - 1, full));
        }
    }
    if others.is_empty() {
        return Ok(values);
    }
    let names = others.iter().map(|(_, full)| full.clone()).collect();
    let limits = host.limits().effects;
    let asked = stored(host, names, rules.checked);
    let found = asked.await?;
    for ((place, full), stored) in others.into_iter().zip(found) {
        if rules.checked {
            let effects = store.data_mut().effects(index)?;
            effects.saw(&limits, full, seen(stored.as_ref()))?;
        }
        values[place] = stored.map(|Stored { value, .. }| value);
    }
    Ok(values)
}

/// The value of a key that the attempt has not written, and what to know it by.
pub(super) async fn current(
    store: &mut Store<'_>,
    key: &str,
) -> Result<(Option<Bytes>, Seen), String> {
    let (_, full) = at_once(store, 0, key)?;
    let asked = stored(store.data(), vec![full], true);
    let found = asked.await?;
    let found = found.into_iter().next().flatten();
    let seen = seen(found.as_ref());
    Ok((found.map(|stored| stored.value), seen))
}

/// Add to the number of a key of the guest.
pub(super) async fn increment(
    store: &mut Store<'_>,
    index: u32,
    key: &str,
    delta: i64,
) -> Result<i64, String> {
    let (scope, full) = at_once(store, index, key)?;
    let sum = scope.increment(&full, delta).await;
    // Also after an error: it may have been added, and a rerun would add again.
    store.data_mut().effects(index)?.changed_at_once(&full);
    sum
}

/// Some keys of the guest, and where the next ones begin; its own writes are among the last ones.
pub(super) async fn list(
    store: &mut Store<'_>,
    cursor: u64,
) -> Result<(Vec<String>, Option<u64>), String> {
    let host = store.data();
    let prefix = Arc::clone(&host.keys()?.prefix);
    let scope = host.scope()?;
    let (found, next) = scope.list(&prefix, cursor).await?;
    let effects = store.data_mut().effects(0)?;
    let mut keys: Vec<String> = found
        .into_iter()
        .filter(|full| effects.own(full).is_none())
        .collect();
    if next.is_none() {
        let set = effects.written().filter(|(_, own)| own.value.is_some());
        keys.extend(set.map(|(full, _)| full.to_owned()));
    }
    let short = |full: String| full.strip_prefix(&*prefix).map(str::to_owned);
    Ok((keys.into_iter().filter_map(short).collect(), next))
}

/// What changes a key of the guest at once, and the key in Redis.
pub(super) fn at_once(
    store: &mut Store<'_>,
    index: u32,
    key: &str,
) -> Result<(Arc<Scope>, String), String> {
    let host = store.data_mut();
    let full = host.keys()?.full(key)?;
    if host.effects(index)?.own(&full).is_some() {
        return Err(
            "this attempt has written the key: that happens with the acknowledgement, and this would happen before"
                .to_owned(),
        );
    }
    Ok((host.scope()?, full))
}

/// What Redis has of these keys. The future holds nothing of the host.
fn stored(
    host: &Host,
    keys: Vec<String>,
    digests: bool,
) -> impl Future<Output = ReadValues> + Send + use<> {
    let reading = host.keys().map(|rules| Reading {
        keys,
        value_max: rules.value_max,
        bytes_max: host.limits().effects.bytes,
        digests,
    });
    let scope = host.scope();
    async move { scope?.read(reading?).await }
}

fn seen(stored: Option<&Stored>) -> Seen {
    Seen {
        value: stored.map(|stored| (stored.value.len(), stored.digest.clone())),
    }
}
