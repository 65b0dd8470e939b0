//! A handler for orders. `order.rs` decides; this file connects it to hostler.

mod order;

wit_bindgen::generate!({
    path: "wit",
    world: "handler",
    additional_derives: [PartialEq],
});

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::types::{Message, Outcome};

struct Orders;

impl Guest for Orders {
    fn handle(message: Message) -> Outcome {
        let outcome = order::handle(&message.body, message.attempt);
        // Standard output goes to the host's log.
        println!("attempt {}: {}", message.attempt, summary(&outcome));
        outcome
    }
}

fn summary(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ack => "charged".to_owned(),
        Outcome::NackRequeue(Some(delay)) => format!("payment timed out, again in {delay} ms"),
        Outcome::NackRequeue(None) => "payment timed out".to_owned(),
        Outcome::Drop(reason) => reason.clone().unwrap_or_default(),
    }
}

export!(Orders);
