use std::time::Duration;

use hostler_handler::{Error, config, handler};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let api = config("api").ok_or("no `api`")?.parse()?;
    let bucket = Bucket::new(api, UrlStyle::Path, "invoices", "eu-central-1")?;
    let keys = Credentials::new("id", "key");
    let url = bucket.put_object(Some(&keys), "o-1").sign(Duration::from_secs(60));
    match waki::Client::new().put(url.as_str()).body("an invoice").send()?.status_code() {
        200 => Ok(()),
        status => Err(format!("got {status}"))?,
    }
}
