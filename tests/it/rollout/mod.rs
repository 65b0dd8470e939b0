//! Versions: swaps, canaries, rollbacks.

mod swap_batch;
mod swap_deploy;
mod swap_file;
mod swap_line;
mod swap_pace;
mod swap_rules;
pub(crate) mod swap_scene;
pub(crate) mod swap_storm;
mod swap_trials;
mod swap_verdicts;
mod swap_versions;
