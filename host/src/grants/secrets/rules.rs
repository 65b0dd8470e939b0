//! The secrets of a handler: `[grant.secret]`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use crate::grants::name::Name;
use crate::values::table::{RULES_MAX, Rule, Table, printed, rule};
use crate::values::{Invalid, Shape, Value};

/// A secret.
#[derive(Clone, Debug)]
pub struct SecretRule {
    /// Its name.
    pub name: String,
    /// Where its value is.
    pub source: SecretSource,
    /// Whether the guest may read it.
    pub expose: bool,
}

/// Where the value of a secret is.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// The content of this file, without the line end behind it.
    File(PathBuf),
    /// The value of this variable, as it was at the start; `None` = it is not set.
    Variable(String, Option<crate::redis::target::Secret>),
}

rule! {
    /// A secret, as it is written behind its name.
    pub struct Written: "secret", "";
    /// The file whose content is the secret.
    optional file: PathBuf;
    /// The variable whose value is the secret.
    optional variable: String;
    /// The handler may read it. If not given: false.
    optional expose: bool;
    settle |_, _, _| ();
}

impl Value for Vec<SecretRule> {
    const TYPE: &'static str = "table of tables";
    const SHAPE: Shape = Shape::Entries;

    fn parse(text: &str) -> Result<Self, Invalid> {
        // The error of the parser could repeat a value.
        let entries: Map<String, Json> = serde_json::from_str(text).map_err(|_| {
            Invalid::new("is not a JSON object of objects")
                .hint("write `{\"stripe\":{\"file\":\"/run/secrets/stripe\"}}`")
        })?;
        let (mut problems, mut rules) = (Vec::new(), Self::new());
        for (name, entry) in &entries {
            let Json::Object(map) = entry else {
                let what = format!("`{}` is not a table", printed(name));
                let hint = "write `name = { file = \"...\" }`: the value of a secret is never in a \
                            configuration";
                problems.push(Invalid::new(what).hint(hint));
                continue;
            };
            let mut table = Table::new(map, format!("`{}`", printed(name)), &mut problems);
            if let Err(error) = Name::parse(name) {
                table.problem(error.what);
            }
            let source = match Written::read(&mut table) {
                Some(Written {
                    file: Some(file),
                    variable: None,
                    expose,
                }) => Some((SecretSource::File(file), expose)),
                Some(Written {
                    file: None,
                    variable: Some(variable),
                    expose,
                }) => Some((SecretSource::Variable(variable, None), expose)),
                _ => {
                    table.problem("needs either `file` or `variable`");
                    None
                }
            };
            table.end();
            rules.extend(source.map(|(source, expose)| SecretRule {
                name: name.clone(),
                source,
                expose: expose.unwrap_or(false),
            }));
        }
        if rules.len() > RULES_MAX {
            problems.push(Invalid::new(format!("has more than {RULES_MAX} secrets")));
        }
        Invalid::all(problems)?;
        Ok(rules)
    }

    fn show(&self) -> String {
        let entries = self.iter().map(|rule| {
            let (file, variable) = match &rule.source {
                SecretSource::File(path) => (Some(path.clone()), None),
                SecretSource::Variable(name, _) => (None, Some(name.clone())),
            };
            let expose = rule.expose.then_some(true);
            let written = Written {
                file,
                variable,
                expose,
            };
            (rule.name.clone(), written.show())
        });
        Json::Object(entries.collect()).to_string()
    }

    fn beside(mut self, folder: &Path) -> Self {
        for rule in &mut self {
            if let SecretSource::File(path) = &mut rule.source {
                *path = folder.join(&path);
            }
        }
        self
    }

    fn schema() -> Json {
        let mut entry = Written::schema();
        entry["oneOf"] = json!([{ "required": ["file"] }, { "required": ["variable"] }]);
        json!({
            "type": "object",
            "propertyNames": Name::schema(),
            "maxProperties": RULES_MAX,
            "additionalProperties": entry,
        })
    }
}
