//! Streams, lists and Pub/Sub on real servers.

mod large_messages;
mod list_cli;
mod list_loop;
mod list_lost_replies;
mod list_queue;
mod list_recovery;
pub(crate) mod list_scene;
mod list_settle;
mod list_skew;
mod list_values;
pub(crate) mod once_scene;
mod pubsub;
pub(crate) mod queue_connection;
mod queue_contract;
mod queue_faults;
mod queue_hold;
mod queue_journal;
mod queue_limits;
mod queue_lost_replies;
pub(crate) mod queue_scene;
mod queue_startup;
mod queue_stream;
mod queue_terms;
mod queue_upkeep;
mod simple_list;
