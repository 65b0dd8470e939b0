//! The types of settings: how a text becomes a checked value, how a value is shown, and its JSON Schema.
//!
//! [`schema`]: parts of JSON Schemas. [`table`]: rules, which are tables.

pub mod schema;
pub mod table;

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};

/// The shape of a value in TOML. Variables and flags are always texts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A string.
    Text,
    /// A whole number.
    Integer,
    /// A number with or without a fraction.
    Number,
    /// `true` or `false`.
    Bool,
    /// An array of strings; as a text, JSON.
    Strings,
    /// An array of tables; as a text, JSON.
    Tables,
    /// A table of names and texts; as a text, a JSON object.
    Table,
    /// A table of names, each with a text or a table; as a text, a JSON object.
    Map,
    /// An array of tables of any values; as a text, JSON.
    Rules,
    /// A table of tables of any values; as a text, JSON.
    Entries,
}

impl Shape {
    /// The JSON Schema of all values of this shape.
    fn schema(self) -> Json {
        let plain = json!({ "type": ["string", "integer", "number", "boolean"] });
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Integer => json!({ "type": "integer" }),
            Self::Number => json!({ "type": "number" }),
            Self::Bool => json!({ "type": "boolean" }),
            Self::Strings => json!({ "type": "array", "items": { "type": "string" } }),
            Self::Tables | Self::Rules => json!({ "type": "array", "items": { "type": "object" } }),
            Self::Table => json!({ "type": "object", "additionalProperties": plain }),
            Self::Map | Self::Entries => json!({ "type": "object" }),
        }
    }
}

/// The key of a rule's line in the JSON of [`Shape::Rules`].
pub(crate) const LINE: &str = "#line";

/// A type of setting.
pub trait Value: Sized {
    /// The word for it in the documentation.
    const TYPE: &'static str;
    /// The shape in TOML.
    const SHAPE: Shape = Shape::Text;

    /// Read it. An error is a fragment that follows the name of the key and never repeats a secret.
    fn parse(text: &str) -> Result<Self, Invalid>;

    /// The text that `check` prints: it can be read again, and secrets are masked.
    fn show(&self) -> String;

    /// The same value of a file in this folder: its paths are relative to the folder.
    #[must_use]
    fn beside(self, _folder: &Path) -> Self {
        self
    }

    /// The JSON Schema of the values in TOML.
    fn schema() -> Json {
        Self::SHAPE.schema()
    }
}

/// Why a text is not a value of a type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Invalid {
    /// The problem, as a fragment.
    pub what: String,
    /// A hint, if there is one.
    pub hint: Option<String>,
    /// The line of the file, if it is not that of the key.
    pub line: Option<usize>,
    /// Further problems of the same value.
    pub others: Vec<Self>,
    /// It is a key that a table does not have.
    pub stray: Option<Box<Stray>>,
}

/// A key that a table does not have. It may be a setting that stands below the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stray {
    /// The key.
    pub key: String,
    /// The problem, without a hint.
    pub what: String,
}

impl Invalid {
    /// These problems of one value, if there is any.
    pub(crate) fn all(problems: Vec<Self>) -> Result<(), Self> {
        let mut problems = problems.into_iter();
        match problems.next() {
            None => Ok(()),
            Some(first) => Err(Self {
                others: problems.collect(),
                ..first
            }),
        }
    }

    pub(crate) fn at(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }

    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
            line: None,
            others: Vec::new(),
            stray: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A number of bytes with a unit: `64MiB`, `1MB`, `512B`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// The number as the machine counts; saturates where addresses are shorter.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |unit: &&(&str, u64)| self.0 >= unit.1 && self.0.is_multiple_of(unit.1);
        let (unit, bytes) = UNITS.iter().find(exact).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

impl Value for ByteSize {
    const TYPE: &'static str = "size";

    fn parse(text: &str) -> Result<Self, Invalid> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '_' && c != '.');
        let (number, unit) = text.split_at(end.unwrap_or(text.len()));
        let number = number.replace('_', "");
        if number.is_empty() {
            return Err(Invalid::new(format!("`{text}` is not a size")).hint(SIZE_HINT));
        }
        let unit = unit.trim();
        if unit.is_empty() {
            return Err(Invalid::new(format!("`{text}` has no unit")).hint(format!(
                "write `{text}B` for bytes, or `{text}MiB` for units of 1,048,576 bytes"
            )));
        }
        let Some((_, factor)) = UNITS.iter().find(|(u, _)| u.eq_ignore_ascii_case(unit)) else {
            let what = format!("`{text}` has the unknown unit `{unit}`");
            return Err(Invalid::new(what).hint(SIZE_HINT));
        };
        let Ok(whole) = number.parse::<u64>() else {
            return Err(Invalid::new(format!(
                "`{text}` is not a size: the number must be whole and fit 64 bits"
            )));
        };
        let bytes = whole.checked_mul(*factor).map(Self);
        bytes.ok_or_else(|| Invalid::new(format!("`{text}` is too large")))
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn schema() -> Json {
        let units = UNITS.map(|(unit, _)| schema::any_case(unit));
        schema::text(&format!("^[0-9][0-9_]*\\s*({})$", units.join("|")))
    }
}

const SIZE_HINT: &str = "sizes look like `64MiB`, `1MB` or `512B`";
/// The longest duration. Any moment plus this is still a time, for this machine and for Redis.
const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
/// The units of `humantime`.
const DURATION_UNITS: [&str; 8] = [
    "nanos|nsec|ns|usec|us|µs|millis|msec|ms",
    "seconds|second|secs|sec|s",
    "minutes|minute|mins|min|m",
    "hours|hour|hrs|hr|h",
    "days|day|d",
    "weeks|week|wks|wk|w",
    "months|month|M",
    "years|year|yrs|yr|y",
];
const DURATION_HINT: &str = "durations look like `30s`, `100ms` or `1h30m`";

impl Value for Duration {
    const TYPE: &'static str = "duration";

    fn parse(text: &str) -> Result<Self, Invalid> {
        if text.parse::<f64>().is_ok() {
            return Err(Invalid::new(format!("`{text}` has no unit")).hint(format!(
                "write `{text}s` for seconds, or `{text}ms` for milliseconds"
            )));
        }
        let duration = humantime::parse_duration(text)
            .map_err(|_| Invalid::new(format!("`{text}` is not a duration")).hint(DURATION_HINT))?;
        match duration <= DURATION_MAX {
            true => Ok(duration),
            false => Err(Invalid::new(format!("`{text}` is longer than 100 years"))),
        }
    }

    fn show(&self) -> String {
        let spaced = humantime::format_duration(*self).to_string();
        spaced.replace(' ', "")
    }

    fn schema() -> Json {
        let units = DURATION_UNITS.join("|");
        schema::text(&format!("^(\\s*[0-9]+(\\.[0-9]+)?\\s*({units}))+\\s*$"))
    }
}

impl Value for String {
    const TYPE: &'static str = "string";

    fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err(Invalid::new("is empty"));
        }
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl Value for PathBuf {
    const TYPE: &'static str = "path";

    fn parse(text: &str) -> Result<Self, Invalid> {
        String::parse(text).map(Self::from)
    }

    fn show(&self) -> String {
        self.display().to_string()
    }

    fn beside(self, folder: &Path) -> Self {
        folder.join(self)
    }

    fn schema() -> Json {
        String::schema()
    }
}

impl Value for bool {
    const TYPE: &'static str = "boolean";
    const SHAPE: Shape = Shape::Bool;

    fn parse(text: &str) -> Result<Self, Invalid> {
        match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(Invalid::new(format!(
                "`{text}` is neither `true` nor `false`"
            ))),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// The largest number of entries: Redis and its scripts count exactly up to here.
const ENTRIES_MAX: NonZeroU64 = NonZeroU64::MIN.saturating_add((1 << 53) - 2);

macro_rules! whole_numbers {
    ($($type:ty: $word:literal up to $max:expr),*) => {$(
        impl Value for $type {
            const TYPE: &'static str = $word;
            const SHAPE: Shape = Shape::Integer;

            fn parse(text: &str) -> Result<Self, Invalid> {
                let number = text.replace('_', "").parse().ok();
                number.filter(|number| *number <= $max).ok_or_else(|| {
                    Invalid::new(format!("`{text}` is not a valid {}", $word))
                        .hint(format!("the range is {} to {}", Self::MIN, $max))
                })
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn schema() -> Json {
                json!({ "type": "integer", "minimum": Self::MIN, "maximum": $max })
            }
        }
    )*};
}

whole_numbers!(
    NonZeroU32: "positive integer" up to NonZeroU32::MAX,
    NonZeroU64: "positive integer" up to ENTRIES_MAX,
    u64: "integer" up to u64::MAX,
    u32: "integer" up to u32::MAX
);

impl Value for f64 {
    const TYPE: &'static str = "number";
    const SHAPE: Shape = Shape::Number;

    fn parse(text: &str) -> Result<Self, Invalid> {
        match text.parse::<Self>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(Invalid::new(format!("`{text}` is not a number"))),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for SocketAddr {
    const TYPE: &'static str = "address";

    fn parse(text: &str) -> Result<Self, Invalid> {
        // `:9400` and `9400` mean this machine only: an admin port is not a public service.
        let bare = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = bare.parse::<u16>() {
            return Ok(Self::from(([127, 0, 0, 1], port)));
        }
        let address = text.replace("localhost:", "127.0.0.1:").parse();
        address.map_err(|_| {
            Invalid::new(format!("`{text}` is not an address"))
                .hint("addresses look like `127.0.0.1:9400` or `[::1]:9400`")
        })
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "string", "pattern": "^[^\\s]*[0-9]$" },
            { "type": "integer", "minimum": 0, "maximum": u16::MAX },
        ] })
    }
}

/// A setting that is one of some words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $name { $($(#[$vdoc])* $variant),* }
        crate::values::words!(@value $name { $($variant = $word),* });
    };
    (@value $name:ty { $($variant:ident = $word:literal),* }) => {
        impl crate::values::Value for $name {
            const TYPE: &'static str = crate::values::words!(@type $($word),*);

            fn parse(text: &str) -> Result<Self, crate::values::Invalid> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(crate::values::not_one_of(text, &[$($word),*])),
                }
            }

            fn show(&self) -> String {
                match self { $(Self::$variant => $word.to_owned()),* }
            }

            fn schema() -> serde_json::Value {
                crate::values::schema::words(&[$($word),*])
            }
        }
    };
    (@type $first:literal $(, $rest:literal)*) => { concat!("`", $first, "`", $(" | `", $rest, "`"),*) };
}
pub(crate) use words;

/// `text` is not one of `words`: list them, and guess which one was meant.
pub(crate) fn not_one_of(text: &str, words: &[&str]) -> Invalid {
    let quoted: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
    let invalid = Invalid::new(format!("`{text}` is not one of {}", quoted.join(", ")));
    match nearest(text, words.iter().copied()) {
        Some(word) => invalid.hint(format!("did you mean `{word}`?")),
        None => invalid,
    }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|word| (strsim::jaro_winkler(text, word), word))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}
