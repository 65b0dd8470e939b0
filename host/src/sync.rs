//! Locks and atomics of the files that `tests/interleavings` builds a second time. There, this module has those of
//! shuttle, which runs the threads in many orders.

pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, atomic};
