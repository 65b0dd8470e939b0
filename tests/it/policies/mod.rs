//! Policies.

mod policy_commands;
mod policy_dead_letters;
mod policy_kinds;
mod policy_live;
mod policy_scene;
mod policy_unknown;
