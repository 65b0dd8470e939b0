//! Verifies the signature of a webhook, and passes each event on once, with its action.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use hostler_handler::{Drop, Error, Message, Publication, handler, key_value, secret};
use serde_json::Value;
use sha2::Sha256;

#[handler]
fn receive(body: Vec<u8>, message: &Message) -> Result<(), Error> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret("webhook")?.as_bytes())?;
    mac.update(&body);
    let signature = message.headers.get("x-hub-signature-256").and_then(|text| text.strip_prefix("sha256="));
    let signature = hex::decode(signature.unwrap_or_default()).unwrap_or_default();
    mac.verify_slice(&signature).map_err(|_| Drop("the signature is wrong".to_owned()))?;
    let event: Value = serde_json::from_slice(&body).map_err(|error| Drop(error.to_string()))?;
    let seen = format!("seen:{}", event["id"].as_str().ok_or("an event without an id")?);
    if key_value::get(&seen)?.is_some() {
        return Ok(());
    }
    key_value::set_for(&seen, "1", Duration::from_secs(86_400))?;
    let action = event["action"].as_str().unwrap_or_default().to_owned();
    let headers = vec![("action".to_owned(), action)];
    Publication { body, headers, delay: None }.publish("events")
}
