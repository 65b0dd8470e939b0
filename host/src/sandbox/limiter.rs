//! Limits the memory and tables of an instance, and records the last denied request.

use hostler_components::CORE_INSTANCES;
use wasmtime::ResourceLimiter;

use super::limits::Limits;

/// The most linear memories of one component. Each takes a descriptor, and mappings in each instance.
pub(crate) const MEMORIES: u32 = 32;

/// The most tables of one component. Each takes address space for `table_elements` in each instance.
pub(crate) const TABLES: u32 = 64;

/// A request that was denied during a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Denied {
    /// Bytes of linear memory in total.
    Memory(usize),
    /// Table elements in total.
    Table(usize),
}

/// An instance wants another descriptor, and holds as many as it may.
#[derive(Debug, thiserror::Error)]
#[error("more than {0} open files, directories and sockets at a time")]
pub(crate) struct TooManyDescriptors(pub(crate) usize);

/// The total memory and tables of one instance.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: Counter,
    tables: Counter,
    denied: Option<Denied>,
}

#[derive(Debug)]
struct Counter {
    used: usize,
    limit: usize,
}

impl Counter {
    /// Whether growth from `current` to `desired` is allowed; `Err` = the total is over the limit.
    ///
    /// Allowed growth that fails because the kernel has no memory stays counted: the instance is
    /// unlikely to survive it.
    fn grow(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool, usize> {
        let total = self.used.saturating_add(desired.saturating_sub(current));
        if total > self.limit {
            return Err(total);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            // The guest's own bound: the growth fails, but is not denied by a limit.
            return Ok(false);
        }
        self.used = total;
        Ok(true)
    }
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let counter = |limit| Counter { used: 0, limit };
        Self {
            memory: counter(limits.memory),
            tables: counter(limits.table_elements),
            denied: None,
        }
    }

    /// Start a call: clear the denied request.
    pub(crate) fn begin_call(&mut self) {
        self.denied = None;
    }

    /// Note a request that is over a limit. Returns whether it is allowed.
    fn note(&mut self, grown: Result<bool, usize>, denied: fn(usize) -> Denied) -> bool {
        self.denied = grown.err().map(denied).or(self.denied);
        grown.unwrap_or(false)
    }

    pub(crate) fn denied(&self) -> Option<Denied> {
        self.denied
    }

    /// Bytes of linear memory. They never shrink.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.used
    }

    /// Elements of all tables.
    pub(crate) fn table_elements(&self) -> usize {
        self.tables.used
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = self.memory.grow(current, desired, maximum);
        Ok(self.note(grown, Denied::Memory))
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = self.tables.grow(current, desired, maximum);
        Ok(self.note(grown, Denied::Table))
    }
}
