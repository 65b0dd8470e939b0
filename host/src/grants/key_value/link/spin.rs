//! `fermyon:spin/key-value`: the same keys, by the same rules, as `hostler:handler/key-value`.

use wasmtime::component::{ComponentType, Linker, Lower, Resource};

use super::list;
use super::wasi::keys;
use crate::grants::configuration::SPIN_VERSION;
use crate::grants::key_value::SPIN_KEY_VALUE;
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::Store;

/// `key-value.store`: there is one, with the granted keys.
struct Keys;

/// `key-value.error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum KeyError {
    #[component(name = "store-table-full")]
    #[expect(dead_code, reason = "the WIT has it")]
    StoreTableFull,
    #[component(name = "no-such-store")]
    NoSuchStore,
    #[component(name = "access-denied")]
    #[expect(dead_code, reason = "the WIT has it")]
    AccessDenied,
    #[component(name = "other")]
    Other(String),
}

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut interface = linker.instance(&format!("{SPIN_KEY_VALUE}@{SPIN_VERSION}"))?;
    keys::<Keys, KeyError>(&mut interface, "store", KeyError::Other)?;
    interface.func_wrap(
        "[static]store.open",
        |mut store: Store<'_>, (label,): (String,)| {
            Ok((match &*label {
                "default" => Ok(store.data_mut().table.push(Keys)?),
                _ => Err(KeyError::NoSuchStore),
            },))
        },
    )?;
    interface.func_wrap_async(
        "[method]store.get-keys",
        |mut store: Store<'_>, _: (Resource<Keys>,)| {
            Box::new(async move { Ok((all_keys(&mut store).await.map_err(KeyError::Other),)) })
        },
    )
}

/// All keys, if they are not more than a handler may pass in one call: the interface has no pages.
async fn all_keys(store: &mut Store<'_>) -> Result<Vec<String>, String> {
    let most = store.data().limits().transfer;
    let (mut keys, mut bytes, mut cursor) = (Vec::new(), 0, 0);
    loop {
        let (page, next) = list(store, cursor).await?;
        bytes += page.iter().map(String::len).sum::<usize>();
        if bytes > most {
            return Err(format!("the names of all keys have more than {most} bytes"));
        }
        keys.extend(page);
        match next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    // The scan of Redis may find a key twice.
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
