//! How a program is called, and what its exit codes mean: `[program]`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::sandbox::{Meaning, Program, Stdout};
use crate::values::schema;
use crate::values::{Invalid, Shape, Value, nearest};

/// The most arguments, and the most bytes of one.
const ARGS_MAX: usize = 100;
const ARG_MAX: usize = 4096;

/// The words for what an exit code means.
const MEANINGS: [(&str, Meaning); 4] = [
    ("ack", Meaning::Ack),
    ("nack-requeue", Meaning::NackRequeue),
    ("drop", Meaning::Drop),
    ("fail", Meaning::Fail),
];

/// So begins the word for a hold; how long it lasts follows.
const HOLD: &str = "hold ";

impl Value for Vec<String> {
    const TYPE: &'static str = "array of strings";
    const SHAPE: Shape = Shape::Strings;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let args: Self = serde_json::from_str(text).map_err(|_| {
            Invalid::new("is not an array of strings").hint("write `[\"--verbose\", \"eu\"]`")
        })?;
        if args.len() > ARGS_MAX {
            let what = format!("has {} arguments, {ARGS_MAX} are allowed", args.len());
            return Err(Invalid::new(what));
        }
        if args
            .iter()
            .any(|arg| arg.len() > ARG_MAX || arg.contains('\0'))
        {
            let what = format!("has an argument with a NUL, or with more than {ARG_MAX} bytes");
            return Err(Invalid::new(what));
        }
        Ok(args)
    }

    fn show(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn schema() -> Json {
        json!({
            "type": "array",
            "maxItems": ARGS_MAX,
            "items": { "type": "string", "maxLength": ARG_MAX },
        })
    }
}

/// These meanings of exit codes, and the usual ones of the other codes.
pub(super) fn complete(codes: BTreeMap<u8, Meaning>) -> BTreeMap<u8, Meaning> {
    let mut all = Program::default().exit_codes;
    all.extend(codes);
    all
}

impl Value for BTreeMap<u8, Meaning> {
    const TYPE: &'static str = "table of exit codes";
    const SHAPE: Shape = Shape::Table;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let hint = "write `[program.exit_codes]` with lines like `3 = \"drop\"`";
        let written: BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|_| Invalid::new("is not a table of exit codes").hint(hint))?;
        let mut codes = Self::new();
        for (code, word) in written {
            let Ok(number) = code.parse::<u8>() else {
                let what = format!("has the code `{}`", code.escape_debug());
                return Err(Invalid::new(what).hint("an exit code is a number from 0 to 255"));
            };
            let held = word.strip_prefix(HOLD).map(Duration::parse).transpose()?;
            let held = held.map(Meaning::Hold);
            let known = MEANINGS.iter().find(|(name, _)| *name == word);
            let Some(meaning) = held.or(known.map(|(_, meaning)| *meaning)) else {
                let words = MEANINGS.map(|(name, _)| name);
                let hint = match nearest(&word, words.into_iter()) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("it is one of: {}, hold DURATION", words.join(", ")),
                };
                let what = format!("has `{}` for the code {number}", word.escape_debug());
                return Err(Invalid::new(what).hint(hint));
            };
            codes.insert(number, meaning);
        }
        Ok(codes)
    }

    fn show(&self) -> String {
        let word = |meaning: Meaning| match meaning {
            Meaning::Hold(after) => Some(format!("{HOLD}{}", after.show())),
            _ => {
                let known = MEANINGS.iter().find(|(_, m)| *m == meaning);
                known.map(|(word, _)| (*word).to_owned())
            }
        };
        let written: BTreeMap<String, String> = self
            .iter()
            .filter_map(|(code, meaning)| Some((code.to_string(), word(*meaning)?)))
            .collect();
        serde_json::to_string(&written).unwrap_or_default()
    }

    fn schema() -> Json {
        let words = MEANINGS.map(|(word, _)| word);
        json!({
            "type": "object",
            "patternProperties": {
                "^[0-9]{1,3}$": { "anyOf": [schema::words(&words), schema::text(&format!("^{HOLD}.+$"))] },
            },
            "additionalProperties": false,
        })
    }
}

const LOG: &str = "log";
const PUBLISH: &str = "publish:";
const REPLY: &str = "reply";

impl Value for Stdout {
    const TYPE: &'static str = "output";

    fn parse(text: &str) -> Result<Self, Invalid> {
        match text.strip_prefix(PUBLISH) {
            _ if text == LOG => Ok(Self::Log),
            _ if text == REPLY => Ok(Self::Reply),
            Some(name) if !name.is_empty() => Ok(Self::Publish(name.to_owned())),
            _ => Err(
                Invalid::new(format!("`{}` is not an output", text.escape_debug())).hint(
                    "write `log`, `reply`, or `publish:NAME` with a name of `[grant.publish]`",
                ),
            ),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Log => LOG.to_owned(),
            Self::Reply => REPLY.to_owned(),
            Self::Publish(name) => format!("{PUBLISH}{name}"),
        }
    }

    fn schema() -> Json {
        schema::text(&format!("^({LOG}|{REPLY}|{PUBLISH}.+)$"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_added_to_the_usual_ones() {
        let table =
            BTreeMap::<u8, Meaning>::parse(r#"{"3":"drop","75":"fail","99":"hold 5m"}"#).unwrap();
        assert_eq!(
            BTreeMap::<u8, Meaning>::parse(&table.show()),
            Ok(table.clone())
        );
        let all = complete(table);
        let meaning = |code| all.get(&code).copied();
        assert_eq!(meaning(0), Some(Meaning::Ack));
        assert_eq!(meaning(3), Some(Meaning::Drop));
        assert_eq!(meaning(65), Some(Meaning::Drop));
        assert_eq!(meaning(75), Some(Meaning::Fail));
        assert_eq!(meaning(99), Some(Meaning::Hold(Duration::from_secs(300))));
        assert_eq!(meaning(1), None);
    }

    #[test]
    fn a_wrong_exit_code_is_refused_with_a_hint() {
        for (text, what, hint) in [
            (
                r#"{"256":"ack"}"#,
                "has the code `256`",
                "an exit code is a number from 0 to 255",
            ),
            (
                r#"{"3":"dorp"}"#,
                "has `dorp` for the code 3",
                "did you mean `drop`?",
            ),
        ] {
            let invalid = BTreeMap::<u8, Meaning>::parse(text).unwrap_err();
            assert_eq!(
                (&*invalid.what, invalid.hint.as_deref()),
                (what, Some(hint))
            );
        }
    }

    #[test]
    fn stdout_goes_to_the_log_to_a_destination_or_to_the_producer() {
        assert_eq!(Stdout::parse("log"), Ok(Stdout::Log));
        assert_eq!(Stdout::parse("reply"), Ok(Stdout::Reply));
        let publish = Stdout::Publish("invoices".to_owned());
        assert_eq!(Stdout::parse("publish:invoices"), Ok(publish));
        for wrong in ["publish:", "publish", "stdout", ""] {
            assert!(Stdout::parse(wrong).is_err(), "{wrong}");
        }
    }
}
