//! A handler that charges orders, and publishes an invoice for each. `order.rs` reads an order;
//! `payments.rs` asks the payment server; this file connects them to hostler.

mod order;
mod payments;

wit_bindgen::generate!({
    path: "wit",
    world: "charge",
    generate_all,
    additional_derives: [PartialEq],
});

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::publisher::{Outgoing, publish};
use hostler::handler::types::{Message, Outcome};

use order::Order;

struct Charge;

impl Guest for Charge {
    fn handle(message: Message) -> Outcome {
        match charge(&message.body) {
            Ok(charge) => {
                // Standard output goes to the host's log.
                println!("charged: {charge}");
                Outcome::Ack
            }
            Err(outcome) => outcome,
        }
    }
}

/// Charge an order and publish its invoice; else, what becomes of the message.
fn charge(body: &[u8]) -> Result<String, Outcome> {
    let order = Order::parse(body).map_err(reject)?;
    let charge = payments::charge(&order)?;
    // This happens with the acknowledgement, exactly once. If this attempt fails after all, the next
    // one sends the same idempotency key, gets the same charge, and publishes the invoice.
    let invoice = Outgoing {
        body: order.invoice(&charge),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        delay_ms: None,
    };
    publish("invoices", &invoice).map_err(|error| {
        // The host may hold too much for now. The order is charged: it must not be given up here.
        eprintln!(
            "the invoice of order {} cannot be published: {error}",
            order.id
        );
        Outcome::NackRequeue(None)
    })?;
    Ok(charge)
}

fn reject(reason: String) -> Outcome {
    Outcome::Drop(Some(reason))
}

export!(Charge);
