//! The messages that a case expects to be published.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::content::Content;
use crate::config::Value;
use crate::delivery::effect::Publication;
use crate::workbench::{effects, message};

/// An expected message in its file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedToml {
    /// The name in `[grant.publish]`.
    to: String,
    /// The body, as text. A body that is not given may be any.
    body: Option<String>,
    /// The body, in Base64.
    body_base64: Option<String>,
    /// A file with the body, beside the table.
    body_file: Option<PathBuf>,
    /// A body in JSON that means the same.
    json: Option<serde_json::Value>,
    /// Headers that the handler sets.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The delay, such as `1m`.
    delay: Option<String>,
}

/// An expected message. What is not given may be anything.
#[derive(Debug)]
pub(super) struct Published {
    to: String,
    body: Option<Content>,
    headers: BTreeMap<String, String>,
    delay: Option<Duration>,
}

impl PublishedToml {
    /// The expected message. Paths are relative to this folder.
    pub(super) fn read(self, beside: &Path) -> Result<Published, String> {
        let bytes = message::table_body(beside, self.body, self.body_base64, self.body_file)?;
        let body = Content::of(bytes, self.json)?;
        let delay = self.delay.map(|delay| Duration::parse(&delay)).transpose();
        Ok(Published {
            to: self.to,
            body,
            headers: self.headers,
            delay: delay.map_err(|error| format!("`delay`: {}", error.what))?,
        })
    }
}

/// The difference between the expected messages and those that would be published; `None` = as
/// expected.
pub(super) fn objection(expected: &[Published], found: &[Publication]) -> Option<String> {
    if expected.len() != found.len() {
        let messages = match expected.len() {
            1 => "1 published message".to_owned(),
            n => format!("{n} published messages"),
        };
        return Some(format!("expected {messages}, not {}", found.len()));
    }
    let pairs = expected.iter().zip(found);
    let objections = pairs.map(|(expected, found)| expected.objection(found));
    let (number, objection) = (1..).zip(objections).find_map(|(n, o)| Some((n, o?)))?;
    Some(format!("expected message {number} {objection}"))
}

impl Published {
    fn objection(&self, found: &Publication) -> Option<String> {
        let to = &self.to;
        if **to != *found.to {
            return Some(format!("to go to `{to}`, not to `{}`", found.to));
        }
        let wrong = |what: String| Some(format!("(to `{to}`) to have {what}"));
        let body = self.body.as_ref();
        if let Some(why) = body.and_then(|body| body.objection(&found.body)) {
            return wrong(format!("the body {why}"));
        }
        for (name, value) in &self.headers {
            let got = found.headers.find(name);
            if got.is_some_and(|got| *got == value.as_bytes()) {
                continue;
            }
            let got = got.map_or("and it is missing".to_owned(), |got| {
                format!("not `{}`", effects::content(got, 0))
            });
            return wrong(format!("the header `{name}` = `{value}`, {got}"));
        }
        let delay = effects::delay(found);
        match self.delay.filter(|delay| !delay.is_zero()) {
            Some(expected) if delay != Some(expected) => {
                let got = delay.map_or("none".to_owned(), |delay| delay.show());
                wrong(format!("the delay {}, not {got}", expected.show()))
            }
            None if self.delay.is_some() && delay.is_some() => wrong("no delay".to_owned()),
            _ => None,
        }
    }
}
