//! Acknowledges batches: the least a handler of batches can do, so that benchmarks measure the host.

wit_bindgen::generate!({ path: "../../../wit", world: "batch" });

use exports::hostler::handler::batch_handler::Guest;
use hostler::handler::types::{Message, Outcome};

struct AckBatch;

impl Guest for AckBatch {
    fn handle_batch(messages: Vec<Message>) -> Vec<Outcome> {
        messages.iter().map(|_| Outcome::Ack).collect()
    }
}

export!(AckBatch);
