//! Removes what a snapshot does not need: wizer leaves an empty passive segment for each data segment of the
//! component. A module in Go has some ten thousand, and each instance would look at all of them.

use wasm_encoder_of_wit::{Component, ComponentSectionId, DataSection, Module, RawSection};
use wasmparser::{DataKind, Operator, Parser, Payload};

use crate::parts;

/// The component without passive data segments, in the modules whose code uses none.
pub(super) fn compact(component: &[u8]) -> wasmparser::Result<Vec<u8>> {
    let mut compacted = Component::new();
    for part in parts(component) {
        let part = part?;
        if let Payload::ModuleSection {
            unchecked_range, ..
        } = part
        {
            let module = component.get(unchecked_range).unwrap_or_default();
            let smaller = match uses_segments(module)? {
                true => None,
                false => Some(without_passive(module)?),
            };
            compacted.section(&RawSection {
                id: ComponentSectionId::CoreModule as u8,
                data: smaller.as_deref().unwrap_or(module),
            });
        } else if let Some((id, range)) = part.as_section() {
            let data = component.get(range).unwrap_or_default();
            compacted.section(&RawSection { id, data });
        }
    }
    Ok(compacted.finish())
}

/// Whether code of the module names a data segment.
fn uses_segments(module: &[u8]) -> wasmparser::Result<bool> {
    for payload in Parser::new(0).parse_all(module) {
        let Payload::CodeSectionEntry(body) = payload? else {
            continue;
        };
        for operator in body.get_operators_reader()? {
            if let Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
            | Operator::ArrayNewData { .. }
            | Operator::ArrayInitData { .. } = operator?
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn without_passive(module: &[u8]) -> wasmparser::Result<Vec<u8>> {
    let mut smaller = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::DataCountSection { .. } => {}
            Payload::DataSection(segments) => {
                let mut active = DataSection::new();
                for segment in segments {
                    let segment = segment?;
                    if let DataKind::Active { .. } = segment.kind {
                        active.raw(module.get(segment.range).unwrap_or_default());
                    }
                }
                smaller.section(&active);
            }
            payload => {
                if let Some((id, range)) = payload.as_section() {
                    let data = module.get(range).unwrap_or_default();
                    smaller.section(&RawSection { id, data });
                }
            }
        }
    }
    Ok(smaller.finish())
}
