//! The tests.

#[cfg(test)]
mod embedded_server;
