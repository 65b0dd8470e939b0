// @with http
//! Charges an order by HTTP.

use crate::hostler::handler::http::{self, Request};
use crate::hostler::handler::types::Outcome;
use crate::later;
use crate::order::Order;

/// `hostler.toml` grants this URL.
const CHARGES: &str = "https://payments.example.com/charges";

/// hostler adds an idempotency key, the same in every attempt at this order: no order is paid twice.
pub fn charge(order: &Order) -> Result<(), Outcome> {
    let charged = http::fetch(&Request {
        method: "POST".to_owned(),
        url: CHARGES.to_owned(),
        headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
        body: Some(order.json().into_bytes()),
        timeout_ms: None,
    });
    match charged {
        Ok(response) if (200..300).contains(&response.status) => Ok(()),
        Ok(response) if (400..500).contains(&response.status) => {
            let (id, status) = (&order.id, response.status);
            let reason = format!("order {id}: the payment was declined ({status})");
            Err(Outcome::Drop(Some(reason)))
        }
        Ok(response) => Err(later(&format!("the payment server answered {}", response.status))),
        Err(error) => Err(later(&format!("the payment failed: {error:?}"))),
    }
}
// @end
