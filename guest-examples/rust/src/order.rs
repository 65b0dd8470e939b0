//! What happens to an order. Nothing here knows WebAssembly: `cargo test` runs it as it is.

use serde::{Deserialize, Deserializer};

use crate::hostler::handler::types::Outcome;

/// The longest wait between two attempts, in milliseconds.
const DELAY_MAX: u64 = 10_000;

#[derive(Debug, Deserialize)]
struct Order {
    #[serde(deserialize_with = "text")]
    id: String,
    #[serde(deserialize_with = "number")]
    amount: f64,
    #[serde(default = "euro")]
    currency: String,
    #[serde(default)]
    status: Option<String>,
    /// What goes wrong, to try things out: `payment-timeout` or `crash`.
    #[serde(default)]
    simulate: Option<String>,
    /// How many attempts `payment-timeout` fails.
    #[serde(default = "once")]
    failures: u32,
}

/// Charge an order. `attempt` is 1 the first time.
pub fn handle(body: &[u8], attempt: u32) -> Outcome {
    let order: Order = match serde_json::from_slice(body) {
        Ok(order) => order,
        Err(error) => return reject(format!("not an order: {error}")),
    };
    if let Err(reason) = check(&order) {
        return reject(format!("order {}: {reason}", order.id));
    }
    match order.simulate.as_deref() {
        Some("payment-timeout") if attempt <= order.failures => {
            Outcome::NackRequeue(Some(delay(attempt)))
        }
        // A bug that no second attempt cures: the host counts it as a failed attempt.
        Some("crash") => panic!("order {} hit a bug", order.id),
        _ => Outcome::Ack,
    }
}

fn check(order: &Order) -> Result<(), String> {
    if order.id.is_empty() {
        return Err("it has no id".to_owned());
    }
    if !(order.amount.is_finite() && order.amount > 0.0) {
        return Err(format!("nothing to charge, the amount is {}", order.amount));
    }
    if order.currency.len() != 3 {
        return Err(format!("`{}` is no currency", order.currency));
    }
    match order.status.as_deref() {
        Some("cancelled") => Err("it was cancelled".to_owned()),
        _ => Ok(()),
    }
}

fn reject(reason: String) -> Outcome {
    Outcome::Drop(Some(reason))
}

/// Twice as long after every attempt.
fn delay(attempt: u32) -> u64 {
    let doublings = attempt.saturating_sub(1).min(10);
    (100 << doublings).min(DELAY_MAX)
}

fn euro() -> String {
    "EUR".to_owned()
}

fn once() -> u32 {
    1
}

/// `XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`: text or number, both will do.
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
    text(from)?.parse().map_err(serde::de::Error::custom)
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
    fn the_fields_of_a_stream_entry_will_do() {
        assert_eq!(handle(br#"{"id":"1","amount":"5"}"#, 1), Outcome::Ack);
        assert_eq!(handle(br#"{"id":1,"amount":5}"#, 1), Outcome::Ack);
    }

    #[test]
    fn a_payment_that_times_out_is_tried_again_and_later_each_time() {
        let body = br#"{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":3}"#;
        assert_eq!(handle(body, 1), Outcome::NackRequeue(Some(100)));
        assert_eq!(handle(body, 2), Outcome::NackRequeue(Some(200)));
        assert_eq!(handle(body, 3), Outcome::NackRequeue(Some(400)));
        assert_eq!(handle(body, 4), Outcome::Ack);
    }

    #[test]
    fn no_wait_is_too_long() {
        assert_eq!(delay(1), 100);
        assert_eq!(delay(u32::MAX), DELAY_MAX);
    }

    #[test]
    fn what_is_no_order_is_dropped_with_the_reason() {
        assert_eq!(
            handle(b"hello", 1),
            dropped("not an order: expected value at line 1 column 1")
        );
        assert_eq!(
            handle(br#"{"id":"o-3"}"#, 1),
            dropped("not an order: missing field `amount` at line 1 column 12")
        );
    }

    #[test]
    fn what_can_not_be_charged_is_dropped_with_the_reason() {
        let cases = [
            (
                r#"{"id":"o-4","amount":0}"#,
                "order o-4: nothing to charge, the amount is 0",
            ),
            (
                r#"{"id":"o-5","amount":1,"status":"cancelled"}"#,
                "order o-5: it was cancelled",
            ),
            (
                r#"{"id":"o-6","amount":1,"currency":"euros"}"#,
                "order o-6: `euros` is no currency",
            ),
            (r#"{"id":"","amount":1}"#, "order : it has no id"),
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
