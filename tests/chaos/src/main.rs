//! The fault suite.
fn main() {}
