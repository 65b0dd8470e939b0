//! The fault suite. It drives the built binary and real servers by a seeded plan of faults, and judges what
//! happened: [`check`] knows what messages say and which faults there were, and nothing of hostler's code.

pub mod check;
pub mod fleet;
pub mod harvest;
pub mod history;
pub mod plan;
pub mod publisher;
pub mod report;
pub mod run;
pub mod script;
pub mod wire;
pub mod witness;
