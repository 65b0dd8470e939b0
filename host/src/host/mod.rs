//! From a configuration to a running host: open the queue, load the handler, run the loop, and follow
//! changes of the configuration, of policies and of the handler.
//!
//! | file | what it does |
//! |---|---|
//! | [`connect`] | connects to Redis, or starts the embedded server; waits until it answers |
//! | [`component`] | reads, compiles and loads the handler's file |
//! | [`settings`] | turns a [`crate::config::Config`] into the settings of the queue and of the loop |
//! | [`serve`] | `hostler run`: all of this together, until the host drains |
//! | [`config_watcher`] | live reload of the configuration file and of policies |
//! | [`rollout`] | new versions of the handler: from its file, and from deploys |
//! | `schedules` | reads the bodies of schedules; a task of the host publishes their ticks |
//! | `listing` | keeps the queue in the list of all queues |
//! | [`signals`], [`threads`] | how the process is stopped, and on which threads it runs |
//! | [`supervisor`] | notifies systemd when the host is ready, stopping or stuck |
//!
//! This room prints nothing. Its errors say what is wrong, what to do, and of which class they are;
//! `cli` turns classes into exit codes.

pub mod component;
pub mod config_watcher;
pub mod connect;
mod descriptors;
mod error;
mod listing;
pub mod rollout;
mod schedules;
pub mod serve;
pub mod settings;
pub mod signals;
pub mod supervisor;
pub mod threads;

pub use connect::{Connected, MayPass, retry};
pub use error::{Class, Error};
pub use serve::{Begin, Beginning, Ended, Served, serve, serve_with};
pub use signals::{ReloadSignals, StopSignal, StopSignals};
pub use threads::Threads;
