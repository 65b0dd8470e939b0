//! As the host's.

#[path = "../../../host/src/rollout/read_mostly.rs"]
pub mod read_mostly;
