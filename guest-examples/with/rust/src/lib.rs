//! A handler for orders. `order.rs` reads them; this file connects the parts to hostler.

// @with http
mod charge;
// @end
// @with publish
mod invoice;
// @end
mod order;
// @with secrets
mod shop;
// @end
// @with key-value
mod total;
// @end

wit_bindgen::generate!({ path: "wit", world: "handler", generate_all });

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::types::{Message, Outcome};
use order::Order;

struct Orders;

impl Guest for Orders {
    fn handle(message: Message) -> Outcome {
        match fulfil(&message) {
            Ok(()) => Outcome::Ack,
            Err(outcome) => outcome,
        }
    }
}

/// Do everything for an order. The error is the outcome of an order that is not done.
fn fulfil(message: &Message) -> Result<(), Outcome> {
    // @with secrets
    shop::check(message)?;
    // @end
    let order = Order::read(&message.body).map_err(|reason| Outcome::Drop(Some(reason)))?;
    // @with http
    charge::charge(&order)?;
    // @end
    // @with key-value
    total::add(&order)?;
    // @end
    // @with publish
    invoice::publish(&order)?;
    // @end
    // Standard output goes to the host's log.
    println!("done: {}", order.json());
    Ok(())
}

/// Something failed that may work later: the message comes again, after the backoff of the queue.
fn later(what: &str) -> Outcome {
    println!("later: {what}");
    Outcome::NackRequeue(None)
}

export!(Orders);
