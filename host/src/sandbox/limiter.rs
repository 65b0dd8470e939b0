//! Counts what an instance holds, and remembers what it was denied.

use wasmtime::ResourceLimiter;

use super::limits::Limits;

/// Core instances of one component. Interpreters and adapters have some dozen; each may cost the
/// host memory that no other limit counts.
pub(super) const CORE_INSTANCES: usize = 256;

/// What an instance was denied during a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Denied {
    /// Bytes of linear memory, in all.
    Memory { wanted: usize },
    /// Elements of tables, in all.
    Table { wanted: usize },
}

/// One instance's memory and tables, all of them together.
#[derive(Debug)]
pub(super) struct Limiter {
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
    /// Whether it may grow from `current` to `desired`; else what that would make in all.
    ///
    /// A growth that fails in spite of our consent (the kernel has no memory) stays counted: that
    /// errs on the safe side, and the instance is unlikely to outlive it.
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
            // The guest's own bound, not ours: it fails without being denied by us.
            return Ok(false);
        }
        self.used = total;
        Ok(true)
    }
}

impl Limiter {
    pub(super) fn new(limits: &Limits) -> Self {
        let counter = |limit| Counter { used: 0, limit };
        Self {
            memory: counter(limits.memory),
            tables: counter(limits.table_elements),
            denied: None,
        }
    }

    /// A new call begins: what was denied in the last one is forgotten.
    pub(super) fn begin_call(&mut self) {
        self.denied = None;
    }

    pub(super) fn denied(&self) -> Option<Denied> {
        self.denied
    }

    /// Bytes of linear memory. They never shrink while the instance lives.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory.used
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.memory
            .grow(current, desired, maximum)
            .or_else(|wanted| {
                self.denied = Some(Denied::Memory { wanted });
                Ok(false)
            })
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.tables
            .grow(current, desired, maximum)
            .or_else(|wanted| {
                self.denied = Some(Denied::Table { wanted });
                Ok(false)
            })
    }
}
