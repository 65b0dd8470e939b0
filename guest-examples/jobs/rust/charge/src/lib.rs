//! Charges an order and makes its invoice, by Stripe's interface. hostler adds the credential and the idempotency
//! keys, which are the same in every attempt.

use hostler_handler::{Drop, Error, handler, publish};
use serde::Deserialize;
use serde_json::{Value, json};
use waki::Client;

#[derive(Deserialize)]
struct Order {
    id: String,
    customer: String,
    cents: u64,
}

#[handler]
fn charge(Order { id, customer, cents }: Order) -> Result<(), Error> {
    let cents = cents.to_string();
    let payment = [("amount", &*cents), ("currency", "eur"), ("customer", &*customer), ("confirm", "true")];
    let payment = stripe("payment_intents", &payment)?;
    let invoice = stripe("invoices", &[("customer", &customer), ("description", &id)])?;
    publish("invoices", &json!({ "order": id, "payment": payment["id"], "invoice": invoice["id"] }))
}

fn stripe(path: &str, form: &[(&str, &str)]) -> Result<Value, Error> {
    let response = Client::new().post(&format!("https://api.stripe.com/v1/{path}")).form(form.iter().copied()).send()?;
    let status = response.status_code();
    let answer: Value = response.json()?;
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    match status {
        200 => Ok(answer),
        402 => Err(Drop(why.to_owned()))?,
        _ => Err(format!("Stripe said {status}: {why}"))?,
    }
}
