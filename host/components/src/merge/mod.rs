//! Merges the core modules of a component into one.
//!
//! Tools that link libraries at run time, such as those of Python and JavaScript, make a core module of each library,
//! and let them share the table of one of them. wasmtime fills a table of the module that defines it when a call
//! needs an element, and fills a table that comes from another module at each start, element by element. A module
//! that has been merged has both the table and its elements. Its calls between libraries are direct, and there is one
//! instance to make instead of many.
//!
//! Merging changes nothing that a guest can see, or it is not done:
//! - Only modules with one instance are merged, and only those that need nothing that depends on another member.
//!   An item that an instance passes on is the item of the instance that defines it.
//! - The merged module comes where it has all that it imports. Nothing that runs code or writes segments comes between
//!   the first member and that place: it would run earlier.
//! - No member comes after code that runs for another instance, or writes to a table or a memory after another
//!   instance wrote to it. Instances of components, and modules that cannot be read, run code.
//! - Segments of members are inside their tables and memories, so none of them fails.
//! - At most the last member has a start function, and then no other instance comes before it.
//!
//! [`source`] reads a module, [`graph`] finds the members, [`module`] makes one module of them, and [`component`]
//! writes the component around it.

mod component;
mod graph;
mod module;
#[cfg(test)]
mod programs;
mod source;
#[cfg(test)]
mod tests;

use wasm_encoder_of_wit::{Component, RawSection, reencode};
use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentOuterAliasKind, ExternalKind, Parser, Payload,
    Validator, WasmFeatures,
};

use graph::Graph;

use crate::parts;

/// The kinds of items that core modules share.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Kind {
    Function,
    Table,
    Memory,
    Global,
}

const KINDS: usize = 4;
const ALL: [Kind; KINDS] = [Kind::Function, Kind::Table, Kind::Memory, Kind::Global];

fn kind_of(kind: ExternalKind) -> Result<Kind, Apart> {
    Ok(match kind {
        ExternalKind::Func => Kind::Function,
        ExternalKind::Table => Kind::Table,
        ExternalKind::Memory => Kind::Memory,
        ExternalKind::Global => Kind::Global,
        ExternalKind::Tag | ExternalKind::FuncExact => return Err(Apart::Unknown("a tag")),
    })
}

/// A number of a binary that has been read is less than 2^32.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// How deep components are in each other. Those of known tools are two deep.
const DEPTH_MAX: u32 = 8;

/// The reason why modules stay as they are.
#[derive(Debug, thiserror::Error)]
enum Apart {
    #[error(transparent)]
    Invalid(#[from] BinaryReaderError),
    #[error("an item cannot be written again: {0}")]
    Encoding(String),
    #[error("it has {0}")]
    Unknown(&'static str),
    #[error("it names something that it does not have")]
    Missing,
}

impl From<reencode::Error<Self>> for Apart {
    fn from(error: reencode::Error<Self>) -> Self {
        match error {
            reencode::Error::UserError(apart) => apart,
            reencode::Error::ParseError(error) => Self::Invalid(error),
            error => Self::Encoding(error.to_string()),
        }
    }
}

/// The component with fewer core modules. `None` = it stays as it is.
pub(crate) fn merged(component: &[u8]) -> Option<Vec<u8>> {
    // A mistake in what is merged away would not be found any more.
    if !is_valid(component) {
        return None;
    }
    let merged = match names_modules_outside(component) {
        Ok(false) => level(component, 0),
        Ok(true) => Err(Apart::Unknown("an alias of a core module outside")),
        Err(error) => Err(error.into()),
    };
    let merged = merged
        .inspect_err(|reason| tracing::debug!(%reason, "the core modules are not merged"))
        .ok()
        .flatten()?;
    // One module may have too much of something that many may have.
    is_valid(&merged).then_some(merged)
}

fn is_valid(component: &[u8]) -> bool {
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    validator.validate_all(component).is_ok()
}

/// Whether an inner component names a core module of an outer one by its number.
fn names_modules_outside(component: &[u8]) -> Result<bool, BinaryReaderError> {
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::ComponentAliasSection(aliases) = payload? {
            for alias in aliases {
                if let ComponentAlias::Outer {
                    kind: ComponentOuterAliasKind::CoreModule,
                    ..
                } = alias?
                {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Merge the modules of a component, and those of each inner component.
fn level(component: &[u8], depth: u32) -> Result<Option<Vec<u8>>, Apart> {
    if depth > DEPTH_MAX {
        return Err(Apart::Unknown("too many components in each other"));
    }
    let graph = Graph::of(component)?;
    let mut inner = Vec::new();
    for component in graph.components() {
        inner.push(level(component, depth + 1)?);
    }
    if graph.members().len() >= 2 {
        return component::written(&graph, &inner).map(Some);
    }
    if inner.iter().all(Option::is_none) {
        return Ok(None);
    }
    let (mut changed, mut inner) = (Component::new(), inner.into_iter());
    for part in parts(component) {
        let part = part?;
        let Some((id, range)) = part.as_section() else {
            continue;
        };
        let inner = match part {
            Payload::ComponentSection { .. } => inner.next().flatten(),
            _ => None,
        };
        let data = component.get(range).ok_or(Apart::Missing)?;
        changed.section(&RawSection {
            id,
            data: inner.as_deref().unwrap_or(data),
        });
    }
    Ok(Some(changed.finish()))
}
