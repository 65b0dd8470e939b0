//! Rules: tables of an array, such as `[[grant.http]]`. Each key is declared once, with its meaning, its type and its
//! default.
//!
//! All problems of all rules are reported at once, each at the line of its rule.

use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::{Invalid, LINE, Shape, Stray, Value, nearest};
use crate::delivery::text::{printable, truncated};

/// The most rules of a kind: each request is compared with all.
pub(crate) const RULES_MAX: usize = 100;
/// The longest text of a rule in an error.
const SHOWN_MAX: usize = 64;

/// A rule, which [`rule!`] declares. An array of them is a setting.
pub trait Rule: Sized {
    /// The word for it in errors.
    const NOUN: &'static str;
    /// One rule, in JSON.
    const EXAMPLE: &'static str;

    /// Read the keys. `None` = one that is required is missing or wrong.
    fn read(table: &mut Table<'_>) -> Option<Self>;

    /// Report contradictions between its keys, and with the rules before it. Fill in what depends on them.
    fn settle(&mut self, table: &mut Table<'_>, others: &[Self]);

    /// Its keys and values: they can be read again.
    fn show(&self) -> Json;

    /// The same rule of a file in this folder: [`Value::beside`].
    #[must_use]
    fn beside(self, folder: &Path) -> Self;

    /// The JSON Schema of its table.
    fn schema() -> Json;
}

/// Declares a rule. The doc comment of a key is its meaning in the JSON Schema. A key is `required`, or `optional` (the
/// field is an `Option`), or has a `default`, which may name the keys before it. `as` gives it another schema than that of
/// its type.
macro_rules! rule {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident: $noun:literal, $example:literal;
        $($(#[doc = $meaning:literal])+ $how:ident $key:ident: $type:ty $(= $default:expr)? $(, as $schema:expr)?;)+
        settle $settle:expr;
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct $name {$(
            $(#[doc = $meaning])+
            pub $key: $crate::values::table::rule!(@type $how $type),
        )+}

        impl $crate::values::table::Rule for $name {
            const NOUN: &'static str = $noun;
            const EXAMPLE: &'static str = $example;

            fn read(table: &mut $crate::values::table::Table<'_>) -> Option<Self> {
                $(let $key = $crate::values::table::rule!(@read $how table $key $type $(, $default)?);)+
                Some(Self { $($key: $crate::values::table::rule!(@take $how $key)),+ })
            }

            fn settle(&mut self, table: &mut $crate::values::table::Table<'_>, others: &[Self]) {
                let settle: fn(&mut Self, &mut $crate::values::table::Table<'_>, &[Self]) = $settle;
                settle(self, table, others);
            }

            fn show(&self) -> serde_json::Value {
                let mut shown = serde_json::Map::new();
                $($crate::values::table::rule!(@show $how self shown $key);)+
                serde_json::Value::Object(shown)
            }

            fn beside(self, folder: &std::path::Path) -> Self {
                Self { $($key: $crate::values::table::rule!(@beside $how folder self.$key)),+ }
            }

            fn schema() -> serde_json::Value {
                $crate::values::schema::table([$((
                    stringify!($key),
                    $crate::values::table::rule!(@is_required $how),
                    $crate::values::schema::about(
                        $crate::values::table::rule!(@schema $type $(, $schema)?),
                        concat!($($meaning),+).trim_ascii(),
                    ),
                )),+])
            }
        }
    };
    (@type optional $type:ty) => { Option<$type> };
    (@type $how:ident $type:ty) => { $type };
    (@read required $table:ident $key:ident $type:ty) => { $table.required::<$type>(stringify!($key)) };
    (@read optional $table:ident $key:ident $type:ty) => { $table.key::<$type>(stringify!($key)) };
    (@read default $table:ident $key:ident $type:ty, $default:expr) => {
        $table.key::<$type>(stringify!($key)).unwrap_or_else(|| $default)
    };
    (@take required $key:ident) => { $key? };
    (@take $how:ident $key:ident) => { $key };
    (@show optional $rule:ident $shown:ident $key:ident) => {
        if let Some(value) = &$rule.$key {
            $shown.insert(stringify!($key).to_owned(), $crate::values::table::shown(value));
        }
    };
    (@show $how:ident $rule:ident $shown:ident $key:ident) => {
        $shown.insert(stringify!($key).to_owned(), $crate::values::table::shown(&$rule.$key));
    };
    (@beside optional $folder:ident $value:expr) => {
        $value.map(|value| $crate::values::Value::beside(value, $folder))
    };
    (@beside $how:ident $folder:ident $value:expr) => { $crate::values::Value::beside($value, $folder) };
    (@schema $type:ty, $schema:expr) => { $schema };
    (@schema $type:ty) => { <$type as $crate::values::Value>::schema() };
    (@is_required required) => { true };
    (@is_required $how:ident) => { false };
}
pub(crate) use rule;

/// Values of rules that are written as texts: the word for each, and how it is read. They are shown as they are printed.
macro_rules! texts {
    ($($type:ty: $word:literal, $parse:expr $(, $schema:expr)?;)+) => {$(
        impl $crate::values::Value for $type {
            const TYPE: &'static str = $word;

            fn parse(text: &str) -> Result<Self, $crate::values::Invalid> {
                let parse: fn(&str) -> Result<Self, String> = $parse;
                parse(text).map_err($crate::values::Invalid::new)
            }

            fn show(&self) -> String {
                self.to_string()
            }
            $(
                fn schema() -> serde_json::Value {
                    $schema
                }
            )?
        }
    )+};
}
pub(crate) use texts;

texts! {
    u16: "port", |text| {
        let port = text.parse().ok().filter(|port| *port > 0);
        port.ok_or_else(|| "is not a port".to_owned())
    }, json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX });

    IpAddr: "address", |text| text.parse().map_err(|_| "is not an address".to_owned()), String::schema();
}

/// A value in JSON.
pub(crate) fn shown<T: Value>(value: &T) -> Json {
    match T::SHAPE {
        Shape::Text => value.show().into(),
        // All others are shown as JSON.
        _ => serde_json::from_str(&value.show()).unwrap_or_default(),
    }
}

impl<T: Rule> Value for Vec<T> {
    const TYPE: &'static str = "array of tables";
    const SHAPE: Shape = Shape::Rules;

    fn parse(text: &str) -> Result<Self, Invalid> {
        // The error of the parser could repeat a value.
        let tables: Vec<Map<String, Json>> = serde_json::from_str(text).map_err(|_| {
            let example = T::EXAMPLE;
            Invalid::new("is not a JSON array of objects").hint(format!("write `[{example}]`"))
        })?;
        if tables.len() > RULES_MAX {
            return Err(Invalid::new(format!("has more than {RULES_MAX} rules")));
        }
        let (mut rules, mut problems) = (Self::new(), Vec::new());
        for (number, map) in (1..).zip(&tables) {
            let mut table = Table::new(map, format!("{} {number}", T::NOUN), &mut problems);
            if let Some(mut rule) = T::read(&mut table) {
                rule.settle(&mut table, &rules);
                rules.push(rule);
            }
            table.end();
        }
        Invalid::all(problems)?;
        Ok(rules)
    }

    fn show(&self) -> String {
        Json::from(self.iter().map(Rule::show).collect::<Vec<_>>()).to_string()
    }

    fn beside(self, folder: &Path) -> Self {
        self.into_iter().map(|rule| rule.beside(folder)).collect()
    }

    fn schema() -> Json {
        json!({ "type": "array", "maxItems": RULES_MAX, "items": T::schema() })
    }
}

/// One table, with its problems. A key that the rule does not have is a problem.
pub struct Table<'a> {
    map: &'a Map<String, Json>,
    name: String,
    asked: Vec<&'static str>,
    problems: &'a mut Vec<Invalid>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        map: &'a Map<String, Json>,
        name: String,
        problems: &'a mut Vec<Invalid>,
    ) -> Self {
        Self {
            map,
            name,
            asked: Vec::new(),
            problems,
        }
    }

    /// Report a problem of the table.
    pub(crate) fn problem(&mut self, what: impl AsRef<str>) {
        self.problems.push(self.invalid(what.as_ref()));
    }

    fn invalid(&self, what: &str) -> Invalid {
        let line = self.map.get(LINE).and_then(Json::as_u64);
        let line = line.and_then(|line| line.try_into().ok());
        Invalid::new(format!("{}: {what}", self.name)).at(line)
    }

    pub(crate) fn required<T: Value>(&mut self, key: &'static str) -> Option<T> {
        if !self.map.contains_key(key) {
            self.problem(format!("`{key}` is missing"));
        }
        self.key(key)
    }

    pub(crate) fn key<T: Value>(&mut self, key: &'static str) -> Option<T> {
        self.asked.push(key);
        let written = self.map.get(key)?;
        let text = match (T::SHAPE, written) {
            (Shape::Bool, Json::Bool(flag)) => flag.to_string(),
            // A word beside both.
            (Shape::Bool, Json::String(word)) if T::TYPE != bool::TYPE => word.clone(),
            (Shape::Strings, Json::Array(_)) | (Shape::Table, Json::Object(_)) => {
                written.to_string()
            }
            (Shape::Text | Shape::Integer, Json::String(text)) => text.clone(),
            (Shape::Text | Shape::Integer, Json::Number(number)) => number.to_string(),
            (Shape::Bool, _) => {
                self.problem(format!("`{key}` is neither `true` nor `false`"));
                return None;
            }
            (Shape::Strings, _) => {
                self.problem(format!("`{key}` is not an array of texts"));
                return None;
            }
            (shape, other) => {
                let noun = if shape == Shape::Table {
                    "table"
                } else {
                    "text"
                };
                self.problem(format!("`{key}` is {}, not a {noun}", kind(other)));
                return None;
            }
        };
        let invalid = match T::parse(&text) {
            Ok(value) => return Some(value),
            Err(invalid) => invalid,
        };
        for Invalid { what, .. } in std::iter::once(&invalid).chain(&invalid.others) {
            match T::SHAPE {
                // Its own keys are in the text.
                Shape::Table => self.problem(what),
                Shape::Strings => self.problem(format!("`{key}`: {what}")),
                _ => self.problem(format!("`{key}`: {}", with_value(&text, what))),
            }
        }
        None
    }

    /// Report the keys that the rule does not have.
    pub(crate) fn end(self) {
        let is_known = |key: &&String| *key == LINE || self.asked.contains(&key.as_str());
        let unknown: Vec<_> = self.map.keys().filter(|key| !is_known(key)).collect();
        for key in unknown {
            let what = format!("unknown key `{}`", printed(key));
            let near = nearest(key, self.asked.iter().copied());
            let hint = match near {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("the keys are {}", self.asked.join(", ")),
            };
            let mut invalid = self.invalid(&format!("{what}: {hint}"));
            invalid.stray = near.is_none().then(|| {
                Box::new(Stray {
                    key: key.clone(),
                    what: self.invalid(&what).what,
                })
            });
            self.problems.push(invalid);
        }
    }
}

/// A text of a rule in an error.
pub(crate) fn printed(text: &str) -> String {
    printable(truncated(text, SHOWN_MAX))
}

/// A problem with the text that has it, if the problem does not repeat it.
pub(crate) fn with_value(text: &str, why: &str) -> String {
    match why.starts_with('`') {
        true => why.to_owned(),
        false => format!("`{}` {why}", printed(text)),
    }
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "nothing",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "an array",
        Json::Object(_) => "a table",
    }
}

/// An array of values that are written as texts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct List<T>(pub Vec<T>);

impl<T> Deref for List<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Value> Value for List<T> {
    const TYPE: &'static str = "array of texts";
    const SHAPE: Shape = Shape::Strings;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let items: Vec<Json> =
            serde_json::from_str(text).map_err(|_| Invalid::new("is not an array of texts"))?;
        let (mut values, mut problems) = (Vec::new(), Vec::new());
        for item in &items {
            let text = item.as_str().unwrap_or_default();
            match T::parse(text) {
                Ok(value) => values.push(value),
                Err(error) => problems.push(Invalid::new(with_value(text, &error.what))),
            }
        }
        Invalid::all(problems)?;
        Ok(Self(values))
    }

    fn show(&self) -> String {
        Json::from(self.iter().map(Value::show).collect::<Vec<_>>()).to_string()
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": { "type": "string" } })
    }
}

/// A whole number from 1 to `MAX`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UpTo<const MAX: usize>(pub usize);

impl<const MAX: usize> Value for UpTo<MAX> {
    const TYPE: &'static str = "positive integer";
    const SHAPE: Shape = Shape::Integer;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let number = text
            .parse()
            .ok()
            .filter(|number| (1..=MAX).contains(number));
        let number = number.map(Self);
        number.ok_or_else(|| Invalid::new(format!("is not between 1 and {MAX}")))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }

    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 1, "maximum": MAX })
    }
}
