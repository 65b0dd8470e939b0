//! The messages that every new version of the handler must handle as expected: `[[selftest]]`.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::rollout::verify::{Expect, SelfTest};
use crate::values::schema;
use crate::values::{Invalid, Shape, Value};

/// More would make every swap wait.
const MAX: usize = 100;

const HINT: &str = "write `[[selftest]]` with `body = \"...\"`, and `headers` and `expect` if they \
                    matter; in a variable: `[{\"body\":\"...\",\"expect\":\"ack\"}]`";

/// A message that every new version must handle as expected.
#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The body.
    body: String,
    /// The headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// The outcome: `answer` is any of the others.
    #[serde(default)]
    expect: Word,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    #[default]
    Ack,
    NackRequeue,
    Drop,
    Answer,
}

impl Value for Vec<SelfTest> {
    const TYPE: &'static str = "array of tables";
    const SHAPE: Shape = Shape::Tables;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let written: Vec<Written> = serde_json::from_str(text)
            .map_err(|error| Invalid::new(format!("is not a list of tests: {error}")).hint(HINT))?;
        if written.len() > MAX {
            let what = format!("has {} tests, {MAX} are allowed", written.len());
            return Err(Invalid::new(what));
        }
        Ok(written.into_iter().map(SelfTest::from).collect())
    }

    fn show(&self) -> String {
        let written: Vec<Written> = self.iter().map(Written::from).collect();
        serde_json::to_string(&written).unwrap_or_default()
    }

    fn schema() -> Json {
        schema::of_type::<Vec<Written>>()
    }
}

impl From<Written> for SelfTest {
    fn from(written: Written) -> Self {
        Self {
            body: Bytes::from(written.body),
            headers: written.headers.into_iter().collect(),
            expect: match written.expect {
                Word::Ack => Expect::Ack,
                Word::NackRequeue => Expect::NackRequeue,
                Word::Drop => Expect::Drop,
                Word::Answer => Expect::Answer,
            },
        }
    }
}

impl From<&SelfTest> for Written {
    fn from(test: &SelfTest) -> Self {
        Self {
            body: String::from_utf8_lossy(&test.body).into_owned(),
            headers: test.headers.iter().cloned().collect(),
            expect: match test.expect {
                Expect::Ack => Word::Ack,
                Expect::NackRequeue => Word::NackRequeue,
                Expect::Drop => Word::Drop,
                Expect::Answer => Word::Answer,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_tests_can_be_read_again() {
        let text = r#"[{"body":"a"},{"body":"b","headers":{"x":"1"},"expect":"drop"},{"body":"c","expect":"answer"}]"#;
        let tests = Vec::<SelfTest>::parse(text).unwrap();
        assert_eq!(tests[0].expect, Expect::Ack);
        assert_eq!(tests[1].headers, [("x".to_owned(), "1".to_owned())]);
        assert_eq!(Vec::<SelfTest>::parse(&tests.show()).unwrap(), tests);
    }

    #[test]
    fn invalid_lists_are_refused() {
        for bad in [
            "",
            "{}",
            r#"[{"expect":"ack"}]"#,
            r#"[{"body":"a","expct":"ack"}]"#,
        ] {
            assert!(Vec::<SelfTest>::parse(bad).is_err(), "{bad}");
        }
        let many = format!("[{}]", vec![r#"{"body":"a"}"#; MAX + 1].join(","));
        assert!(Vec::<SelfTest>::parse(&many).is_err());
    }
}
