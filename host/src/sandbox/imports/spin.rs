//! What handlers of Spin import: `fermyon:spin/variables`, from the configured values, and
//! `fermyon:spin/key-value`, with the same keys, by the same rules, as `hostler:handler/key-value`.

use wasmtime::component::{ComponentType, Linker, Lower, Resource};

use super::key_value::list;
use super::wasi_keyvalue::keys;
use crate::sandbox::grants::{SPIN_KEY_VALUE, SPIN_VARIABLES, SPIN_VERSION};
use crate::sandbox::host::Host;
use crate::sandbox::imports::Store;

/// `variables.error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum VariableError {
    #[component(name = "invalid-name")]
    InvalidName(String),
    #[component(name = "undefined")]
    Undefined(String),
    #[component(name = "provider")]
    #[expect(dead_code, reason = "the WIT has it")]
    Provider(String),
    #[component(name = "other")]
    #[expect(dead_code, reason = "the WIT has it")]
    Other(String),
}

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

/// The names that Spin allows: words of lower-case letters and digits, the first one with a letter first,
/// with single underscores between them.
fn is_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut bytes = word.bytes();
        !word.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(is_word)
}

pub(super) fn variables(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{SPIN_VARIABLES}@{SPIN_VERSION}"))?
        .func_wrap("get", |store: Store<'_>, (name,): (String,)| {
            let values = store.data().grants().config.as_ref();
            let value = values.and_then(|values| values.now().get(&name).cloned());
            Ok((match value {
                _ if !is_name(&name) => Err(VariableError::InvalidName(name)),
                Some(value) => Ok(value),
                None => Err(VariableError::Undefined(name)),
            },))
        })
}

pub(super) fn key_value(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_of_variables_are_those_that_spin_allows() {
        for name in ["a", "api_key", "region2", "a_2b"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "A", "apiKey", "2a", "_a", "a_", "a__b", "a-b", "é"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
