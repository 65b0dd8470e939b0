use hmac::{Hmac, KeyInit, Mac};
use hostler_handler::{Error, handler};
use sha2::Sha256;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"key")?;
    mac.update(b"message");
    let code = hex::encode(mac.finalize().into_bytes());
    code.starts_with("6e9ef29b").then_some(()).ok_or_else(|| format!("got {code}").into())
}
