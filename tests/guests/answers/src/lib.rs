//! Answers by the first byte of the body, and does nothing else: so that benchmarks measure what an answer costs.
//! `n`: another attempt, always. `p`: another attempt after 1 ms, once. `d`: drop. Any other byte: ack.

wit_bindgen::generate!({ path: "../../../wit", world: "handler" });

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::types::{Message, Outcome};

struct Answers;

impl Guest for Answers {
    fn handle(message: Message) -> Outcome {
        match message.body.first() {
            Some(b'n') => Outcome::NackRequeue(None),
            Some(b'p') if message.attempt == 1 => Outcome::NackRequeue(Some(1)),
            Some(b'd') => Outcome::Drop(None),
            _ => Outcome::Ack,
        }
    }
}

export!(Answers);
