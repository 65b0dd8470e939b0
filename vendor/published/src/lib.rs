//! Holds a lock file: see `Cargo.toml`.
