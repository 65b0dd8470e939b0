//! How many messages may start in a time, or run at once: `[[flow.limit]]`.

use std::fmt;
use std::sync::Arc;

use crate::delivery::flow::{BURST_MAX, Pace, Rate};
use crate::queue::limits::{Allows, Limit, Place};
use crate::values::schema;
use crate::values::table::{Table, UpTo, rule, texts, with_value};

/// The most attempts at once.
const ATTEMPTS_MAX: u32 = 1_000_000;
/// The longest name of a limit.
const NAME_MAX: usize = 64;

rule! {
    /// How many messages may start in a time, or run at once, over all hosts.
    pub struct LimitRule: "limit", "{\"name\":\"payments\",\"rate\":\"100/s\"}";
    /// The name. All queues that name the same limit share it.
    required name: String, as schema::text("^[A-Za-z0-9._-]{1,64}$");
    /// How many messages may start: `100/s`, `600/min` or `5000/h`.
    optional rate: Rate, as schema::text("^[0-9]+/(s|min|h)$");
    /// How many attempts there may be at once, instead of a rate.
    optional concurrency: UpTo<{ ATTEMPTS_MAX as usize }>;
    /// How many may start at once: those of 20 ms, at least one, if not given.
    optional burst: UpTo<{ BURST_MAX as usize }>;
    /// One limit for each value of a header, `header:tenant`, or of a place in a body in JSON, `json:/customer/id`.
    optional by: Part;
    /// The units of a message: `header:tokens` or `json:/tokens`. Each counts as one if not given.
    optional units: Part;
    settle Self::settle;
}

impl LimitRule {
    fn settle(&mut self, table: &mut Table<'_>, others: &[Self]) {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if !(1..=NAME_MAX).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            let why = format!("has not 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`");
            table.problem(format!("`name`: {}", with_value(&self.name, &why)));
        }
        if others.iter().any(|other| other.name == self.name) {
            table.problem(format!("the name `{}` is there twice", self.name));
        }
        let why = "it comes with several streams in one process";
        match (&self.rate, &self.concurrency) {
            (None, None) => table.problem("neither `rate` nor `concurrency` is there"),
            (Some(_), Some(_)) => table.problem("`rate` and `concurrency`: write two limits"),
            (None, Some(_)) if self.by.is_some() => {
                table.problem(format!("`concurrency` with `by` is not there yet: {why}"));
            }
            (None, Some(_)) if self.burst.is_some() || self.units.is_some() => {
                table.problem("`burst` and `units` are of a `rate`, not of a `concurrency`");
            }
            _ => {}
        }
        if self.by.is_some() && others.iter().any(|other| other.by.is_some()) {
            table.problem("`by`: a queue has one limit with a key at most");
        }
    }

    /// The limit. It has a rate or a concurrency.
    pub fn limit(&self) -> Option<Limit> {
        let attempts = self.concurrency.as_ref().map(|most| {
            let most = u32::try_from(most.0).unwrap_or(ATTEMPTS_MAX);
            Allows::Attempts(most)
        });
        let starts = self.rate.map(|rate| {
            let burst = self.burst.as_ref();
            let burst = burst.and_then(|burst| u32::try_from(burst.0).ok());
            let burst = burst.unwrap_or_else(|| rate.usual_burst());
            Allows::Starts(Pace { rate, burst })
        });
        Some(Limit {
            name: Arc::from(&*self.name),
            allows: attempts.or(starts)?,
            by: self.by.as_ref().map(|by| by.0.clone()),
            units: self.units.as_ref().map(|units| units.0.clone()),
        })
    }
}

/// A place in a message, as it is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part(Place);

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        let name = |name: &str| Some(name.to_lowercase()).filter(|name| !name.is_empty());
        let place = match text.split_once(':') {
            Some(("header", header)) => name(header).map(Place::Header),
            Some(("json", pointer)) if pointer.starts_with('/') => {
                Some(Place::Json(pointer.to_owned()))
            }
            _ => None,
        };
        place.map(Self).ok_or_else(|| {
            "is neither `header:NAME` nor `json:/PATH`, a pointer into the body".to_owned()
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

texts! {
    Rate: "rate", |text| Self::parse(text).map_err(|error| error.to_string());

    Part: "place", Self::parse, schema::text("^(header:.+|json:/.*)$");
}
