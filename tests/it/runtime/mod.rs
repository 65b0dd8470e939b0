//! The loop, end to end.

mod e2e_batch;
mod e2e_cancel;
mod e2e_crash;
mod e2e_delay;
mod e2e_drain;
mod e2e_group;
mod e2e_hold;
mod e2e_lease;
mod e2e_limit;
mod e2e_load;
mod e2e_log;
mod e2e_outcomes;
mod e2e_permits;
mod e2e_refused;
mod e2e_reply;
mod e2e_retention;
pub(crate) mod e2e_sandbox;
pub(crate) mod e2e_scene;
mod e2e_start;
pub(crate) mod runtime_loop;

/// Files of which `make test` runs no test.
#[path = "."]
mod long {
    mod limit_fairness;
}
