//! What the merge needs around it.

#[path = "../../../../../host/src/sandbox/compile/merge/mod.rs"]
mod merge;

use wasmparser::{Parser, Payload};

/// The component with its core modules merged. `None` = it stays as it is.
pub(crate) fn merged(component: &[u8]) -> Option<Vec<u8>> {
    merge::merged(component)
}

/// The parts of a component, without those of its core modules and inner components.
pub(crate) fn parts(component: &[u8]) -> impl Iterator<Item = wasmparser::Result<Payload<'_>>> {
    let mut depth = 0_u32;
    Parser::new(0).parse_all(component).filter(move |payload| {
        match payload {
            Ok(Payload::Version { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 1 || payload.is_err()
    })
}
