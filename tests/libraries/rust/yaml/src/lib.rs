use hostler_handler::{Error, handler};
use serde_norway::Value;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let order: Value = serde_norway::from_str("id: o-1\nitems: [tea, cup]\n")?;
    (order["items"][1] == "cup").then_some(()).ok_or_else(|| format!("got {order:?}").into())
}
