//! Calls of handlers: keys, HTTP, TCP, secrets.

mod effects_key_value;
mod effects_key_value_checked;
mod example_charge;
mod journal;
mod journal_failover;
mod journal_kills;
mod journal_worlds;
mod outbound_adaptive;
mod outbound_hostile;
mod outbound_http;
mod outbound_names;
mod outbound_queue;
pub(crate) mod outbound_scene;
mod outbound_secrets;
