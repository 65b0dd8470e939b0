//! Counts what a component declares, before it is compiled, and finds the worlds that cannot be.
//!
//! Some declarations take far more memory in wasmtime than in the file, and no limit of an instance counts
//! them. Handlers have few of them.

use wasmparser::{ElementItems, ElementKind, ElementSectionReader, Parser, Payload};

use super::error::LoadError;
use super::worlds;

/// The most types, of the component and its core modules together. Each takes some hundred bytes for as long
/// as the component is loaded.
const TYPES: u64 = 50_000;

/// The most elements of passive segments, of all core modules together. Each takes 16 bytes in each instance of
/// its module.
const PASSIVE_ELEMENTS: u64 = 10_000;

/// Refuse a component that declares too much, or is for a world with `async` functions. What cannot be parsed is not counted: it does not compile.
pub(super) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    let (mut types, mut elements) = (0_u64, 0_u64);
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else {
            break;
        };
        match payload {
            Payload::TypeSection(section) => types += u64::from(section.count()),
            Payload::CoreTypeSection(section) => types += u64::from(section.count()),
            Payload::ComponentTypeSection(section) => types += u64::from(section.count()),
            Payload::ElementSection(section) => elements += passive(section),
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section.into_iter().map_while(Result::ok) {
                    worlds::refuse_async(import.name.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section.into_iter().map_while(Result::ok) {
                    worlds::refuse_async(export.name.name)?;
                }
            }
            _ => {}
        }
    }
    for (what, found, limit) in [
        ("types", types, TYPES),
        ("elements in passive segments", elements, PASSIVE_ELEMENTS),
    ] {
        if found > limit {
            return Err(LoadError::TooMany { what, found, limit });
        }
    }
    Ok(())
}

/// The elements of the passive segments of a section.
fn passive(section: ElementSectionReader<'_>) -> u64 {
    let segments = section.into_iter().map_while(Result::ok);
    segments
        .filter(|segment| matches!(segment.kind, ElementKind::Passive))
        .map(|segment| match segment.items {
            ElementItems::Functions(items) => u64::from(items.count()),
            ElementItems::Expressions(_, items) => u64::from(items.count()),
        })
        .sum()
}
