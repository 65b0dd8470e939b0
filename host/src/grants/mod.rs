//! What an operator may grant to a handler: one folder for each grant.
//!
//! - `rules`: what the operator writes. `provider`: the trait of what is outside the sandbox, and what one attempt asks of it;
//!   beside it, what this host has for it. `link`: the interfaces of the guest. Interfaces of other hosts stand beside the
//!   one that they adapt.
//! - `grant`: how a grant is called, and what it gives. `imports`: which imports need which grant. `link`: links them.
//! - `providers`: what this host has, and the one place that chooses. `provided`: what a handler gets of it. `scope`,
//!   `context`, `steps`: what one attempt does, until it ends.
//! - `recorded`: answers that are recorded for a dead letter, or given again. `offline`: grants with nothing behind them.
//! - [`journal`]: the recorded answers to calls of a message. [`network`]: hosts and addresses in rules. [`name`]: names of rules. `denials`: events.
//!
//! Only links know WebAssembly, and a link knows the trait of its provider only.

pub mod configuration;
pub mod context;
mod denials;
pub mod files;
mod grant;
pub mod http;
pub(crate) mod imports;
pub mod journal;
pub mod key_value;
pub(crate) mod link;
pub mod name;
pub mod network;
mod offline;
mod provided;
mod providers;
pub mod publish;
pub(crate) mod recorded;
pub(crate) mod scope;
pub mod secrets;
pub(crate) mod steps;
pub mod tcp;

pub use grant::Grants;
pub use imports::{Import, Need};
pub use provided::Provided;
pub use providers::{Providers, Rules};
