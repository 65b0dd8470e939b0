//! Where a handler may publish: `[grant.publish]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::delivery::effect;
use crate::publish::{Channel, Destination, List, Stream};
use crate::values::schema;
use crate::values::{Invalid, Shape, Value};
use crate::wire::list::Codec;

const HINT: &str = "write `[grant.publish]` with lines like `invoices = \"stream:invoices\"` or `jobs = \
                    { to = \"list:jobs\", reliable = true, codec = \"json\" }`";

/// The most destinations.
const MAX: usize = 100;
/// The longest name, in bytes.
const NAME_MAX: usize = 64;

/// The names of destinations, and which messages each takes: for the sandbox.
pub(crate) fn outlets(table: &BTreeMap<String, Destination>) -> effect::Outlets {
    let outlet = |(name, to): (&String, &Destination)| (name.clone(), to.outlet());
    effect::Outlets::new(table.iter().map(outlet).collect())
}

/// A destination of messages.
#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(untagged)]
enum Written {
    /// `stream:KEY`, `list:KEY` or `channel:NAME`.
    Short(#[schemars(regex(pattern = TO))] String),
    /// The same, with options.
    Long(Table),
}

/// A destination.
const TO: &str = "^(stream|list|channel):.";

#[derive(Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// `stream:KEY`, `list:KEY` or `channel:NAME`.
    #[schemars(regex(pattern = TO))]
    to: String,
    /// The hosts of this list read it with `reliable`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reliable: bool,
    /// This channel is sharded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sharded: bool,
    /// How a list or a channel is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    codec: Option<CodecWord>,
    /// The field of a stream entry that holds the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_field: Option<String>,
}

#[derive(Clone, Copy, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum CodecWord {
    Frame,
    Json,
    Raw,
}

impl Value for BTreeMap<String, Destination> {
    const TYPE: &'static str = "table of destinations";
    const SHAPE: Shape = Shape::Map;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let written: BTreeMap<String, Written> = serde_json::from_str(text)
            .map_err(|_| Invalid::new("is not a table of destinations").hint(HINT))?;
        if written.len() > MAX {
            let what = format!("has {} destinations, {MAX} are allowed", written.len());
            return Err(Invalid::new(what));
        }
        let destination = |(name, written): (String, Written)| {
            let table = match written {
                Written::Long(table) => table,
                Written::Short(to) => Table {
                    to,
                    ..Table::default()
                },
            };
            let is_short = (1..=NAME_MAX).contains(&name.len());
            if !is_short || name.chars().any(char::is_control) {
                return Err(format!("a name must have 1 to {NAME_MAX} printable bytes"));
            }
            let destination = destination(table).map_err(|why| format!("`{name}`: {why}"))?;
            Ok((name, destination))
        };
        let all: Result<_, String> = written.into_iter().map(destination).collect();
        all.map_err(|why| Invalid::new(why).hint(HINT))
    }

    fn show(&self) -> String {
        let written = |(name, destination): (&String, &Destination)| {
            (name.clone(), Written::from(destination))
        };
        let all: BTreeMap<_, _> = self.iter().map(written).collect();
        serde_json::to_string(&all).unwrap_or_default()
    }

    fn schema() -> Json {
        schema::of_type::<BTreeMap<String, Written>>()
    }
}

fn destination(table: Table) -> Result<Destination, String> {
    let Some((kind, key)) = table.to.split_once(':') else {
        return Err(format!("`{}` has no kind", table.to));
    };
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    let only = |is_set: bool, setting: &str, kinds: &str| match is_set {
        true => Err(format!("`{setting}` has a meaning for {kinds} only")),
        false => Ok(()),
    };
    let codec = match table.codec {
        None | Some(CodecWord::Frame) => Codec::Frame,
        Some(CodecWord::Json) => Codec::Json,
        Some(CodecWord::Raw) => Codec::Raw,
    };
    if kind != "list" {
        only(table.reliable, "reliable", "lists")?;
    }
    if kind != "channel" {
        only(table.sharded, "sharded", "channels")?;
    }
    if kind != "stream" {
        only(table.body_field.is_some(), "body_field", "streams")?;
    }
    Ok(match kind {
        "stream" => {
            only(table.codec.is_some(), "codec", "lists and channels")?;
            let mut stream = Stream::new(key);
            if let Some(field) = table.body_field {
                stream.body_field = field.into();
            }
            stream.into()
        }
        "list" => {
            let mut list = List::new(key).codec(codec);
            list.reliable = table.reliable;
            list.into()
        }
        "channel" => {
            let mut channel = Channel::new(key).codec(codec);
            channel.sharded = table.sharded;
            channel.into()
        }
        _ => return Err(format!("`{kind}` is not `stream`, `list` or `channel`")),
    })
}

impl From<&Destination> for Written {
    fn from(destination: &Destination) -> Self {
        let word = |codec: Codec| match codec {
            Codec::Frame => None,
            Codec::Json => Some(CodecWord::Json),
            Codec::Raw => Some(CodecWord::Raw),
        };
        let mut table = Table {
            to: destination.label(),
            ..Table::default()
        };
        match destination {
            Destination::Stream(to) => {
                let default = Stream::new("").body_field;
                table.body_field = (to.body_field != default)
                    .then(|| String::from_utf8_lossy(&to.body_field).into_owned());
            }
            Destination::List(to) => {
                table.codec = word(to.codec);
                table.reliable = to.reliable;
            }
            Destination::Channel(to) => {
                table.codec = word(to.codec);
                table.sharded = to.sharded;
            }
        }
        let is_short = !table.reliable
            && !table.sharded
            && table.codec.is_none()
            && table.body_field.is_none();
        match is_short {
            true => Self::Short(table.to),
            false => Self::Long(table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_and_shown() {
        let text = r#"{"a":"stream:invoices","b":{"to":"list:jobs","reliable":true,"codec":"json"},"c":{"to":"channel:news","codec":"raw"},"d":{"to":"stream:x","body_field":"data"},"e":{"to":"channel:n","sharded":true}}"#;
        let table = BTreeMap::<String, Destination>::parse(text).unwrap();
        assert_eq!(table["a"], Destination::stream("invoices"));
        assert_eq!(
            table["b"],
            List::new("jobs").codec(Codec::Json).reliable().into()
        );
        assert!(table["b"].takes_delays().is_ok());
        assert_eq!(table.show(), text);
        assert_eq!(
            BTreeMap::<String, Destination>::parse(&table.show()),
            Ok(table)
        );
    }

    #[test]
    fn a_wrong_destination_is_named() {
        let refused = |text: &str| {
            BTreeMap::<String, Destination>::parse(text)
                .expect_err(text)
                .what
        };
        for (text, said) in [
            (r#"{"a":"invoices"}"#, "`a`: `invoices` has no kind"),
            (r#"{"a":"queue:invoices"}"#, "`a`: `queue` is not"),
            (r#"{"a":"stream:"}"#, "`a`: the key is empty"),
            (
                r#"{"a":{"to":"stream:x","reliable":true}}"#,
                "`reliable` has a meaning for lists only",
            ),
            (
                r#"{"a":{"to":"stream:x","codec":"raw"}}"#,
                "`codec` has a meaning",
            ),
            (
                r#"{"a":{"to":"list:x","sharded":true}}"#,
                "`sharded` has a meaning for channels only",
            ),
            (
                r#"{"a":{"to":"channel:x","reliable":true}}"#,
                "`reliable` has a meaning for lists only",
            ),
            (r#"{"":"stream:x"}"#, "a name must have"),
            (r#"["a"]"#, "is not a table of destinations"),
        ] {
            assert!(refused(text).contains(said), "{text}: {}", refused(text));
        }
    }
}
