//! `wasi:keyvalue`, as wasmCloud (`0.2.0-draft`) and Spin (`0.2.0-draft2`) have it: the same keys, by the
//! same rules, as `hostler:handler/key-value`.
//!
//! The drafts differ in cursors, in the numbers of `increment`, in `get-many` and in compare-and-swap, which
//! only the second one has.

use bytes::Bytes;
use wasmtime::component::{ComponentType, Linker, LinkerInstance, Lower, Resource, ResourceType};

use super::{at_once, current, get, increment, list, read, rules, set, write_key};
use crate::delivery::key_value::{Seen, Written};
use crate::grants::key_value::KEYVALUE;
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::{Store, dropped};

/// `store.bucket`: there is one, with the granted keys.
struct Bucket;

/// `atomics.cas`.
struct Cas {
    key: String,
    /// The value that the guest knows.
    seen: Seen,
}

/// `store.error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum Error {
    #[component(name = "no-such-store")]
    NoSuchStore,
    #[component(name = "access-denied")]
    #[expect(dead_code, reason = "the WIT has it")]
    AccessDenied,
    #[component(name = "other")]
    Other(String),
}

/// `store.key-response`; the drafts differ in the cursor.
#[derive(ComponentType, Lower)]
#[component(record)]
struct KeyResponse<C> {
    keys: Vec<String>,
    cursor: Option<C>,
}

/// `atomics.cas-error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum CasError {
    #[component(name = "store-error")]
    Store(Error),
    #[component(name = "cas-failed")]
    Failed(Resource<Cas>),
}

type Answer<T> = wasmtime::Result<(Result<T, Error>,)>;

/// Both drafts.
pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    for draft in KEYVALUE {
        stores(linker, draft)?;
        batches(linker, draft)?;
        atomics(linker, draft)?;
    }
    Ok(())
}

fn answer<T>(result: Result<T, String>) -> Answer<T> {
    Ok((result.map_err(Error::Other),))
}

/// What this draft has in this place.
fn is_first(draft: &str) -> bool {
    draft == KEYVALUE[0]
}

fn stores(linker: &mut Linker<Host>, draft: &str) -> wasmtime::Result<()> {
    let mut store = linker.instance(&format!("wasi:keyvalue/store@{draft}"))?;
    keys::<Bucket, Error>(&mut store, "bucket", Error::Other)?;
    store.func_wrap("open", |mut store: Store<'_>, (name,): (String,)| {
        Ok((match &*name {
            "" | "default" => Ok(store.data_mut().table.push(Bucket)?),
            _ => Err(Error::NoSuchStore),
        },))
    })?;
    if is_first(draft) {
        store.func_wrap_async(
            "[method]bucket.list-keys",
            |mut store: Store<'_>, (_, cursor): (Resource<Bucket>, Option<u64>)| {
                Box::new(async move {
                    let page = list(&mut store, cursor.unwrap_or(0)).await;
                    answer(page.map(|(keys, cursor)| KeyResponse { keys, cursor }))
                })
            },
        )
    } else {
        store.func_wrap_async(
            "[method]bucket.list-keys",
            |mut store: Store<'_>, (_, cursor): (Resource<Bucket>, Option<String>)| {
                Box::new(async move {
                    let cursor = cursor.map_or(Ok(0), |cursor| cursor.parse());
                    let Ok(cursor) = cursor else {
                        return answer(Err("the cursor is not one of this store".to_owned()));
                    };
                    let page = list(&mut store, cursor).await;
                    answer(page.map(|(keys, cursor)| KeyResponse {
                        keys,
                        cursor: cursor.map(|cursor| cursor.to_string()),
                    }))
                })
            },
        )
    }
}

fn batches(linker: &mut Linker<Host>, draft: &str) -> wasmtime::Result<()> {
    let mut batch = linker.instance(&format!("wasi:keyvalue/batch@{draft}"))?;
    if is_first(draft) {
        get_many(&mut batch, |(key, value)| Some((key, Vec::from(value?))))?;
    } else {
        get_many(&mut batch, |(key, value)| (key, value.map(Vec::from)))?;
    }
    batch.func_wrap(
        "set-many",
        |mut store: Store<'_>, (_, pairs): (Resource<Bucket>, Vec<(String, Vec<u8>)>)| {
            let mut pairs = pairs.into_iter();
            answer(pairs.try_for_each(|(key, value)| set(&mut store, 0, &key, value, None)))
        },
    )?;
    batch.func_wrap(
        "delete-many",
        |mut store: Store<'_>, (_, keys): (Resource<Bucket>, Vec<String>)| {
            let host = store.data_mut();
            let mut keys = keys.iter();
            answer(keys.try_for_each(|key| write_key(host, 0, key, Written::nothing())))
        },
    )
}

/// `get-many`; `item` is what a draft has of a key and its value.
fn get_many<T>(
    batch: &mut LinkerInstance<'_, Host>,
    item: fn((String, Option<Bytes>)) -> T,
) -> wasmtime::Result<()>
where
    T: ComponentType + Lower + Send + Sync + 'static,
{
    batch.func_wrap_async(
        "get-many",
        move |mut store: Store<'_>, (_, keys): (Resource<Bucket>, Vec<String>)| {
            Box::new(async move {
                let values = read(&mut store, 0, &keys).await;
                let items = |values| keys.into_iter().zip(values).map(item);
                answer(values.map(|values| items(values).collect::<Vec<_>>()))
            })
        },
    )
}

fn atomics(linker: &mut Linker<Host>, draft: &str) -> wasmtime::Result<()> {
    let mut atomics = linker.instance(&format!("wasi:keyvalue/atomics@{draft}"))?;
    if is_first(draft) {
        return atomics.func_wrap_async(
            "increment",
            |mut store: Store<'_>, (_, key, delta): (Resource<Bucket>, String, u64)| {
                Box::new(async move {
                    let Ok(delta) = i64::try_from(delta) else {
                        return answer(Err("the number has more than 63 bits".to_owned()));
                    };
                    let sum = increment(&mut store, 0, &key, delta).await;
                    let negative = |_| "the sum is negative".to_owned();
                    answer(sum.and_then(|sum| u64::try_from(sum).map_err(negative)))
                })
            },
        );
    }
    atomics.func_wrap_async(
        "increment",
        |mut store: Store<'_>, (_, key, delta): (Resource<Bucket>, String, i64)| {
            Box::new(async move { answer(increment(&mut store, 0, &key, delta).await) })
        },
    )?;
    atomics.resource("cas", ResourceType::host::<Cas>(), dropped::<Cas>)?;
    atomics.func_wrap_async(
        "[static]cas.new",
        |mut store: Store<'_>, (_, key): (Resource<Bucket>, String)| {
            Box::new(async move {
                Ok((match new_cas(&mut store, key).await {
                    Ok(cas) => Ok(store.data_mut().table.push(cas)?),
                    Err(why) => Err(Error::Other(why)),
                },))
            })
        },
    )?;
    atomics.func_wrap_async(
        "[method]cas.current",
        |mut store: Store<'_>, (cas,): (Resource<Cas>,)| {
            Box::new(async move {
                let key = store.data().table.get(&cas)?.key.clone();
                let (value, seen) = match current(&mut store, &key).await {
                    Ok(found) => found,
                    Err(why) => return answer(Err(why)),
                };
                // The guest decides by this value.
                store.data_mut().table.get_mut(&cas)?.seen = seen;
                answer(Ok(value.map(Vec::from)))
            })
        },
    )?;
    atomics.func_wrap_async(
        "swap",
        |mut store: Store<'_>, (cas, value): (Resource<Cas>, Vec<u8>)| {
            Box::new(async move {
                let cas = store.data_mut().table.delete(cas)?;
                Ok((match swap(&mut store, cas, value).await {
                    Ok(None) => Ok(()),
                    Ok(Some(next)) => Err(CasError::Failed(store.data_mut().table.push(next)?)),
                    Err(why) => Err(CasError::Store(Error::Other(why))),
                },))
            })
        },
    )
}

/// A resource that stands for the granted keys, and the calls that stores of all worlds have.
pub(super) fn keys<R, E>(
    interface: &mut LinkerInstance<'_, Host>,
    resource: &str,
    other: fn(String) -> E,
) -> wasmtime::Result<()>
where
    R: Send + 'static,
    E: Lower + ComponentType + Send + Sync + 'static,
{
    interface.resource(resource, ResourceType::host::<R>(), dropped::<R>)?;
    let method = |name: &str| format!("[method]{resource}.{name}");
    interface.func_wrap_async(
        &method("get"),
        move |mut store: Store<'_>, (_, key): (Resource<R>, String)| {
            Box::new(async move { Ok((get(&mut store, 0, key).await.map_err(other),)) })
        },
    )?;
    interface.func_wrap_async(
        &method("exists"),
        move |mut store: Store<'_>, (_, key): (Resource<R>, String)| {
            Box::new(async move {
                let values = read(&mut store, 0, &[key]).await;
                Ok((values.map(|v| v.iter().any(Option::is_some)).map_err(other),))
            })
        },
    )?;
    interface.func_wrap(
        &method("set"),
        move |mut store: Store<'_>, (_, key, value): (Resource<R>, String, Vec<u8>)| {
            Ok((set(&mut store, 0, &key, value, None).map_err(other),))
        },
    )?;
    interface.func_wrap(
        &method("delete"),
        move |mut store: Store<'_>, (_, key): (Resource<R>, String)| {
            let deleted = write_key(store.data_mut(), 0, &key, Written::nothing());
            Ok((deleted.map_err(other),))
        },
    )
}

async fn new_cas(store: &mut Store<'_>, key: String) -> Result<Cas, String> {
    let (_, seen) = current(store, &key).await?;
    Ok(Cas { key, seen })
}

/// Set the value at once, if it is still the one that the guest knows; if not, what to try again with.
async fn swap(store: &mut Store<'_>, cas: Cas, value: Vec<u8>) -> Result<Option<Cas>, String> {
    let (keys, full) = at_once(store, 0, &cas.key)?;
    rules(store.data())?.check_value(&value)?;
    let swapped = keys.swap(&full, &cas.seen, &value).await;
    if !matches!(swapped, Ok(false)) {
        // Also after an error: it may be set, and a rerun would set it again.
        store.data_mut().effects(0)?.changed_at_once(&full);
    }
    if swapped? {
        return Ok(None);
    }
    new_cas(store, cas.key).await.map(Some)
}
