//! The configuration file: one TOML file per queue.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use crate::config::problem::{Problem, ProblemKind, Source};
use crate::config::setting::Definition;
use crate::config::settings;
use crate::regular_file;
use crate::values::{Invalid, LINE, Shape, nearest};

/// A configuration is a page of text. A larger file is something else.
pub const FILE_MAX: u64 = 1 << 20;

/// A value that the file gives to a setting.
pub(super) struct FileValue {
    pub(super) setting: &'static dyn Definition,
    pub(super) source: Source,
    pub(super) text: Result<String, Invalid>,
}

/// Reads a file: its values, and its problems.
pub(super) fn read(path: &Path) -> (Vec<FileValue>, Vec<Problem>) {
    match load(path) {
        Ok(text) => parse(path, text),
        Err(reason) => {
            let path = path.to_owned();
            let kind = ProblemKind::Unreadable { path, reason };
            (Vec::new(), vec![Problem::new(None, kind)])
        }
    }
}

/// The same for a text that has been read.
pub(super) fn parse(path: &Path, text: String) -> (Vec<FileValue>, Vec<Problem>) {
    let mut found = Found {
        path: path.into(),
        text: text.clone(),
        values: Vec::new(),
        problems: Vec::new(),
    };
    let (table, errors) = DeTable::parse_recoverable(&text);
    // The rest after a syntax error is guessed: a missing quote makes other errors, and keys that are not
    // in the file.
    let start = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
    if let Some(first) = errors.into_iter().min_by_key(start) {
        let source = found.source(start(&first));
        let message = first.message().to_owned();
        let kind = ProblemKind::Syntax { message };
        return (Vec::new(), vec![Problem::new(source, kind)]);
    }
    found.walk("", table.get_ref());
    (found.values, found.problems)
}

fn load(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    regular_file::open(path)
        .and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_MAX {
        return Err(format!("it is larger than {FILE_MAX} bytes"));
    }
    Ok(text)
}

struct Found {
    path: Arc<Path>,
    text: String,
    values: Vec<FileValue>,
    problems: Vec<Problem>,
}

impl Found {
    fn source(&self, offset: usize) -> Source {
        let before = self.text.as_bytes().iter().take(offset);
        Source::File {
            path: self.path.clone(),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
        }
    }

    fn walk(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let source = self.source(name.span().start);
            let inner = format!("{key}.");
            match (settings::find(&key), value.get_ref()) {
                (Some(setting), value) => {
                    let text = match (setting.shape(), value) {
                        (Shape::Rules, DeValue::Array(items)) => self.rules(items),
                        _ => text_of(setting, value),
                    };
                    self.values.push(FileValue {
                        setting,
                        source,
                        text,
                    });
                }
                (None, DeValue::Table(table)) if is_table(&inner) => self.walk(&inner, table),
                (None, value) => self.unknown(&key, source, value),
            }
        }
    }

    /// An array of tables as JSON, each with its line.
    fn rules(&self, items: &DeArray<'_>) -> Result<String, Invalid> {
        let rules = items.iter().map(|item| {
            let mut rule = json(item.get_ref(), true)?;
            let Source::File { line, .. } = self.source(item.span().start) else {
                return Ok(rule);
            };
            if let Some(rule) = rule.as_object_mut() {
                rule.insert(LINE.to_owned(), line.into());
            }
            Ok(rule)
        });
        let rules = rules.collect::<Result<Vec<_>, Invalid>>()?;
        Ok(serde_json::Value::from(rules).to_string())
    }

    fn unknown(&mut self, key: &str, source: Source, value: &DeValue<'_>) {
        let inner = format!("{key}.");
        let hint = if is_table(&inner) {
            let keys: Vec<String> = settings::all()
                .filter(|s| s.key().starts_with(&inner))
                .map(|s| format!("`{}`", s.key()))
                .collect();
            let found = value.type_str();
            Some(format!(
                "`{key}` is a table, not a {found}: set {}",
                keys.join(", ")
            ))
        } else if let Some((_, last)) = key.rsplit_once('.')
            && settings::find(last).is_some()
        {
            Some(format!("`{last}` is no key of this table: {ABOVE_TABLES}"))
        } else {
            nearest_key(key).map(|known| format!("did you mean `{known}`?"))
        };
        let problem = Problem::unknown(source, "key", key.to_owned());
        self.problems.push(problem.hint(hint));
    }
}

/// What is wrong with a key that a table has taken: in TOML, all that stands below `[table]` belongs to it.
pub(super) const ABOVE_TABLES: &str = "write it above the first `[table]` of the file";

fn is_table(prefix: &str) -> bool {
    settings::all().any(|setting| setting.key().starts_with(prefix))
}

/// The nearest key: by its whole name, by its last part (`max_len` for `dead_letter.max_len`), or by the
/// name of its flag.
fn nearest_key(key: &str) -> Option<&'static str> {
    let alike = |s: &&'static dyn Definition| {
        s.flag().replace('-', "_") == key || s.key().rsplit('.').next() == Some(key)
    };
    settings::all()
        .find(alike)
        .map(Definition::key)
        .or_else(|| {
            let tables = settings::all().filter_map(|s| Some(s.key().split_once('.')?.0));
            nearest(key, settings::all().map(Definition::key).chain(tables))
        })
}

/// The text of a value, if it has the shape of the setting.
///
/// A number for a text counts as its digits. The type then accepts it (`group_start = 0`), or says which
/// unit is missing.
fn text_of(setting: &dyn Definition, value: &DeValue<'_>) -> Result<String, Invalid> {
    let shape = setting.shape();
    match (shape, value) {
        (Shape::Text, DeValue::String(text)) => Ok(text.to_string()),
        (Shape::Text | Shape::Integer | Shape::Number, DeValue::Integer(integer)) => {
            decimal(integer)
        }
        (Shape::Text | Shape::Number, DeValue::Float(float)) => Ok(float.as_str().to_owned()),
        (Shape::Bool, DeValue::Boolean(bool)) => Ok(bool.to_string()),
        (Shape::Table, DeValue::Table(table)) => object(table),
        (Shape::Strings | Shape::Tables, DeValue::Array(_))
        | (Shape::Map | Shape::Entries, DeValue::Table(_)) => {
            json(value, shape == Shape::Entries).map(|json| json.to_string())
        }
        _ => {
            let (wanted, example) = match shape {
                Shape::Text => ("a string", "\"...\""),
                Shape::Integer => ("an integer", "1"),
                Shape::Number => ("a number", "1.5"),
                Shape::Bool => ("a boolean", "true"),
                Shape::Strings => ("an array of strings", "[\"...\"]"),
                Shape::Tables => ("an array of tables", "[{ body = \"...\" }]"),
                Shape::Table => ("a table of strings", "{ name = \"value\" }"),
                Shape::Map => ("a table", "{ name = \"...\" }"),
                Shape::Rules => ("an array of tables", "[{ KEY = \"...\" }]"),
                Shape::Entries => ("a table of tables", "{ name = { file = \"...\" } }"),
            };
            let example = setting
                .default()
                .filter(|_| shape != Shape::Text)
                .unwrap_or(example);
            let found = value.type_str();
            Err(Invalid::new(format!("is a {found}, not {wanted}"))
                .hint(format!("write it like `{} = {example}`", setting.key())))
        }
    }
}

/// The same value in JSON. Numbers may stand in it only where a rule has them: those with a fraction become
/// texts.
fn json(value: &DeValue<'_>, has_numbers: bool) -> Result<serde_json::Value, Invalid> {
    Ok(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Integer(integer) if has_numbers => {
            let text = decimal(integer)?;
            text.parse::<i64>().map_or(text.into(), Into::into)
        }
        DeValue::Float(float) if has_numbers => float.as_str().into(),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => {
            let what = format!("holds a {}, but must hold strings", value.type_str());
            return Err(Invalid::new(what));
        }
        DeValue::Array(items) => {
            let items = items.iter().map(|item| json(item.get_ref(), has_numbers));
            items.collect::<Result<Vec<_>, _>>()?.into()
        }
        DeValue::Table(table) => {
            let pairs = table.iter().map(|(name, value)| {
                let value = json(value.get_ref(), has_numbers)?;
                Ok((name.get_ref().to_string(), value))
            });
            serde_json::Value::Object(pairs.collect::<Result<_, Invalid>>()?)
        }
    })
}

/// A table of texts as a JSON object. Errors do not repeat a value: it may be a secret.
fn object(table: &DeTable<'_>) -> Result<String, Invalid> {
    let mut values = BTreeMap::new();
    for (name, value) in table {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(integer) => decimal(integer)?,
            DeValue::Float(float) => float.as_str().to_owned(),
            DeValue::Boolean(bool) => bool.to_string(),
            other => {
                let what = format!("has a {} as `{}`", other.type_str(), name.get_ref());
                return Err(Invalid::new(what).hint("its values are strings"));
            }
        };
        values.insert(name.get_ref().to_string(), text);
    }
    serde_json::to_string(&values).map_err(|error| Invalid::new(error.to_string()))
}

fn decimal(integer: &DeInteger<'_>) -> Result<String, Invalid> {
    i128::from_str_radix(integer.as_str(), integer.radix())
        .map(|number| number.to_string())
        .map_err(|_| Invalid::new(format!("`{}` is not an integer", integer.as_str())))
}
