//! What leaves a queue.

pub mod scripts;
