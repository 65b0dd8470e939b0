//! Decides about an order. This file does not depend on WebAssembly, so `cargo test` runs it directly.

use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Deserializer};

use crate::hostler::handler::types::Outcome;

/// The longest delay between two attempts, in milliseconds.
const DELAY_MAX: u64 = 10_000;

#[derive(Debug, Deserialize)]
struct Order {
    #[serde(deserialize_with = "text")]
    id: String,
    #[serde(deserialize_with = "number")]
    amount: f64,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    status: Option<String>,
    /// What to simulate: `payment-timeout`, `random` or `crash`.
    #[serde(default)]
    simulate: Option<String>,
    /// How many attempts fail with `payment-timeout`.
    #[serde(default = "once")]
    failures: u32,
}

/// Charge an order. `attempt` is 1 the first time.
pub fn handle(body: &[u8], attempt: u32) -> Outcome {
    let Some(order) = parse(body) else {
        return reject("not an order".to_owned());
    };
    if let Err(reason) = check(&order) {
        return reject(format!("order {}: {reason}", order.id));
    }
    match order.simulate.as_deref() {
        Some("payment-timeout") if attempt <= order.failures => {
            Outcome::NackRequeue(Some(delay(attempt)))
        }
        // No other message gets this number.
        Some("random") => reject(format!("order {}: drew {}", order.id, random())),
        // A bug that a second attempt does not cure. The host counts a failed attempt.
        Some("crash") => panic!("order {} hit a bug", order.id),
        _ => Outcome::Ack,
    }
}

/// Parse an order. A body with bytes that are not UTF-8 is never an order.
fn parse(body: &[u8]) -> Option<Order> {
    let text = str::from_utf8(body).ok()?;
    // Serde would also accept an array of the fields.
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let order: Order = serde_json::from_str(text).ok()?;
    (!order.id.is_empty()).then_some(order)
}

fn check(order: &Order) -> Result<(), String> {
    if !(order.amount > 0.0) {
        return Err("nothing to charge".to_owned());
    }
    let currency = order.currency.as_deref().unwrap_or("EUR");
    if !(currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase())) {
        return Err(format!("`{currency}` is not a currency"));
    }
    match order.status.as_deref() {
        Some("cancelled") => Err("it was cancelled".to_owned()),
        _ => Ok(()),
    }
}

fn reject(reason: String) -> Outcome {
    Outcome::Drop(Some(reason))
}

/// The delay doubles after every attempt.
fn delay(attempt: u32) -> u64 {
    let doublings = attempt.saturating_sub(1).min(10);
    (100 << doublings).min(DELAY_MAX)
}

/// A random number. The standard library draws such numbers for its hash maps.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

fn once() -> u32 {
    1
}

/// `XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`, so text and numbers are
/// accepted.
#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Number(serde_json::Number),
    Text(String),
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Either::deserialize(from)? {
        Either::Number(number) => number.to_string(),
        Either::Text(text) => text,
    })
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    // Only JSON numbers: no `inf`, no `1_000`.
    serde_json::from_str(&text(from)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(reason: &str) -> Outcome {
        Outcome::Drop(Some(reason.to_owned()))
    }

    #[test]
    fn a_good_order_is_acked() {
        let body = br#"{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid"}"#;
        assert_eq!(handle(body, 1), Outcome::Ack);
    }

    #[test]
    fn the_fields_of_a_stream_entry_are_accepted() {
        assert_eq!(handle(br#"{"id":"1","amount":"5"}"#, 1), Outcome::Ack);
        assert_eq!(handle(br#"{"id":1,"amount":5}"#, 1), Outcome::Ack);
    }

    #[test]
    fn a_payment_that_times_out_is_tried_again_with_growing_delays() {
        let body = br#"{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":3}"#;
        assert_eq!(handle(body, 1), Outcome::NackRequeue(Some(100)));
        assert_eq!(handle(body, 2), Outcome::NackRequeue(Some(200)));
        assert_eq!(handle(body, 3), Outcome::NackRequeue(Some(400)));
        assert_eq!(handle(body, 4), Outcome::Ack);
    }

    #[test]
    fn the_delay_has_a_limit() {
        assert_eq!(delay(1), 100);
        assert_eq!(delay(u32::MAX), DELAY_MAX);
    }

    #[test]
    fn bodies_that_are_not_orders_are_dropped() {
        let bodies: [&[u8]; 9] = [
            b"",
            b"hello",
            b"[]",
            b"null",
            br#"{"id":"o-3"}"#,
            br#"{"id":"","amount":1}"#,
            br#"{"id":"o-3","amount":"inf"}"#,
            br#"["o-3",1,"EUR",null,null,1]"#,
            b"{\"id\":\"o-3\",\"amount\":1,\"note\":\"\xff\"}",
        ];
        for body in bodies {
            assert_eq!(handle(body, 1), dropped("not an order"));
        }
    }

    #[test]
    fn orders_that_cannot_be_charged_are_dropped_with_a_reason() {
        let cases = [
            (r#"{"id":"o-4","amount":0}"#, "order o-4: nothing to charge"),
            (
                r#"{"id":5,"amount":1,"status":"cancelled"}"#,
                "order 5: it was cancelled",
            ),
            (
                r#"{"id":"o-6","amount":1,"currency":"euros"}"#,
                "order o-6: `euros` is not a currency",
            ),
        ];
        for (body, reason) in cases {
            assert_eq!(handle(body.as_bytes(), 1), dropped(reason));
        }
    }

    #[test]
    fn a_bug_crashes() {
        let body = br#"{"id":"o-7","amount":1,"simulate":"crash"}"#;
        assert!(std::panic::catch_unwind(|| handle(body, 1)).is_err());
    }
}
