//! The history that a dead letter carries, and cycles.
