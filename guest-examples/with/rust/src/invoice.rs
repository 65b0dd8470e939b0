// @with publish
//! Publishes an invoice.

use crate::hostler::handler::publisher::{self, Outgoing};
use crate::hostler::handler::types::Outcome;
use crate::later;
use crate::order::Order;

/// The invoice appears together with the acknowledgement: once for each order, or not at all.
pub fn publish(order: &Order) -> Result<(), Outcome> {
    let invoice = Outgoing {
        body: order.json().into_bytes(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        delay_ms: None,
    };
    publisher::publish("invoices", &invoice).map_err(|why| later(&why))
}
// @end
