//! The payment server. The host connects to it, and adds two headers that this handler never sees: the
//! credential, and an idempotency key, which is the same in every attempt at a message.

use serde::Deserialize;

use crate::hostler::handler::http::{Error, Request, Response, fetch};
use crate::hostler::handler::types::Outcome;
use crate::order::Order;
use crate::reject;
use crate::wasi::config::store;

/// What the server answers.
#[derive(Deserialize)]
struct Charged {
    charge: String,
}

/// Charge an order: the id of the charge. Else, what becomes of the message.
pub fn charge(order: &Order) -> Result<String, Outcome> {
    let server = store::get("payments").ok().flatten();
    let server = server.ok_or_else(|| reject("`payments` is not configured".to_owned()))?;
    let request = Request {
        method: "POST".to_owned(),
        url: format!("{server}/v1/charges"),
        headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
        body: Some(order.payment()),
        timeout_ms: Some(2_000),
    };
    answer(&order.id, fetch(&request))
}

/// What an answer means for the order.
fn answer(id: &str, answer: Result<Response, Error>) -> Result<String, Outcome> {
    let dropped = |reason: &str| Err(reject(format!("order {id}: {reason}")));
    match answer {
        Ok(Response {
            status: 200, body, ..
        }) => match serde_json::from_slice(&body) {
            Ok(Charged { charge }) => Ok(charge),
            Err(_) => dropped("the payment server gave no receipt"),
        },
        Ok(Response { status: 402, .. }) => dropped("the card was declined"),
        // It is busy or down, or its answer was lost: a later attempt asks again, with the same key.
        Ok(Response {
            status: 429 | 500..,
            ..
        })
        | Err(Error::Timeout | Error::Dns(_) | Error::Connect(_) | Error::Protocol(_)) => {
            Err(Outcome::NackRequeue(None))
        }
        Ok(Response { status, .. }) => dropped(&format!("the payment server said {status}")),
        Err(error) => dropped(&format!("{error:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: &str) -> Result<Response, Error> {
        Ok(Response {
            status,
            headers: Vec::new(),
            body: body.into(),
        })
    }

    #[test]
    fn only_an_answer_that_a_later_attempt_can_change_is_asked_for_again() {
        let charged = response(200, r#"{"charge":"ch_1"}"#);
        assert_eq!(answer("o", charged), Ok("ch_1".to_owned()));
        for later in [
            response(503, ""),
            response(429, ""),
            Err(Error::Timeout),
            Err(Error::Connect(String::new())),
            Err(Error::Protocol(String::new())),
        ] {
            assert_eq!(answer("o", later), Err(Outcome::NackRequeue(None)));
        }
        for (never, reason) in [
            (response(402, ""), "order o: the card was declined"),
            (response(404, ""), "order o: the payment server said 404"),
            (
                response(200, "?"),
                "order o: the payment server gave no receipt",
            ),
        ] {
            assert_eq!(answer("o", never), Err(reject(reason.to_owned())));
        }
    }
}
