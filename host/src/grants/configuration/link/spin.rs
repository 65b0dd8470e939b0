//! `fermyon:spin/variables`: the configured values.

use wasmtime::component::{ComponentType, Linker, Lower};

use crate::grants::configuration::{SPIN_VARIABLES, SPIN_VERSION};
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::Store;

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

/// The names that Spin allows: words of lower-case letters and digits, the first one with a letter first,
/// with single underscores between them.
fn is_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut bytes = word.bytes();
        !word.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(is_word)
}

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{SPIN_VARIABLES}@{SPIN_VERSION}"))?
        .func_wrap("get", |store: Store<'_>, (name,): (String,)| {
            if !is_name(&name) {
                return Ok((Err(VariableError::InvalidName(name)),));
            }
            let value = store.data().configured(&name);
            Ok((value.ok_or(VariableError::Undefined(name)),))
        })
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
