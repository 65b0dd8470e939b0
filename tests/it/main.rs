//! The tests.

mod sandbox_call;
mod sandbox_examples;
mod sandbox_limits;
mod sandbox_load;
mod sandbox_logs;
