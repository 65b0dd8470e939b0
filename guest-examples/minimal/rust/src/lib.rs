//! A handler: it acks every message.

wit_bindgen::generate!({
    path: "wit",
    world: "handler",
});

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::types::{Message, Outcome};

struct Handler;

impl Guest for Handler {
    fn handle(_message: Message) -> Outcome {
        Outcome::Ack
    }
}

export!(Handler);
