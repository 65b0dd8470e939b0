//! The values that a case finds remembered, and those that it expects to be remembered.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

use super::content::Content;
use crate::workbench::message;

/// A value in its file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueToml {
    /// The name, as the handler writes it.
    name: String,
    /// The value, as text.
    value: Option<String>,
    /// The value, in Base64.
    value_base64: Option<String>,
    /// The value, in JSON.
    json: Option<serde_json::Value>,
}

impl ValueToml {
    /// Its name, and the value.
    pub(super) fn read(self) -> Result<(String, Content), String> {
        let bytes = message::table_body(Path::new(""), self.value, self.value_base64, None)?;
        let content = Content::of(bytes, self.json)?;
        let content = content.ok_or_else(|| format!("`{}` has no value", self.name))?;
        Ok((self.name, content))
    }
}

/// The difference between the expected values and those that are remembered; `None` = as expected.
pub(super) fn objection(
    expected: &BTreeMap<String, Content>,
    found: &BTreeMap<String, Bytes>,
) -> Option<String> {
    let wrong = |(name, content): (&String, &Content)| {
        let Some(value) = found.get(name) else {
            return Some(format!("expected that `{name}` is remembered"));
        };
        let why = content.objection(value)?;
        Some(format!("expected that `{name}` is remembered as {why}"))
    };
    if let Some(objection) = expected.iter().find_map(wrong) {
        return Some(objection);
    }
    let other = found.keys().find(|name| !expected.contains_key(*name))?;
    Some(format!("expected that `{other}` is not remembered"))
}
