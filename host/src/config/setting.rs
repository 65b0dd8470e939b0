//! The definition of one setting, and the constraints on it.

use std::marker::PhantomData;

use serde_json::Value as Json;

use crate::delivery::policy::Reason;
use crate::values::{Invalid, Shape, Value};

/// A condition on the value that the type alone does not express.
type Check<T> = fn(&T) -> Result<(), Invalid>;

/// The least and the greatest value.
struct Range<T> {
    ends: fn() -> (T, T),
    check: fn(&T, (T, T)) -> Result<(), Invalid>,
}

/// An error unless a value is neither too low nor too high.
pub(super) fn in_range<T: Value + PartialOrd>(
    value: &T,
    (low, high): (T, T),
) -> Result<(), Invalid> {
    let what = if *value < low {
        "less"
    } else if *value > high {
        "more"
    } else {
        return Ok(());
    };
    Err(
        Invalid::new(format!("`{}` is {what} than allowed", value.show())).hint(format!(
            "the range is {} to {}",
            low.show(),
            high.show()
        )),
    )
}

/// The reasons for which messages are given up under a value.
type Loses<T> = fn(&T) -> &'static [Reason];

/// A kind of queue, as far as settings differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A stream, through a consumer group.
    Stream,
    /// A list, through processing lists.
    ReliableList,
    /// A list, at most once.
    SimpleList,
    /// A channel, a pattern, or a sharded channel.
    Subscription,
}

/// The kinds of queues for which a setting has a meaning.
pub(super) struct Kinds {
    pub(super) kinds: &'static [Kind],
    /// The error for other kinds: it follows the name of the setting.
    pub(super) otherwise: &'static str,
    pub(super) hint: &'static str,
}

/// The facts about a setting that do not depend on its type.
pub struct Facts {
    key: &'static str,
    meaning: &'static str,
    flag: Option<&'static str>,
    placeholder: &'static str,
    default: Option<&'static str>,
    unset: &'static str,
    variable_only: bool,
    live: bool,
    live_in_file: bool,
    /// An error unless this setting is set as well.
    pub(super) only_with: Option<&'static dyn Definition>,
    /// A warning unless this setting is set as well. A policy may still set it.
    pub(super) idle_without: Option<&'static dyn Definition>,
    /// An error for other kinds of queues.
    pub(super) kinds: Option<&'static Kinds>,
}

/// One setting, of type `T`. Its TOML key, variable, flag, help, `check` and `docs/configuration.md` come
/// from here.
pub struct Setting<T> {
    facts: Facts,
    range: Option<Range<T>>,
    check: Option<Check<T>>,
    loses: Option<Loses<T>>,
    value: PhantomData<fn() -> T>,
}

/// The facts that a definition may state, each as a function that sets one field.
macro_rules! stated {
    ($($(#[$doc:meta])+ $fact:ident($($value:ident: $type:ty)?) = $set:expr;)+) => {
        impl<T: Value> Setting<T> {$(
            $(#[$doc])+
            pub(super) const fn $fact(mut self $(, $value: $type)?) -> Self {
                self.facts.$fact = $set;
                self
            }
        )+}
    };
}

stated! {
    /// The text of the default.
    default(text: &'static str) = Some(text);
    /// It has no default. The text says what the host does without it.
    unset(meaning: &'static str) = meaning;
    /// A flag (and variable) with another name than the key.
    flag(flag: &'static str) = Some(flag);
    /// Only a variable may hold it: files are shared, and every user can read the flags of a process.
    variable_only() = true;
    /// It may change while a host runs: by a policy, or in the file.
    live() = true;
    /// It may change in the file while a host runs, but not by a policy.
    live_in_file() = true;
    /// It needs this setting as well.
    only_with(other: &'static dyn Definition) = Some(other);
    /// It does nothing without this setting.
    idle_without(other: &'static dyn Definition) = Some(other);
    /// It has a meaning for these kinds of queues only.
    kinds(kinds: &'static Kinds) = Some(kinds);
}

impl<T: Value> Setting<T> {
    pub(super) const fn new(
        key: &'static str,
        placeholder: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            facts: Facts {
                key,
                meaning,
                flag: None,
                placeholder,
                default: None,
                unset: "",
                variable_only: false,
                live: false,
                live_in_file: false,
                only_with: None,
                idle_without: None,
                kinds: None,
            },
            range: None,
            check: None,
            loses: None,
            value: PhantomData,
        }
    }

    /// A condition on the value that the type alone does not express.
    pub(super) const fn check(mut self, check: Check<T>) -> Self {
        self.check = Some(check);
        self
    }

    /// The reasons for which messages are given up, by the value. They need a dead-letter queue, or routes to
    /// `discard`.
    pub(super) const fn loses(mut self, loses: Loses<T>) -> Self {
        self.loses = Some(loses);
        self
    }

    /// Read and check a text.
    pub(super) fn parse(&self, text: &str) -> Result<T, Invalid> {
        let value = T::parse(text)?;
        if let Some(range) = &self.range {
            (range.check)(&value, (range.ends)())?;
        }
        if let Some(check) = self.check {
            check(&value)?;
        }
        Ok(value)
    }
}

impl<T: Value + PartialOrd> Setting<T> {
    /// The least and the greatest value.
    pub(super) const fn range(mut self, ends: fn() -> (T, T)) -> Self {
        let check = in_range::<T>;
        self.range = Some(Range { ends, check });
        self
    }
}

/// A setting of any type.
pub trait Definition: Sync {
    /// The facts that do not depend on its type.
    fn facts(&self) -> &Facts;
    /// The word for its type.
    fn type_name(&self) -> &'static str;
    /// The shape of its value in TOML.
    fn shape(&self) -> Shape;
    /// The least and the greatest value, if the setting has a narrower range than its type.
    fn range(&self) -> Option<(String, String)>;
    /// The JSON Schema of its value in TOML, without what the setting means.
    fn schema(&self) -> Json;
    /// Read a text, check it, and show the value, secrets masked.
    fn show(&self, text: &str) -> Result<String, Invalid>;
    /// The reasons for which messages are given up under this value.
    fn losses(&self, text: &str) -> &'static [Reason];

    /// The name in TOML, tables dotted.
    fn key(&self) -> &'static str {
        self.facts().key
    }

    /// The name of the flag, without dashes.
    fn flag(&self) -> String {
        let flag = self.facts().flag.map(str::to_owned);
        flag.unwrap_or_else(|| self.key().replace(['.', '_'], "-"))
    }

    /// The name of the variable.
    fn variable(&self) -> String {
        format!("HOSTLER_{}", self.flag().replace('-', "_").to_uppercase())
    }

    /// The name of its value in the help.
    fn placeholder(&self) -> &'static str {
        self.facts().placeholder
    }

    /// The meaning, in a few sentences.
    fn meaning(&self) -> &'static str {
        self.facts().meaning
    }

    /// The text of its default.
    fn default(&self) -> Option<&'static str> {
        self.facts().default
    }

    /// The consequence if it is not set and there is no default.
    fn unset(&self) -> &'static str {
        self.facts().unset
    }

    /// Whether only a variable may hold it.
    fn is_variable_only(&self) -> bool {
        self.facts().variable_only
    }

    /// Whether it may change while a host runs: by a policy, or in the file.
    fn is_live(&self) -> bool {
        self.facts().live
    }

    /// Whether a change in the file applies while a host runs.
    fn is_live_in_file(&self) -> bool {
        self.facts().live || self.facts().live_in_file
    }
}

impl<T: Value> Definition for Setting<T> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn type_name(&self) -> &'static str {
        T::TYPE
    }

    fn shape(&self) -> Shape {
        T::SHAPE
    }

    fn range(&self) -> Option<(String, String)> {
        let range = self.range.as_ref()?;
        let (low, high) = (range.ends)();
        Some((low.show(), high.show()))
    }

    fn schema(&self) -> Json {
        T::schema()
    }

    fn show(&self, text: &str) -> Result<String, Invalid> {
        self.parse(text).map(|value| value.show())
    }

    fn losses(&self, text: &str) -> &'static [Reason] {
        match (self.loses, self.parse(text)) {
            (Some(loses), Ok(value)) => loses(&value),
            _ => &[],
        }
    }
}
