//! What threads share their state by, for the files that `tests/interleavings` builds a second time: there this
//! module is of shuttle, which runs the threads in many orders.

pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, atomic};
