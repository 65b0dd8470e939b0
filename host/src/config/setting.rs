//! The definition of one setting: everything else about it is derived from here.

use std::marker::PhantomData;

use crate::config::value::{Invalid, Shape, Value};

/// What the type alone does not say.
type Check<T> = fn(&T) -> Result<(), Invalid>;

/// One setting, of type `T`. The one place that says what it is called, means and defaults to:
/// TOML key, variable, flag, help, `check` and `docs/configuration.md` come from here.
pub struct Setting<T> {
    key: &'static str,
    meaning: &'static str,
    flag: Option<&'static str>,
    placeholder: &'static str,
    default: Option<&'static str>,
    unset: &'static str,
    variable_only: bool,
    live: bool,
    check: Option<Check<T>>,
    value: PhantomData<fn() -> T>,
}

impl<T: Value> Setting<T> {
    pub(super) const fn new(
        key: &'static str,
        placeholder: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            key,
            meaning,
            flag: None,
            placeholder,
            default: None,
            unset: "",
            variable_only: false,
            live: false,
            check: None,
            value: PhantomData,
        }
    }

    /// The text of the default.
    pub(super) const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    /// There is no default: what it means when nobody sets it.
    pub(super) const fn unset(mut self, meaning: &'static str) -> Self {
        self.unset = meaning;
        self
    }

    /// A flag (and variable) that is not named like the key.
    pub(super) const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    /// Only a variable may hold it: files are shared, and argv is seen by everybody.
    pub(super) const fn variable_only(mut self) -> Self {
        self.variable_only = true;
        self
    }

    /// It may change under a running host: by a policy, or in the file.
    pub(super) const fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// What the type alone does not say.
    pub(super) const fn check(mut self, check: Check<T>) -> Self {
        self.check = Some(check);
        self
    }

    /// Read and check a text.
    pub(super) fn parse(&self, text: &str) -> Result<T, Invalid> {
        let value = T::parse(text)?;
        if let Some(check) = self.check {
            check(&value)?;
        }
        Ok(value)
    }

    /// The name in TOML, tables dotted.
    pub const fn key(&self) -> &'static str {
        self.key
    }
}

/// A setting of any type.
pub trait Definition: Sync {
    /// The name in TOML, tables dotted.
    fn key(&self) -> &'static str;
    /// The name of the flag, without dashes.
    fn flag(&self) -> String;
    /// The name of the variable.
    fn variable(&self) -> String;
    /// What the help calls its value.
    fn placeholder(&self) -> &'static str;
    /// What it means, in one or two sentences.
    fn meaning(&self) -> &'static str;
    /// The word for its type.
    fn type_name(&self) -> &'static str;
    /// What it looks like in TOML.
    fn shape(&self) -> Shape;
    /// The text of its default.
    fn default(&self) -> Option<&'static str>;
    /// What it means that nobody sets it, if there is no default.
    fn unset(&self) -> &'static str;
    /// Whether only a variable may hold it.
    fn is_variable_only(&self) -> bool;
    /// Whether it may change under a running host: by a policy, or in the file.
    fn is_live(&self) -> bool;
    /// Read a text, check it, and show what was read, secrets masked.
    fn show(&self, text: &str) -> Result<String, Invalid>;
}

impl<T: Value> Definition for Setting<T> {
    fn key(&self) -> &'static str {
        self.key
    }

    fn flag(&self) -> String {
        match self.flag {
            Some(flag) => flag.to_owned(),
            None => self.key.replace(['.', '_'], "-"),
        }
    }

    fn variable(&self) -> String {
        format!("HOSTLER_{}", self.flag().replace('-', "_").to_uppercase())
    }

    fn placeholder(&self) -> &'static str {
        self.placeholder
    }

    fn meaning(&self) -> &'static str {
        self.meaning
    }

    fn type_name(&self) -> &'static str {
        T::TYPE
    }

    fn shape(&self) -> Shape {
        T::SHAPE
    }

    fn default(&self) -> Option<&'static str> {
        self.default
    }

    fn unset(&self) -> &'static str {
        self.unset
    }

    fn is_variable_only(&self) -> bool {
        self.variable_only
    }

    fn is_live(&self) -> bool {
        self.live
    }

    fn show(&self, text: &str) -> Result<String, Invalid> {
        self.parse(text).map(|value| value.show())
    }
}
