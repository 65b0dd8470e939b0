//! Scenes of the hand-over between the driver and the slots, for shuttle: it runs the threads of a scene in many
//! orders, and fails when an assertion does, or when all threads wait for each other.
//!
//! The crate `hostler-handover` is the host's, on the locks and atomics of shuttle.

pub mod scenes;
