use hostler_handler::{Error, handler};
use jiff::Timestamp;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let at = Timestamp::from_second(1_751_364_000)?.in_tz("Europe/Berlin")?;
    (at.hour() == 12).then_some(()).ok_or_else(|| format!("got {at}").into())
}
