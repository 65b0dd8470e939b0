//! A handler that is loaded, and its properties. The room `compiler` makes it.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::host::Shared;
use super::program::ExitCodes;
use super::runner::Runners;
use super::settings::Reuse;
use super::world::World;
use crate::delivery::hold::HoldRoom;
use crate::delivery::millis::millis;
use crate::grants::Import;

/// A handler that can be called.
pub(crate) struct Loaded {
    pub(crate) runners: Runners,
    pub(crate) shared: Shared,
    pub(crate) reuse: Reuse,
    /// Unique in this process.
    pub(crate) generation: u64,
    pub(crate) description: Description,
    pub(crate) room: HoldRoom,
}

/// The properties of a component.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Description {
    /// The interface that the host calls, such as `hostler:handler/message-handler@1.0.0`.
    pub interface: String,
    /// Whether the handler takes single messages or batches.
    #[serde(skip)]
    pub world: World,
    /// All exports.
    pub exports: Vec<String>,
    /// All imports, with their requirements.
    pub imports: Vec<Import>,
    /// Bytes of the file.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// The time to compile, or to read the cached code; in JSON in milliseconds.
    #[serde(rename = "compile_ms", serialize_with = "as_millis")]
    pub compile: Duration,
    /// Whether the code came from the cache.
    pub cached: bool,
    /// Linear memories of one instance.
    pub memories: u32,
    /// Initial bytes of the largest memory.
    #[serde(rename = "memory_initial_bytes")]
    pub memory_initial: u64,
    /// Tables of one instance.
    pub tables: u32,
    /// Initial elements of the largest table.
    #[serde(rename = "table_initial_elements")]
    pub table_initial: u64,
    /// Whether instances come from a pool; false = memory is mapped for each instance.
    pub pooling: bool,
    /// What an instance runs before its first message: in JSON `short`, `snapshot` or `whole`.
    pub start: Start,
    /// For a program: its exit codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_codes: Option<ExitCodes>,
}

fn as_millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(millis(*time))
}

/// What each instance of a component runs before its first message.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Nothing, or so little that a snapshot would not pay.
    Short,
    /// It begins from a snapshot, and need not run these instructions.
    Snapshot {
        /// The instructions of the start.
        instructions: u64,
    },
    /// The whole start.
    Whole {
        /// The reason why hostler made no snapshot.
        reason: String,
    },
}
