//! The names of rules and secrets: they are labels of metrics.

use std::ops::Deref;

use serde_json::json;

use crate::values::table::texts;

/// The longest name.
const NAME_MAX: usize = 64;
/// The name that stands for "no rule" in metrics.
const RESERVED: &str = "none";

/// The name of a rule or a secret.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Name(pub String);

impl Deref for Name {
    type Target = String;

    fn deref(&self) -> &String {
        &self.0
    }
}

texts! {
    Name: "name", |text| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        match text {
            RESERVED => Err(format!("`{RESERVED}` is reserved")),
            _ if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_plain) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "a name has 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`"
            )),
        }
    }, json!({ "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{NAME_MAX}}}$") });
}
