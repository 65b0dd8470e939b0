//! What an operator says about recorded calls.

use std::fmt;

use serde_json::{Value as Json, json};

use crate::values::table::texts;
use crate::values::{Invalid, Shape, Value, schema};

/// What a rule wants if an earlier attempt may have made a call, and its answer is not known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unknown {
    /// Make it again, with the same idempotency key.
    #[default]
    Again,
    /// Make no call of this rule that is not recorded.
    Fail,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Again => "again",
            Self::Fail => "fail",
        })
    }
}

/// That a handler may remember values: `[grant.journal]`. It has no keys.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct JournalGrant;

impl Value for JournalGrant {
    const TYPE: &'static str = "table";
    const SHAPE: Shape = Shape::Table;

    fn parse(text: &str) -> Result<Self, Invalid> {
        match serde_json::from_str::<serde_json::Map<_, Json>>(text) {
            Ok(table) if table.is_empty() => Ok(Self),
            _ => Err(Invalid::new("has no keys").hint("write `[grant.journal]` alone")),
        }
    }

    fn show(&self) -> String {
        "{}".to_owned()
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": false })
    }
}

/// A status of a response, or a class of them: `201`, `2xx`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Status {
    first: u16,
    count: u16,
}

impl Status {
    /// From 200 to 299.
    pub const SUCCESS: Self = Self {
        first: 200,
        count: 100,
    };

    /// Whether it covers this status.
    pub fn covers(self, status: u16) -> bool {
        (self.first..self.first + self.count).contains(&status)
    }

    fn read(text: &str) -> Option<Self> {
        let (digits, count) = match text.strip_suffix("xx") {
            Some(class) => (format!("{class}00"), 100),
            None => (text.to_owned(), 1),
        };
        let first = digits.parse().ok()?;
        (digits.len() == 3 && (200..600).contains(&first)).then_some(Self { first, count })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.first),
            _ => write!(f, "{}xx", self.first / 100),
        }
    }
}

texts! {
    Unknown: "`again` | `fail`", |text| match text {
        "again" => Ok(Self::Again),
        "fail" => Ok(Self::Fail),
        _ => Err("is neither `again` nor `fail`".to_owned()),
    }, schema::words(&["again", "fail"]);

    Status: "status", |text| Self::read(text).ok_or_else(|| {
        "is neither a status like `201` nor a class like `2xx`".to_owned()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_or_a_class() {
        let created = Status::read("201").unwrap();
        assert!(created.covers(201) && !created.covers(200));
        let class = Status::read("4xx").unwrap();
        assert!(class.covers(400) && class.covers(499) && !class.covers(500));
        assert_eq!(
            (created.to_string(), class.to_string()),
            ("201".to_owned(), "4xx".to_owned())
        );
        for wrong in ["", "2", "2x", "1xx", "6xx", "600", "0200", "xx", "+20"] {
            assert_eq!(Status::read(wrong), None, "{wrong}");
        }
    }
}
