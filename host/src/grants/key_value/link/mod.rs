//! `hostler:handler/key-value`, and its part of `batch-effects`: keys that are read at once, and written with
//! the acknowledgement.

mod spin;
mod wasi;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wasmtime::component::{Linker, LinkerInstance};

use crate::delivery::key_value::{KeyRules, Seen, Written};
use crate::grants::key_value::provider::{Keys, ReadValues, Reading, Stored};
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::{Store, VERSION};

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    wasi::link(linker)?;
    spin::link(linker)?;
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
        Ok((write_key(store.data_mut(), 0, &key, Written::nothing()),))
    })?;
    interface.func_wrap_async(
        "increment",
        |mut store: Store<'_>, (key, delta): (String, i64)| {
            Box::new(async move { Ok((increment(&mut store, 0, &key, delta).await,)) })
        },
    )
}

/// The calls of `batch-effects`, which name the message.
pub(in crate::grants) fn link_of_batches(
    interface: &mut LinkerInstance<'_, Host>,
) -> wasmtime::Result<()> {
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
            let deleted = write_key(store.data_mut(), index, &key, Written::nothing());
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

/// The keys that the guest may use for its messages.
fn rules(host: &Host) -> Result<&KeyRules, String> {
    let rules = host.grants().key_value.as_ref();
    rules.ok_or_else(|| "no key is granted".to_owned())
}

/// Write a key with the acknowledgement of the message at this place of the call.
fn write_key(host: &mut Host, index: u32, key: &str, written: Written) -> Result<(), String> {
    let granted = rules(host)?.clone();
    let limits = host.limits().effects;
    host.effects(index)?.write(&granted, &limits, key, written)
}

/// The value of a key of the guest, as the attempt at this message of the call sees it.
async fn get(store: &mut Store<'_>, index: u32, key: String) -> Result<Option<Vec<u8>>, String> {
    let mut values = read(store, index, &[key]).await?;
    Ok(values.pop().flatten().map(Vec::from))
}

/// Set a key of the guest with the acknowledgement of this message of the call.
fn set(
    store: &mut Store<'_>,
    index: u32,
    key: &str,
    value: Vec<u8>,
    ttl: Option<u64>,
) -> Result<(), String> {
    let written = Written::value(Bytes::from(value), ttl.map(Duration::from_millis))?;
    write_key(store.data_mut(), index, key, written)
}

/// The values of these keys of the guest, as the attempt at this message of the call sees them.
async fn read(
    store: &mut Store<'_>,
    index: u32,
    keys: &[String],
) -> Result<Vec<Option<Bytes>>, String> {
    let host = store.data_mut();
    let granted = rules(host)?.clone();
    let effects = host.effects(index)?;
    let mut values = Vec::with_capacity(keys.len());
    let mut others = Vec::new();
    for key in keys {
        let full = granted.full(key)?;
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
    let asked = stored(host, names, granted.checked);
    let found = asked.await?;
    for ((place, full), stored) in others.into_iter().zip(found) {
        if granted.checked {
            let effects = store.data_mut().effects(index)?;
            effects.saw(&limits, full, seen(stored.as_ref()))?;
        }
        values[place] = stored.map(|Stored { value, .. }| value);
    }
    Ok(values)
}

/// The value of a key that the attempt has not written, and what to know it by.
async fn current(store: &mut Store<'_>, key: &str) -> Result<(Option<Bytes>, Seen), String> {
    let (_, full) = at_once(store, 0, key)?;
    let asked = stored(store.data(), vec![full], true);
    let found = asked.await?;
    let found = found.into_iter().next().flatten();
    let seen = seen(found.as_ref());
    Ok((found.map(|stored| stored.value), seen))
}

/// Add to the number of a key of the guest.
async fn increment(
    store: &mut Store<'_>,
    index: u32,
    key: &str,
    delta: i64,
) -> Result<i64, String> {
    let (keys, full) = at_once(store, index, key)?;
    let sum = match rules(store.data())?.journal {
        true => keys.increment_once(&full, delta).await,
        false => keys.increment(&full, delta).await,
    };
    // Also after an error: it may have been added, and a rerun would add again.
    store.data_mut().effects(index)?.changed_at_once(&full);
    sum
}

/// Some keys of the guest, and where the next ones begin; its own writes are among the last ones.
async fn list(store: &mut Store<'_>, cursor: u64) -> Result<(Vec<String>, Option<u64>), String> {
    let host = store.data();
    let prefix = Arc::clone(&rules(host)?.prefix);
    let keys = host.scope()?.keys()?;
    let (found, next) = keys.list(&prefix, cursor).await?;
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
fn at_once(store: &mut Store<'_>, index: u32, key: &str) -> Result<(Arc<Keys>, String), String> {
    let host = store.data_mut();
    let full = rules(host)?.full(key)?;
    if host.effects(index)?.own(&full).is_some() {
        return Err(
            "this attempt has written the key: that happens with the acknowledgement, and this would happen before"
                .to_owned(),
        );
    }
    Ok((host.scope()?.keys()?, full))
}

/// What Redis has of these keys. The future holds nothing of the host.
fn stored(
    host: &Host,
    keys: Vec<String>,
    digests: bool,
) -> impl Future<Output = ReadValues> + Send + use<> {
    let reading = rules(host).map(|rules| Reading {
        keys,
        value_max: rules.value_max,
        bytes_max: host.limits().effects.bytes,
        digests,
    });
    let keys = host.scope().and_then(|scope| scope.keys());
    async move { keys?.read(reading?).await }
}

fn seen(stored: Option<&Stored>) -> Seen {
    Seen {
        value: stored.map(|stored| (stored.value.len(), stored.digest.clone())),
    }
}
