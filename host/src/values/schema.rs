//! Parts of JSON Schemas, from which types of settings and the files of hostler make theirs.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

/// The dialect of all schemas here: the newest that editors for TOML read.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// The schema of a type that is read by `serde`, as a document of its own.
pub fn of_document<T: JsonSchema>(title: &str, description: &str) -> Json {
    let mut own = of_type::<T>();
    if let Some(own) = own.as_object_mut() {
        own.remove("description");
    }
    document(title, description, own)
}

/// A schema as a document of its own.
pub(crate) fn document(title: &str, description: &str, own: Json) -> Json {
    let mut schema = json!({ "$schema": DRAFT, "title": title, "description": description });
    if let (Some(schema), Json::Object(own)) = (schema.as_object_mut(), own) {
        schema.extend(own);
    }
    schema
}

/// The schema of a type that is read by `serde`.
pub(crate) fn of_type<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema: Json = settings.into_generator().into_root_schema_for::<T>().into();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
    }
    schema
}

/// A text that matches a pattern.
pub(crate) fn text(pattern: &str) -> Json {
    json!({ "type": "string", "pattern": pattern })
}

/// One of these words. A number may also be written without quotes.
pub(crate) fn words(words: &[&str]) -> Json {
    let numbers = words.iter().filter_map(|word| word.parse::<i64>().ok());
    let texts = words.iter().map(|word| Json::from(*word));
    json!({ "enum": texts.chain(numbers.map(Json::from)).collect::<Vec<_>>() })
}

/// A pattern for a word in small or large letters.
pub(crate) fn any_case(word: &str) -> String {
    let either = |c: char| format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase());
    word.chars().map(either).collect()
}

/// A schema with its meaning.
pub(crate) fn about(mut schema: Json, meaning: &str) -> Json {
    schema["description"] = meaning.into();
    schema
}

/// A table with these keys, and no others. Each has its schema, and whether it must be there.
pub(crate) fn table<const N: usize>(keys: [(&str, bool, Json); N]) -> Json {
    let required = keys.iter().filter(|(_, is_required, _)| *is_required);
    let required: Vec<&str> = required.map(|(key, ..)| *key).collect();
    let keys = keys
        .iter()
        .map(|(key, _, schema)| ((*key).to_owned(), schema.clone()));
    let mut table = table_of(keys.collect());
    if !required.is_empty() {
        table["required"] = required.into();
    }
    table
}

/// The same with any number of keys, none of which must be there.
pub(crate) fn table_of(keys: Map<String, Json>) -> Json {
    json!({ "type": "object", "properties": keys, "additionalProperties": false })
}
