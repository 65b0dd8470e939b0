//! Messages and keys that leave with the acknowledgement.

mod effects_batch;
mod effects_dedup;
mod effects_docs;
mod effects_exactly_once;
pub(crate) mod effects_outbox;
mod effects_outbox_cluster;
pub(crate) mod effects_publish;
mod effects_rules;
mod producers_docs;
mod publish_later;
mod publish_pipeline;
mod publish_words;
