//! Dead letters.

mod dlq_api;
mod dlq_calls;
mod dlq_commands;
mod dlq_debug;
mod dlq_docs;
mod dlq_filters;
mod dlq_guard;
mod dlq_log;
mod dlq_maxlen;
mod dlq_peek;
mod dlq_reasons;
mod dlq_replay;
pub(crate) mod dlq_scene;
mod dlq_slots;
mod dlq_trial;
