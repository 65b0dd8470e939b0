//! The keys of a handler: `[grant.key-value]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::delivery::key_value::KeyRules;
use crate::values::schema;
use crate::values::{ByteSize, Invalid, Shape, Value};
use crate::wire::keys;

const HINT: &str =
    "write `[grant.key-value]` with `prefix = \"{orders}:kv:\"`, where `orders` is the queue";

/// The words of `commit`: the last acknowledgement wins, or none that is based on an old value.
const LAST: &str = "last";
const CHECKED: &str = "checked";

/// The longest prefix, in bytes.
const PREFIX_MAX: usize = 512;
/// The largest value, unless `value_max` says otherwise, and the most that it may say.
const VALUE_MAX: ByteSize = ByteSize(256 << 10);
const VALUE_MOST: ByteSize = ByteSize(64 << 20);

impl Value for KeyRules {
    const TYPE: &'static str = "table";
    const SHAPE: Shape = Shape::Table;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let written: BTreeMap<String, Json> =
            serde_json::from_str(text).map_err(|_| Invalid::new("is not a table").hint(HINT))?;
        let mut written: BTreeMap<String, String> = written
            .into_iter()
            .map(|(key, value)| match value {
                Json::String(text) => (key, text),
                other => (key, other.to_string()),
            })
            .collect();
        let prefix = written.remove("prefix").unwrap_or_default();
        if !(1..=PREFIX_MAX).contains(&prefix.len()) || prefix.chars().any(char::is_control) {
            let what = format!("needs a `prefix` of 1 to {PREFIX_MAX} printable bytes");
            return Err(Invalid::new(what).hint(HINT));
        }
        let value_max = match written.remove("value_max") {
            None => VALUE_MAX,
            Some(text) => ByteSize::parse(&text)?,
        };
        if value_max.0 == 0 || value_max > VALUE_MOST {
            let what = format!("has `value_max` = `{}`", value_max.show());
            let most = VALUE_MOST.show();
            return Err(Invalid::new(what).hint(format!("the range is 1B to {most}")));
        }
        let checked = match written.remove("commit").as_deref() {
            None | Some(LAST) => false,
            Some(CHECKED) => true,
            Some(other) => {
                let what = format!("has `commit` = `{other}`");
                return Err(
                    Invalid::new(what).hint("it is `last` (the last one wins) or `checked`")
                );
            }
        };
        let journal = match written.remove("journal") {
            None => false,
            Some(text) => bool::parse(&text)?,
        };
        if let Some(other) = written.keys().next() {
            let what = format!("has an unknown key `{other}`");
            let hint = "it has `prefix`, `commit`, `journal` and `value_max`";
            return Err(Invalid::new(what).hint(hint));
        }
        Ok(Self {
            prefix: Arc::from(prefix),
            value_max: value_max.as_usize(),
            checked,
            journal,
        })
    }

    fn show(&self) -> String {
        let mut shown = json!({ "prefix": &*self.prefix });
        if self.checked {
            shown["commit"] = CHECKED.into();
        }
        if self.journal {
            shown["journal"] = true.into();
        }
        if self.value_max != VALUE_MAX.as_usize() {
            shown["value_max"] = ByteSize(self.value_max as u64).show().into();
        }
        shown.to_string()
    }

    fn schema() -> Json {
        json!({
            "type": "object",
            "properties": {
                "prefix": schema::about(
                    json!({ "type": "string", "minLength": 1, "maxLength": PREFIX_MAX }),
                    "The beginning of every key of the handler: `{orders}:kv:` for the queue `orders`.",
                ),
                "commit": schema::about(
                    schema::words(&[LAST, CHECKED]),
                    "`last`: the last acknowledgement wins. `checked`: an acknowledgement that read an \
                     old value is refused, and the message runs again.",
                ),
                "journal": schema::about(
                    bool::schema(),
                    "Record each `increment`: it happens once for a message. If not given: false.",
                ),
                "value_max": schema::about(ByteSize::schema(), "The largest value: 256KiB if not given."),
            },
            "required": ["prefix"],
            "additionalProperties": false,
        })
    }
}

/// The beginning that a prefix must have for this queue, if it has another one: keys share the slot
/// of the queue, and no key of a handler is a key of hostler.
pub(crate) fn wanted(prefix: &str, queue: &str) -> Option<String> {
    let wanted = keys::derived(queue, "kv:");
    (!prefix.starts_with(&wanted)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grant_is_read_and_shown() {
        let text = r#"{"commit":"checked","prefix":"{orders}:kv:","value_max":"1KiB"}"#;
        let table = KeyRules::parse(text).unwrap();
        assert_eq!((&*table.prefix, table.value_max), ("{orders}:kv:", 1024));
        assert_eq!(table.show(), text);
        assert_eq!(KeyRules::parse(&table.show()), Ok(table));
        let plain = KeyRules::parse(r#"{"prefix":"{orders}:kv:"}"#).unwrap();
        assert_eq!(plain.show(), r#"{"prefix":"{orders}:kv:"}"#);
        assert!(KeyRules::parse(text).unwrap().checked && !plain.checked);
        let recorded = r#"{"journal":true,"prefix":"{orders}:kv:"}"#;
        let table = KeyRules::parse(recorded).unwrap();
        assert!(table.journal && !plain.journal);
        assert_eq!(table.show(), recorded);
    }

    #[test]
    fn a_wrong_grant_is_refused() {
        for (text, said) in [
            ("{}", "needs a `prefix`"),
            (r#"{"prefix":""}"#, "needs a `prefix`"),
            (
                r#"{"prefix":"a","value_max":"65MiB"}"#,
                "`value_max` = `65MiB`",
            ),
            (r#"{"prefix":"a","value_max":"0B"}"#, "`value_max`"),
            (r#"{"prefix":"a","ttl":"1s"}"#, "unknown key `ttl`"),
            (r#"{"prefix":"a","commit":"first"}"#, "`commit` = `first`"),
        ] {
            let refused = KeyRules::parse(text).expect_err(text).what;
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }

    #[test]
    fn the_prefix_lies_under_the_keys_of_its_queue() {
        let wanted = |prefix: &str, queue: &str| {
            let text = json!({ "prefix": prefix }).to_string();
            wanted(&KeyRules::parse(&text).unwrap().prefix, queue)
        };
        assert_eq!(wanted("{orders}:kv:", "orders"), None);
        assert_eq!(wanted("{orders}:kv:customers:", "orders"), None);
        assert_eq!(wanted("shop:{eu}:orders:kv:", "shop:{eu}:orders"), None);
        for wrong in [
            "{orders}:kv",
            "orders:kv:",
            "{orders}:delayed:",
            "{orders}",
            "x{orders}:kv:",
        ] {
            assert_eq!(
                wanted(wrong, "orders").as_deref(),
                Some("{orders}:kv:"),
                "{wrong}"
            );
        }
        assert!(wanted("{orders}:kv:", "jobs").is_some());
    }
}
