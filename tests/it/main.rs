//! The tests.

#[cfg(test)]
mod embedded_server;
#[cfg(test)]
mod publish_pipeline;
