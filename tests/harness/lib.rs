//! The harness of the tests.

pub mod adapters;
pub mod checker;
pub mod cluster;
pub mod collector;
pub mod command;
pub mod dns;
pub mod guests;
pub mod host;
pub mod inprocess;
pub mod proxy;
pub mod redis;
pub mod rig;
pub mod sentinel;
pub mod skew;
pub mod terminal;
pub mod tls;
pub mod versions;
pub mod web;
pub mod witness;
