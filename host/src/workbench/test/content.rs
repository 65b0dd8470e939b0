//! The content that a case expects of a message or a value.

use bytes::Bytes;

use crate::workbench::effects;

/// How many equal characters are shown before a difference.
const BEFORE_DIFFERENCE: usize = 20;

/// Expected content.
#[derive(Debug)]
pub(super) enum Content {
    /// These bytes.
    Bytes(Bytes),
    /// JSON that means the same.
    Json(serde_json::Value),
}

impl Content {
    /// The one that is given; `None` = any.
    ///
    /// # Errors
    /// Both are given.
    pub(super) fn of(
        bytes: Option<Bytes>,
        json: Option<serde_json::Value>,
    ) -> Result<Option<Self>, String> {
        match (bytes, json) {
            (Some(_), Some(_)) => Err("more than one content".to_owned()),
            (bytes, json) => Ok(bytes.map(Self::Bytes).or(json.map(Self::Json))),
        }
    }

    /// Its bytes.
    pub(super) fn bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Json(json) => json.to_string().into(),
        }
    }

    /// The difference to what is found; `None` = as expected.
    pub(super) fn objection(&self, found: &[u8]) -> Option<String> {
        match self {
            Self::Bytes(bytes) => (**bytes != *found).then(|| differing(bytes, found)),
            Self::Json(json) => {
                let read = serde_json::from_slice::<serde_json::Value>(found);
                let is_equal = read.ok().as_ref() == Some(json);
                (!is_equal).then(|| differing(json.to_string().as_bytes(), found))
            }
        }
    }
}

/// Two contents, shown from shortly before their first difference.
fn differing(expected: &[u8], found: &[u8]) -> String {
    let texts = (str::from_utf8(expected), str::from_utf8(found));
    let from = match texts {
        (Ok(expected), Ok(found)) => {
            let both = expected.chars().zip(found.chars());
            let equal = both.take_while(|(a, b)| a == b).count();
            equal.saturating_sub(BEFORE_DIFFERENCE)
        }
        _ => 0,
    };
    let [expected, found] = [expected, found].map(|bytes| effects::content(bytes, from));
    format!("`{expected}`, not `{found}`")
}
