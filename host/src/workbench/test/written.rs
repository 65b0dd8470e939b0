//! The keys that a case expects to be written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::content::Content;
use crate::config::Value;
use crate::delivery::key_value::Written as Found;
use crate::workbench::message;

/// An expected key in its file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenToml {
    /// The key, as the handler names it.
    key: String,
    /// The value, as text. A value that is not given may be any.
    value: Option<String>,
    /// The value, in Base64.
    value_base64: Option<String>,
    /// A value in JSON that means the same.
    json: Option<serde_json::Value>,
    /// The key must be deleted.
    #[serde(default)]
    deleted: bool,
    /// The time to live, such as `1h`.
    ttl: Option<String>,
}

/// What is expected of a key.
#[derive(Debug)]
pub(super) enum Written {
    /// It is deleted.
    Deleted,
    /// It is set. What is not given may be anything.
    Set(Option<Content>, Option<Duration>),
}

impl WrittenToml {
    /// The key and what is expected of it.
    pub(super) fn read(self) -> Result<(String, Written), String> {
        let bytes = message::table_body(Path::new(""), self.value, self.value_base64, None)?;
        let content = Content::of(bytes, self.json)?;
        let ttl = self.ttl.map(|ttl| Duration::parse(&ttl)).transpose();
        let ttl = ttl.map_err(|error| format!("`ttl`: {}", error.what))?;
        let written = match (self.deleted, &content, ttl) {
            (false, ..) => Written::Set(content, ttl),
            (true, None, None) => Written::Deleted,
            (true, ..) => return Err("a deleted key has no value and no `ttl`".to_owned()),
        };
        Ok((self.key, written))
    }
}

/// The difference between the expected keys and those that would be written; `None` = as expected.
pub(super) fn objection(
    expected: &BTreeMap<String, Written>,
    found: &BTreeMap<&str, &Found>,
) -> Option<String> {
    let wrong = |(key, written): (&String, &Written)| {
        let why = written.objection(found.get(&**key).copied())?;
        Some(format!("expected the key `{key}` {why}"))
    };
    if let Some(objection) = expected.iter().find_map(wrong) {
        return Some(objection);
    }
    let other = found.keys().find(|key| !expected.contains_key(**key))?;
    Some(format!("expected that the key `{other}` is not written"))
}

impl Written {
    fn objection(&self, found: Option<&Found>) -> Option<String> {
        let value = found.and_then(|found| found.value.as_ref());
        match (self, found, value) {
            (Self::Deleted, Some(_), None) => None,
            (Self::Deleted, ..) => Some("to be deleted".to_owned()),
            (Self::Set(content, ttl), Some(found), Some(value)) => {
                let content = content.as_ref();
                if let Some(why) = content.and_then(|content| content.objection(value)) {
                    return Some(format!("to have the value {why}"));
                }
                let ttl = ttl.filter(|ttl| Some(*ttl) != found.ttl)?;
                let got = found.ttl.map_or("never".to_owned(), |ttl| ttl.show());
                Some(format!("to expire after {}, not {got}", ttl.show()))
            }
            (Self::Set(..), ..) => Some("to be set".to_owned()),
        }
    }
}
