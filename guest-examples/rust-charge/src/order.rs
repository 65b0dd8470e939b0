//! An order. This file does not depend on WebAssembly, so `cargo test` runs it directly.

use serde::Deserialize;
use serde_json::json;

/// The largest amount, in cents: a float holds every number below exactly.
const CENTS_MAX: f64 = 1e15;

/// An order that can be charged.
#[derive(Debug, Deserialize)]
pub struct Order {
    /// Its number.
    pub id: String,
    #[serde(default)]
    customer: String,
    amount: f64,
    currency: String,
    /// The card that pays: what the payment server knows it by.
    pub card: String,
    #[serde(default)]
    status: Option<String>,
}

impl Order {
    /// Read and check an order; else, the reason.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let order: Self = serde_json::from_slice(body).map_err(|_| "not an order".to_owned())?;
        let because = |reason: &str| Err(format!("order {}: {reason}", order.id));
        if order.status.as_deref() == Some("cancelled") {
            return because("it was cancelled");
        }
        if !(1.0..=CENTS_MAX).contains(&order.amount_in_cents()) {
            return because("nothing to charge");
        }
        let is_currency = order.currency.len() == 3
            && order.currency.bytes().all(|byte| byte.is_ascii_uppercase());
        if !is_currency {
            return because("that is not a currency");
        }
        Ok(order)
    }

    fn amount_in_cents(&self) -> f64 {
        (self.amount * 100.0).round()
    }

    /// What the payment server is asked to do.
    pub fn payment(&self) -> Vec<u8> {
        json!({
            "order": self.id,
            "cents": self.amount_in_cents() as u64,
            "currency": self.currency,
            "card": self.card,
        })
        .to_string()
        .into_bytes()
    }

    /// The invoice for this charge.
    pub fn invoice(&self, charge: &str) -> Vec<u8> {
        json!({
            "order": self.id,
            "customer": self.customer,
            "cents": self.amount_in_cents() as u64,
            "currency": self.currency,
            "charge": charge,
        })
        .to_string()
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_becomes_a_payment_and_an_invoice() {
        let body = br#"{"id":"o-1","customer":"Ada","amount":58.9,"currency":"EUR","card":"good"}"#;
        let order = Order::parse(body).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!(
            text(order.payment()),
            r#"{"card":"good","cents":5890,"currency":"EUR","order":"o-1"}"#
        );
        assert_eq!(
            text(order.invoice("ch_1")),
            r#"{"cents":5890,"charge":"ch_1","currency":"EUR","customer":"Ada","order":"o-1"}"#
        );
    }

    #[test]
    fn orders_that_cannot_be_charged_have_a_reason() {
        for (body, reason) in [
            ("hello", "not an order"),
            (r#"{"id":"o-2","amount":1}"#, "not an order"),
            (
                r#"{"id":"o-3","amount":0,"currency":"EUR","card":"good"}"#,
                "order o-3: nothing to charge",
            ),
            (
                r#"{"id":"o-4","amount":1e300,"currency":"EUR","card":"good"}"#,
                "order o-4: nothing to charge",
            ),
            (
                r#"{"id":"o-5","amount":1,"currency":"euros","card":"good"}"#,
                "order o-5: that is not a currency",
            ),
            (
                r#"{"id":"o-6","amount":1,"currency":"EUR","card":"good","status":"cancelled"}"#,
                "order o-6: it was cancelled",
            ),
        ] {
            assert_eq!(Order::parse(body.as_bytes()).unwrap_err(), reason, "{body}");
        }
    }
}
