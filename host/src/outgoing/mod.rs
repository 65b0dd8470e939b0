//! What leaves a queue: what handlers publish and write, with the acknowledgement of their message or not at all.
//!
//! - [`effects`]: the acknowledgement of deliveries with what their attempts published and wrote.
//! - `write`: one thing that is written.
//! - [`outbox`]: the way to destinations in other slots.
//! - [`dedup`]: the marks of messages that were handled.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::publish::Destination;

pub mod dedup;
pub(crate) mod effects;
pub mod outbox;
pub mod scripts;
pub(crate) mod write;

/// The destinations of a handler, by the names that it uses.
pub type Outlets = Arc<BTreeMap<String, Destination>>;
