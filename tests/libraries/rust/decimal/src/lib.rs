use hostler_handler::{Error, handler};
use rust_decimal::Decimal;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let sum: Decimal = "0.1".parse::<Decimal>()? + "0.2".parse::<Decimal>()?;
    (sum.to_string() == "0.3").then_some(()).ok_or_else(|| format!("got {sum}").into())
}
