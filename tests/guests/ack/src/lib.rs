//! Acknowledges everything: the least a handler can do, so that benchmarks measure the host.

wit_bindgen::generate!({ path: "../../../wit", world: "handler" });

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::types::{Message, Outcome};

struct Ack;

impl Guest for Ack {
    fn handle(_message: Message) -> Outcome {
        Outcome::Ack
    }
}

export!(Ack);
