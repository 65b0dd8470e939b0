//! The fault suite. It drives the built binary and real servers by a seeded plan of faults, and judges what
//! happened: [`check`] knows what messages say and which faults there were, and nothing of hostler's code.

pub mod check;
pub mod history;
pub mod script;
