//! The `hostler` binary.

fn main() {}
