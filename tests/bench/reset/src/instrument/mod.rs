//! Rewrites a component so that its instance can be reset.
//!
//! The core module gets two more memories. The *map* has one byte for each block of the guest's memory, which is 1
//! if the block was written. The *image* has what the memory had after the start of the instance: it has the same
//! data segments, and what a start function has written is copied to it at the end of the start. A block is marked
//! before each instruction that writes, before each import that gets a place for its result, and after each
//! allocation for the host. The reset copies the marked blocks from the image.
//!
//! `plan` reads the component and decides whether this is enough for it. `code` rewrites functions, `runtime` writes
//! the functions that mark and restore, and `wrappers` those around imports and exports. `module` puts the core modules
//! together, `layout` has the sizes of what the host writes, and `component` writes the component around them.

mod code;
mod component;
mod layout;
mod module;
mod plan;
mod runtime;
mod wrappers;

use std::convert::Infallible;

use wasm_encoder_of_wit::reencode;
use wasmparser::BinaryReaderError;

pub use code::{NOT_RESTORED, OPERATORS, PROPOSALS, STORES};
pub use component::{CHECK, instrumented};

/// How a component is rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether the memory and the globals are restored after each call. Without it, only marks are made.
    pub resets: bool,
    /// Whether an instance whose memory has grown is restored, too: `memory.size` becomes a counter. The memory stays
    /// as large as it was.
    pub keeps_growth: bool,
    /// The number of bits of the size of a block.
    pub block_bits: u32,
    /// A mark that is left out, to see that the check finds it. Of [`STORES`], or of [`MARKS`].
    pub without: Option<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            resets: true,
            keeps_growth: true,
            block_bits: 10,
            without: None,
        }
    }
}

impl Options {
    /// Whether this mark is made.
    fn marks(&self, name: &str) -> bool {
        self.without != Some(name)
    }
}

/// The marks that are not those of a store: of instructions, of what the host writes, and of globals.
pub const MARKS: &[&str] = &[
    "memory.fill",
    "memory.copy",
    "memory.init",
    "realloc",
    "result",
    "globals",
    "handles",
];

/// Why a component cannot be reset.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It is no valid component.
    #[error(transparent)]
    Invalid(#[from] BinaryReaderError),
    /// An item cannot be written again.
    #[error("an item cannot be written again: {0}")]
    Encoding(reencode::Error<Infallible>),
    /// Something that a reset would not restore.
    #[error("it has {0}")]
    Has(String),
    /// It names something that it does not have.
    #[error("it names something that it does not have")]
    Missing,
}

impl Refused {
    fn has(what: impl Into<String>) -> Self {
        Self::Has(what.into())
    }
}

impl From<reencode::Error<Self>> for Refused {
    fn from(error: reencode::Error<Self>) -> Self {
        use reencode::Error as E;
        Self::Encoding(match error {
            E::UserError(refused) => return refused,
            E::ParseError(error) => return Self::Invalid(error),
            E::CanonicalizedHeapTypeReference => E::CanonicalizedHeapTypeReference,
            E::InvalidConstExpr => E::InvalidConstExpr,
            E::InvalidCodeSectionSize => E::InvalidCodeSectionSize,
            E::UnexpectedNonCoreModuleSection => E::UnexpectedNonCoreModuleSection,
            E::UnexpectedNonComponentSection => E::UnexpectedNonComponentSection,
            E::UnsupportedCoreTypeInComponent => E::UnsupportedCoreTypeInComponent,
        })
    }
}
