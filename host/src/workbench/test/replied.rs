//! The reply that a case expects.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::content::Content;
use crate::workbench::message;

/// An expected reply in its file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplyToml {
    /// The reply, as text. A reply that is not given may be any.
    value: Option<String>,
    /// The reply, in Base64.
    value_base64: Option<String>,
    /// A reply in JSON that means the same.
    json: Option<serde_json::Value>,
    /// There must be no reply.
    #[serde(default)]
    none: bool,
}

/// An expected reply.
#[derive(Debug)]
pub(super) enum Reply {
    /// None.
    None,
    /// This one, or any.
    Some(Option<Content>),
}

impl ReplyToml {
    /// The expected reply.
    pub(super) fn read(self) -> Result<Reply, String> {
        let bytes = message::table_body(Path::new(""), self.value, self.value_base64, None)?;
        match (self.none, Content::of(bytes, self.json)?) {
            (false, content) => Ok(Reply::Some(content)),
            (true, None) => Ok(Reply::None),
            (true, Some(_)) => Err("`none` does not go with a value".to_owned()),
        }
    }
}

impl Reply {
    pub(super) fn is_some(&self) -> bool {
        matches!(self, Self::Some(_))
    }

    /// The difference to the reply of the attempt; `None` = as expected.
    pub(super) fn objection(&self, found: Option<&[u8]>) -> Option<String> {
        match (self, found) {
            (Self::None, Some(_)) => Some("expected no reply".to_owned()),
            (Self::Some(_), None) => Some("expected a reply".to_owned()),
            (Self::Some(Some(content)), Some(found)) => {
                let why = content.objection(found)?;
                Some(format!("expected the reply {why}"))
            }
            _ => None,
        }
    }
}
