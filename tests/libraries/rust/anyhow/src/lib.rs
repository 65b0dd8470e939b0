use anyhow::Context;
use hostler_handler::{Drop, Error, handler};

#[derive(Debug, thiserror::Error)]
#[error("order 7")]
struct Declined(#[source] Drop);

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let number: u8 = "7".parse().context("no number")?;
    let declined = Error::from(anyhow::Error::from(Declined(Drop("declined".to_owned()))));
    let text = declined.to_string();
    let is_dropped = declined.find::<Drop>().is_some();
    (number == 7 && is_dropped && text == "order 7: declined").then_some(()).ok_or_else(|| format!("got {text}").into())
}
