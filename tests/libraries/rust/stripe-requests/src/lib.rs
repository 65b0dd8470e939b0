//! The requests of async-stripe, sent by waki.

use std::fmt::{self, Display};

use hostler_handler::{Error, config, handler};
use stripe_client_core::{CustomizedStripeRequest, StripeBlockingClient, StripeClientErr, StripeMethod};
use stripe_core::refund::CreateRefund;
use waki::{Client, Method};

struct Waki(String);

#[derive(Debug)]
struct Failed(String);

impl Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl StripeClientErr for Failed {
    fn deserialize_err(text: impl Display) -> Self {
        Self(text.to_string())
    }
}

impl StripeBlockingClient for Waki {
    type Err = Failed;

    fn execute(&self, request: CustomizedStripeRequest) -> Result<bytes::Bytes, Failed> {
        let (request, _) = request.into_pieces();
        let method = match request.method {
            StripeMethod::Get => Method::Get,
            StripeMethod::Post => Method::Post,
            StripeMethod::Delete => Method::Delete,
        };
        let url = format!("{}/v1{}?{}", self.0, request.path, request.query.unwrap_or_default());
        let response = Client::new()
            .request(method, &url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(request.body.unwrap_or_default())
            .send()
            .map_err(|error| Failed(error.to_string()))?;
        match response.status_code() {
            200 => Ok(response.body().map_err(|error| Failed(error.to_string()))?.into()),
            status => Err(Failed(format!("Stripe said {status}"))),
        }
    }
}

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let client = Waki(config("api").unwrap_or_default());
    let refund = CreateRefund::new().charge("ch_7").amount(4250).send_blocking(&client)?;
    assert_eq!(refund.amount, 4250);
    Ok(())
}
