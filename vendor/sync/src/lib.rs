//! The locks, atomics and waits of `hostler-handover`: those of std and tokio, or those of shuttle, which runs the
//! threads of a test in many orders.

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Mutex, MutexGuard, RwLock, atomic};
#[cfg(feature = "shuttle")]
pub use shuttle_tokio as tokio;

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Mutex, MutexGuard, RwLock, atomic};
#[cfg(not(feature = "shuttle"))]
pub use tokio;
