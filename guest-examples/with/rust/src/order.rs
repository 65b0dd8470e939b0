//! Reads orders. This file does not depend on WebAssembly, so `cargo test` runs it directly.

use serde::Deserialize;

/// An order, as a shop sends it.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Order {
    pub id: String,
    pub customer: String,
    pub cents: u32,
}

impl Order {
    /// Read an order. The error is the reason for dropping it.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let order: Self = serde_json::from_slice(body).map_err(|_| "not an order")?;
        if !is_name(&order.id) || !is_name(&order.customer) {
            return Err("not an order".to_owned());
        }
        match order.cents {
            0 => Err(format!("order {}: nothing to charge", order.id)),
            _ => Ok(order),
        }
    }

    /// What others get to know about it. Its names need no escapes.
    pub fn json(&self) -> String {
        let Self { id, customer, cents } = self;
        format!(r#"{{"order":"{id}","customer":"{customer}","cents":{cents}}}"#)
    }
}

/// Whether a text can be a part of a key: 1 to 64 letters, digits and `-`.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_written() {
        let order = Order::read(br#"{"id":"o-1","customer":"c-7","cents":4250,"note":"x"}"#);
        let json = r#"{"order":"o-1","customer":"c-7","cents":4250}"#;
        assert_eq!(order.unwrap().json(), json);
    }

    #[test]
    fn other_bodies_are_dropped_with_a_reason() {
        for (body, reason) in [
            ("", "not an order"),
            ("hello", "not an order"),
            (r#"{"id":"o-1","cents":1}"#, "not an order"),
            (r#"{"id":"o 1","customer":"c","cents":1}"#, "not an order"),
            (r#"{"id":"o","customer":"c","cents":-1}"#, "not an order"),
            (r#"{"id":"o","customer":"c","cents":0}"#, "order o: nothing to charge"),
        ] {
            assert_eq!(Order::read(body.as_bytes()), Err(reason.to_owned()), "{body}");
        }
    }
}
