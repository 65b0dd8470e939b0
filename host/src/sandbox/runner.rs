//! The engines that run a handler: one for each thread that runs attempts.
//!
//! Threads that share an engine write to the same cache lines at each call: its counts of references, and
//! the locks of its pool. So each thread has an engine of its own, with its own pool. The engines share the
//! memory of the compiled code. A thread whose pool is full takes an instance from another one.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wasmtime::Engine;
use wasmtime::component::InstancePre;

use super::host::{Host, Shared};
use super::world::Export;

/// An engine, and the handler in it. It has cache lines of its own: each call of its thread writes to it.
#[repr(align(128))]
pub(crate) struct Runner {
    pub(crate) engine: Engine,
    pub(crate) pre: InstancePre<Host>,
    /// The index of an export is valid for one loaded component only.
    pub(crate) export: Export,
    pub(crate) shared: Arc<Shared>,
    /// The instances that exist.
    pub(crate) instances: AtomicUsize,
}

/// All runners of a handler: at least one.
pub(crate) struct Runners {
    pub(crate) all: Box<[Arc<Runner>]>,
    /// The most instances of each.
    pub(crate) room: usize,
}

impl Runners {
    /// Room for an instance: with the runner of this thread, or with the next one that has room. If none has,
    /// the instance waits for one of this thread's runner.
    pub(crate) fn reserve(&self) -> Reserved {
        let (before, own) = self.all.split_at(thread_number() % self.all.len());
        let has_room = |runner: &&Arc<Runner>| {
            let full = runner.instances.fetch_add(1, Ordering::Relaxed) >= self.room;
            if full {
                runner.instances.fetch_sub(1, Ordering::Relaxed);
            }
            !full
        };
        let found = own.iter().chain(before).find(has_room);
        Reserved(Arc::clone(found.unwrap_or_else(|| {
            own[0].instances.fetch_add(1, Ordering::Relaxed);
            &own[0]
        })))
    }
}

/// The runner of one instance. It counts as an instance of that runner until it is dropped.
pub(crate) struct Reserved(Arc<Runner>);

impl Deref for Reserved {
    type Target = Runner;

    fn deref(&self) -> &Runner {
        &self.0
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Threads are numbered in the order in which they ask.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
