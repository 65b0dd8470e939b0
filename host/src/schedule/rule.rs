//! The schedules of a configuration: `[schedule.NAME]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use crate::delivery::message::MESSAGE_ID;
use crate::schedule::definition::HEADERS_MAX;
use crate::schedule::ticks::{CATCH_UP_MAX, CatchUp, Timing};
use crate::values::table::{RULES_MAX, Rule, Table, printed, rule, texts};
use crate::values::{Invalid, Shape, Value};

/// The longest name.
const NAME_MAX: usize = 64;

/// A schedule of a configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScheduleRule {
    /// Its name.
    pub name: String,
    /// The rest.
    pub written: Written,
}

rule! {
    /// A schedule, as it is written behind its name.
    pub struct Written: "schedule", "";
    /// When: minute, hour, day, month, weekday; with six fields, a second first.
    required cron: String;
    /// The time zone of these times. If not given: UTC.
    optional zone: String;
    /// The body of each message. If not given: empty.
    optional body: String;
    /// A file with the body, read at the start.
    optional body_file: PathBuf;
    /// The headers of each message.
    default headers: HeaderTable = HeaderTable::default();
    /// Which missed ticks are published: `none`, `last`, or how many of the last ones. If not given: last.
    default catch_up: CatchUp = CatchUp::default();
    /// `skip`: no message while the group of this queue has not settled the one before. Streams only. If not given: allow.
    default overlap: Overlap = Overlap::Allow;
    settle |rule, table, _| {
        if rule.body.is_some() && rule.body_file.is_some() {
            table.problem("has `body` and `body_file`: leave one out");
        }
        if let Err(error) = Timing::checked(&rule.cron, rule.zone()) {
            table.problem(error.to_string());
        }
    };
}

impl Written {
    /// The time zone.
    pub fn zone(&self) -> &str {
        self.zone.as_deref().unwrap_or("UTC")
    }
}

/// What happens while the message before is not settled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overlap {
    /// The next one is published.
    Allow,
    /// The tick is skipped.
    Skip,
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
        })
    }
}

texts! {
    Overlap: "`allow` or `skip`", |text| match text {
        "allow" => Ok(Self::Allow),
        "skip" => Ok(Self::Skip),
        _ => Err("is neither `allow` nor `skip`".to_owned()),
    }, json!({ "enum": ["allow", "skip"] });

    CatchUp: "`none`, `last` or a number", |text| Self::read(text).ok_or_else(|| {
        format!("is not `none`, `last` or a number from 1 to {CATCH_UP_MAX}")
    }), json!({ "oneOf": [
        { "enum": ["none", "last"] },
        { "type": "integer", "minimum": 1, "maximum": CATCH_UP_MAX },
    ] });
}

/// Headers of messages.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderTable(pub BTreeMap<String, String>);

impl HeaderTable {
    /// These headers, if a schedule may have them.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn new(headers: BTreeMap<String, String>) -> Result<Self, String> {
        let own = headers
            .keys()
            .find(|name| name.eq_ignore_ascii_case(MESSAGE_ID));
        if let Some(own) = own {
            return Err(format!("`{own}` is the id of the tick: leave it out"));
        }
        if headers.contains_key("") {
            return Err("the name of a header is empty".to_owned());
        }
        if headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            > HEADERS_MAX
        {
            return Err(format!("the headers have more than {HEADERS_MAX} bytes"));
        }
        Ok(Self(headers))
    }
}

impl Value for HeaderTable {
    const TYPE: &'static str = "table of strings";
    const SHAPE: Shape = Shape::Table;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let headers = serde_json::from_str(text)
            .map_err(|_| Invalid::new("`headers` is not a table of texts"))?;
        Self::new(headers).map_err(Invalid::new)
    }

    fn show(&self) -> String {
        json!(self.0).to_string()
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": { "type": "string" } })
    }
}

/// Check the name of a schedule.
///
/// # Errors
/// What is wrong, for people.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    match (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "a name has 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`"
        )),
    }
}

impl Value for Vec<ScheduleRule> {
    const TYPE: &'static str = "table of tables";
    const SHAPE: Shape = Shape::Entries;

    fn parse(text: &str) -> Result<Self, Invalid> {
        const HINT: &str = "write `[schedule.nightly]`, and below it `cron = \"30 2 * * *\"`";
        let entries: Map<String, Json> = serde_json::from_str(text)
            .map_err(|_| Invalid::new("is not a JSON object of objects").hint(HINT))?;
        let (mut problems, mut rules) = (Vec::new(), Self::new());
        for (name, entry) in &entries {
            let Json::Object(map) = entry else {
                let what = format!("`{}` is not a table", printed(name));
                problems.push(Invalid::new(what).hint(HINT));
                continue;
            };
            let mut table = Table::new(map, format!("`{}`", printed(name)), &mut problems);
            if let Err(error) = check_name(name) {
                table.problem(error);
            }
            if let Some(mut written) = Written::read(&mut table) {
                written.settle(&mut table, &[]);
                rules.push(ScheduleRule {
                    name: name.clone(),
                    written,
                });
            }
            table.end();
        }
        if rules.len() > RULES_MAX {
            problems.push(Invalid::new(format!("has more than {RULES_MAX} schedules")));
        }
        Invalid::all(problems)?;
        Ok(rules)
    }

    fn show(&self) -> String {
        let entries = self.iter();
        let entries = entries.map(|rule| (rule.name.clone(), rule.written.show()));
        Json::Object(entries.collect()).to_string()
    }

    fn beside(self, folder: &Path) -> Self {
        let rules = self.into_iter().map(|rule| ScheduleRule {
            written: rule.written.beside(folder),
            ..rule
        });
        rules.collect()
    }

    fn schema() -> Json {
        json!({
            "type": "object",
            "propertyNames": { "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{NAME_MAX}}}$") },
            "maxProperties": RULES_MAX,
            "additionalProperties": Written::schema(),
        })
    }
}
