//! Sends a mail that a template makes, by Resend's interface. hostler adds the credential.

use std::time::Duration;

use hostler_handler::{Error, RetryAfter, handler};
use minijinja::{Environment, context};
use serde::Deserialize;
use serde_json::json;
use waki::Client;

const PAGE: &str = "<p>Hello {{ name }},</p><p>parcel {{ parcel }} has {{ items|join(', ') }}.</p>";

#[derive(Deserialize)]
struct Shipment {
    name: String,
    mail: String,
    parcel: String,
    items: Vec<String>,
}

#[handler]
fn send(Shipment { name, mail, parcel, items }: Shipment) -> Result<(), Error> {
    let html = Environment::new().render_named_str("mail.html", PAGE, context! { name, parcel, items })?;
    let from = "Parcels <parcels@example.com>";
    let body = json!({ "from": from, "to": [mail], "subject": "On its way", "html": html });
    let response = Client::new().post("https://api.resend.com/emails").json(&body).send()?;
    match response.status_code() {
        200 => Ok(()),
        429 => Err(RetryAfter(Duration::from_secs(3)))?,
        status => Err(format!("Resend said {status}"))?,
    }
}
