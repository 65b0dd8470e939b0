//! Counts what a component declares, before it is compiled, and finds the worlds that cannot be.
//!
//! Some declarations take far more memory in wasmtime than in the file, and no limit of an instance counts
//! them. Handlers have few of them.

use wasmparser::{ElementItems, ElementKind, ElementSectionReader, Parser, Payload};

use crate::error::{Refusal, display_name};

/// The most types, of the component and its core modules together. Each takes some hundred bytes for as long
/// as the component is loaded.
const TYPES: u64 = 50_000;

/// The most elements of passive segments, of all core modules together. Each takes 16 bytes in each instance of
/// its module.
const PASSIVE_ELEMENTS: u64 = 10_000;

/// Refuse a component that declares too much, or is for a world with `async` functions. A component that cannot be
/// parsed is not counted: it does not compile.
pub(super) fn check(bytes: &[u8]) -> Result<(), Refusal> {
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
                    refuse_async(import.name.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section.into_iter().map_while(Result::ok) {
                    refuse_async(export.name.name)?;
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
            return Err(Refusal::TooMany { what, found, limit });
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

/// The worlds with `async` functions: how the names of their interfaces begin, and what to do instead.
const ASYNC: [(&str, &str); 3] = [
    ("spin:redis/inbound-redis@", "build it with spin-sdk 5"),
    (
        "spin:sqs/sqs-types@",
        "build it against the WIT of fermyon:spin-sqs@2.0.0",
    ),
    (
        "wasmcloud:messaging/handler@0.3.",
        "build it against wasmcloud:messaging@0.2.0",
    ),
];

/// Refuse a component that exports or imports this: such components cannot even be compiled here.
fn refuse_async(name: &str) -> Result<(), Refusal> {
    match ASYNC.iter().find(|(begin, _)| name.starts_with(begin)) {
        None => Ok(()),
        Some((_, remedy)) => Err(Refusal::Async {
            interface: display_name(name),
            remedy,
        }),
    }
}
