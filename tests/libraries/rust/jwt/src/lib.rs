use hostler_handler::{Error, handler};
use jsonwebtoken::{DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde_json::{Value, json};

const KEY: &[u8] = b"a key of thirty-two bytes, or more";

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let claims = json!({ "sub": "ada", "exp": 4_000_000_000_u64 });
    let token = encode(&Header::default(), &claims, &EncodingKey::from_secret(KEY)?)?;
    let read = decode::<Value>(&token, &DecodingKey::from_secret(KEY)?, &Validation::default())?;
    (read.claims["sub"] == "ada").then_some(()).ok_or_else(|| format!("got {}", read.claims).into())
}
