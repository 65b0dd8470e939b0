//! The tests.

mod loop_stream;
