use hostler_handler::{Error, handler};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let order: toml::Table = toml::from_str("id = 'o-1'\nitems = ['tea', 'cup']")?;
    (order["items"][1].as_str() == Some("cup")).then_some(()).ok_or_else(|| format!("got {order}").into())
}
