//! The work of the commands that help to write a handler: a project, its build, its tests, its speed.
//!
//! | file | what it does |
//! |---|---|
//! | [`new`] | a project for a handler: `hostler new` |
//! | [`dev`] | builds it, runs it beside Redis, and swaps it when a source changes: `hostler dev` |
//! | [`demo`] | a queue at work, to look at: `hostler demo` |
//! | [`test`] | runs it against a table of messages: `hostler test` |
//! | [`bench`] | measures it: `hostler bench` |
//! | [`again`] | runs a dead attempt again: `hostler dlq debug` |
//! | [`attempt`] | one attempt without a queue, and its outcome in words |
//! | [`effects`] | what an attempt would publish and set |
//! | [`message`], [`text`] | messages from files and tables; foreign text on a line of a terminal |
//!
//! This room prints nothing: `cli` parses, calls it, and prints what it returns or reports on the way.

pub mod again;
pub mod attempt;
pub mod bench;
pub mod demo;
pub mod dev;
pub mod effects;
mod error;
pub mod message;
pub mod new;
pub mod test;
pub mod text;

pub use error::Error;
