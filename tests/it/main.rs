//! The tests. `make test` runs more of them at the same time than there are cores. A test that compares times
//! or memory is in a module `measured` of its file: `make test` runs those alone, one after the other. A test in
//! a module `long` runs in `make test-all` only: CONTRIBUTING.md lists them, and what is in their place in
//! `make test`.

#[cfg(test)]
mod cli;
#[cfg(test)]
mod config;
#[cfg(test)]
mod dead_letter;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod outgoing;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod redis;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod ui;
