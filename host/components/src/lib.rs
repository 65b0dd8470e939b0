//! The tool chain of components: bytes in, bytes out.
//!
//! - [`check`]: the bytes are a component or a program, and declare no more than a handler needs.
//! - [`component_of`]: the component that is compiled. [`program`] makes one of a module with `_start`; `merge` makes one
//!   core module of several.
//! - [`has_lines`]: the bytes say of which lines of source their code is made.
//! - [`snapshot`]: a component that begins where an instance of another one is after its start.
//!
//! The host compiles and runs what comes out, and says what it may take. This crate knows no limit of a handler and no
//! grant.

mod declarations;
mod error;
mod format;
mod merge;
pub mod program;
pub mod snapshot;

use std::borrow::Cow;

use wasmparser::{Parser, Payload};

pub use error::{Refusal, describe, display_name};

/// Changes with all that is made of a component here: caches of compiled code have it in their keys.
pub const REVISION: u32 = 1;

/// The most core instances of one component. Interpreters and adapters have some dozen. Each may use
/// host memory that no other limit counts.
pub const CORE_INSTANCES: u32 = 256;

/// Refuse bytes that are neither a component nor a program, or that declare too much.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(bytes: &[u8]) -> Result<(), Refusal> {
    format::check(bytes)?;
    declarations::check(bytes)
}

/// The component that is compiled: that of a program, if it is one, and with its core modules merged.
///
/// # Errors
/// It is a program that cannot be a component; the text says why.
pub fn component_of(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let component = program::component_of(bytes)?;
    Ok(match merge::merged(&component) {
        Some(merged) => Cow::Owned(merged),
        None => component,
    })
}

/// Whether a component has the lines of its source, as DWARF. A module that is a program is rewritten: its DWARF would be
/// about other bytes.
pub fn has_lines(bytes: &[u8]) -> bool {
    let is_lines = |payload: wasmparser::Result<Payload<'_>>| match payload {
        Ok(Payload::CustomSection(section)) => section.name() == ".debug_line",
        _ => false,
    };
    Parser::is_component(bytes) && Parser::new(0).parse_all(bytes).any(is_lines)
}

/// The parts of a component, without those of its core modules and inner components.
fn parts(component: &[u8]) -> impl Iterator<Item = wasmparser::Result<Payload<'_>>> {
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
