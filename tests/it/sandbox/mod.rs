//! Components: limits, faults, worlds, languages.

mod fuzz_bodies;
pub(crate) mod js_promises;
mod language_conformance;
mod language_redis;
pub(crate) mod language_table;
mod programs;
mod programs_queue;
mod sandbox_adapters;
mod sandbox_batch;
mod sandbox_bombs;
mod sandbox_call;
pub(crate) mod sandbox_compile;
mod sandbox_corpus;
mod sandbox_examples;
mod sandbox_forgets;
mod sandbox_fuzz;
mod sandbox_grants;
mod sandbox_hostile;
mod sandbox_limits;
mod sandbox_load;
mod sandbox_logs;
mod sandbox_snapshot;
mod worlds;
mod worlds_queue;
mod worlds_table;

/// Files of which `make test` runs no test.
#[path = "."]
mod long {
    mod interop;
    mod worlds_real;
}
