//! The JSON Schema of a configuration file: made from the table of settings, so that editors complete and
//! check what hostler reads.
//!
//! Whatever the schema accepts has the right form. `hostler check --config` also knows which settings go
//! together.

use serde_json::{Map, Value as Json};

use crate::config::setting::Definition;
use crate::config::settings::SECTIONS;
use crate::values::Shape;
use crate::values::schema::{about, document, table_of};

/// The schema of `hostler.toml`.
pub fn of_settings() -> Json {
    let mut root = table_of(Map::new());
    for section in SECTIONS {
        for setting in section.settings.iter().filter(|s| !s.is_variable_only()) {
            insert(&mut root, setting.key(), of_setting(*setting));
        }
    }
    let description = "The configuration of one queue of hostler.";
    document("hostler.toml", description, root)
}

/// The schema of one setting: its type, its range, its meaning and its default.
fn of_setting(setting: &dyn Definition) -> Json {
    let mut schema = setting.schema();
    let mut meaning = setting.meaning().to_owned();
    if let Some((low, high)) = setting.range() {
        match setting.shape() {
            Shape::Integer | Shape::Number => {
                schema["minimum"] = typed(Shape::Number, &low);
                schema["maximum"] = typed(Shape::Number, &high);
            }
            _ => meaning.push_str(&format!(" The range is {low} to {high}.")),
        }
    }
    match setting.default() {
        Some(default) => schema["default"] = typed(setting.shape(), default),
        None => meaning.push_str(&format!(" If it is not set: {}.", setting.unset())),
    }
    about(schema, &meaning)
}

/// The text of a setting in the shape that it has in TOML. Only texts of the table of settings come here,
/// and texts that have been checked.
pub(super) fn typed(shape: Shape, text: &str) -> Json {
    match shape {
        Shape::Text => text.into(),
        _ => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

/// Insert the schema of a dotted key, and the tables around it.
fn insert(table: &mut Json, key: &str, schema: Json) {
    match key.split_once('.') {
        Some((first, rest)) => {
            let inner = &mut table["properties"][first];
            if inner.is_null() {
                *inner = table_of(Map::new());
            }
            insert(inner, rest, schema);
        }
        None => table["properties"][key] = schema,
    }
}
