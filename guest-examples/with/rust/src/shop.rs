// @with secrets
//! Knows who may send orders.

use crate::hostler::handler::secrets;
use crate::hostler::handler::types::{Message, Outcome};
use crate::later;

/// Compare the token of the message with the secret.
pub fn check(message: &Message) -> Result<(), Outcome> {
    let secret = secrets::get("shop").map_err(|why| later(&why))?;
    let is_right = |(name, value): &(String, String)| name == "x-shop-token" && *value == secret;
    match message.headers.iter().any(is_right) {
        true => Ok(()),
        false => Err(Outcome::Drop(Some("the token of the shop is wrong".to_owned()))),
    }
}
// @end
