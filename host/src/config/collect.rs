//! Collects the settings from the file, the variables, the flags and the policies, and checks each value.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::config::file::{self, ABOVE_TABLES, FileValue};
use crate::config::problem::{Problem, ProblemKind, Source};
use crate::config::setting::{Definition, Kind, Setting};
use crate::config::settings::{self, Section, server};
use crate::redis::target::Secret;
use crate::values::{Invalid, Stray, Value, nearest};

/// The beginning of every variable of hostler.
pub const VARIABLE_PREFIX: &str = "HOSTLER_";
/// The version that a package or an image names: many set it, and no setting has this name.
const VERSION_VARIABLE: &str = "HOSTLER_VERSION";
/// The settings that name a queue.
pub const QUEUE_KEYS: [&str; 5] = ["stream", "list", "channel", "pattern", "sharded_channel"];
/// The variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "HOSTLER_CONFIG";

/// The sources of settings. Nothing else is read, not even the environment of the process.
#[derive(Clone, Default)]
pub struct Input<'a> {
    /// The configuration file.
    pub file: Option<&'a Path>,
    /// The file was found, not named: the flags and variables about the server, or about another queue, replace
    /// all that it says about these.
    pub is_beside: bool,
    /// The text of the file, if it has been read.
    pub file_text: Option<&'a str>,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The flags: the key of the setting and the text given.
    pub flags: Vec<(&'static str, String)>,
    /// The policies for the queue: for each setting the one with the highest precedence.
    pub policies: Vec<PolicyValue>,
}

/// The value that a policy gives to one setting.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicyValue {
    /// The key of the setting.
    pub key: String,
    /// The text of its value.
    pub text: String,
    /// The target of the policy: the key of a queue, or a pattern.
    pub target: Arc<str>,
}

/// The settings that were set. Each value is checked by itself.
#[derive(Debug, Default)]
pub struct Collected {
    given: BTreeMap<&'static str, Given>,
    /// The problems so far.
    pub problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// It holds only policies: the other settings of the host are not known.
    pub(super) is_partial: bool,
    /// The folder of the file, if that is not the working directory.
    pub(super) folder: Option<PathBuf>,
    /// The cache directory of this user.
    pub(super) user_cache: Option<PathBuf>,
    /// The variables that secrets are read from. Every one may be a secret.
    variables: BTreeMap<OsString, Secret>,
}

/// The value that counts for a setting that was set.
#[derive(Debug)]
struct Given {
    source: Source,
    /// `None`: it is among the problems. Every text may be a secret.
    text: Option<Secret>,
}

/// One setting with its value and its source, for `check --config`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Effective {
    /// The name.
    pub key: &'static str,
    /// Whether it may change while a host runs.
    #[serde(skip)]
    pub is_live: bool,
    /// Whether a change in the file applies while a host runs.
    #[serde(skip)]
    pub is_live_in_file: bool,
    /// The value, secrets masked; `None` = it is not set and has no default.
    pub value: Option<String>,
    /// The source of the value.
    pub source: Source,
}

impl Collected {
    /// Collect everything. This never fails: problems are in `problems`.
    pub fn new(input: Input<'_>) -> Self {
        let readable = |(name, value): &(OsString, OsString)| {
            Some((name.clone(), Secret::new(value.to_str()?)))
        };
        let mut collected = Self {
            user_cache: user_cache(&input.variables),
            variables: input.variables.iter().filter_map(readable).collect(),
            ..Self::default()
        };
        if let Some(path) = input.file {
            let (mut values, problems) = match input.file_text {
                Some(text) => file::parse(path, text.to_owned()),
                None => file::read(path),
            };
            if input.is_beside {
                retain_unreplaced(&mut values, &input);
            }
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            collected.folder = folder.map(Path::to_owned);
            collected.problems.extend(problems);
            for value in values {
                collected.give(value.setting, value.source, value.text);
            }
        }
        for policy in input.policies {
            collected.read_policy(policy);
        }
        collected.read_variables(input.variables);
        for (key, text) in input.flags {
            let setting = settings::find(key).expect("flags are made from the settings");
            let source = Source::Flag(format!("--{}", setting.flag()));
            collected.give(setting, source, Ok(text));
        }
        collected.problems.sort_by(|a, b| a.source.cmp(&b.source));
        collected
    }

    /// Policies alone.
    pub fn of_policies(policies: Vec<PolicyValue>) -> Self {
        Self::new(Input {
            policies,
            ..Input::default()
        })
    }

    fn read_variables(&mut self, variables: Vec<(OsString, OsString)>) {
        let mut ours: Vec<(String, OsString)> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX) && name != CONFIG_VARIABLE)
            .filter(|(name, _)| !is_service_link(name))
            .collect();
        ours.sort();
        for (name, value) in ours {
            let Some(setting) = settings::all().find(|s| s.variable() == name) else {
                self.unknown_variable(name);
                continue;
            };
            let text = value
                .into_string()
                .map_err(|_| Invalid::new("is not UTF-8"));
            self.give(setting, Source::Variable(name), text);
        }
    }

    fn read_policy(&mut self, policy: PolicyValue) {
        let source = Source::Policy(policy.target);
        match settings::find(&policy.key) {
            Some(setting) => self.give(setting, source, Ok(policy.text)),
            None => {
                let problem = Problem::unknown(source, "setting", policy.key);
                self.problems.push(problem);
            }
        }
    }

    fn unknown_variable(&mut self, name: String) {
        if name == VERSION_VARIABLE {
            let problem = Problem::unknown(None, "variable", name);
            let hint = "hostler has no such setting: it is ignored".to_owned();
            self.warnings.push(problem.hint(hint));
            return;
        }
        let known: Vec<String> = settings::all().map(Definition::variable).collect();
        let hint = nearest(&name, known.iter().map(String::as_str))
            .map(|known| format!("did you mean `{known}`?"));
        self.problems
            .push(Problem::unknown(None, "variable", name).hint(hint));
    }

    /// A value for a setting. It counts unless a source of higher precedence gave one before.
    fn give(
        &mut self,
        setting: &'static dyn Definition,
        source: Source,
        text: Result<String, Invalid>,
    ) {
        let is_file = matches!(source, Source::File { .. });
        let is_fixed = matches!(source, Source::Policy(_)) && !setting.is_live();
        let misplaced = setting.is_variable_only() && !matches!(source, Source::Variable(_));
        let checked = text.and_then(|text| {
            if is_fixed {
                return Err(Invalid::new("cannot be set by a policy")
                    .hint(format!("policies may set {}", settings::live_keys())));
            }
            if misplaced {
                let place = if is_file { "a file" } else { "a flag" };
                return Err(
                    Invalid::new(format!("cannot be set in {place}")).hint(format!(
                        "set the variable {}, or name a file with `redis_password_file`",
                        setting.variable()
                    )),
                );
            }
            setting.show(&text).map(|_| text)
        });
        let text = match checked {
            Ok(text) => Some(Secret::new(text)),
            Err(mut invalid) => {
                let others = std::mem::take(&mut invalid.others);
                for invalid in std::iter::once(invalid).chain(others) {
                    // A setting below a table of the file is a key of that table.
                    let stray = invalid.stray.map(|stray| *stray);
                    let is_setting = |stray: &Stray| settings::find(&stray.key).is_some();
                    let what = match stray.filter(is_setting) {
                        Some(stray) => format!("{}: {ABOVE_TABLES}", stray.what),
                        None => invalid.what,
                    };
                    let kind = ProblemKind::Value {
                        key: setting.key(),
                        what,
                    };
                    let source = source.clone().at(invalid.line);
                    self.problems
                        .push(Problem::new(source, kind).hint(invalid.hint));
                }
                None
            }
        };
        let given = self.given.get(setting.key());
        if given.is_none_or(|given| given.source < source) {
            self.given.insert(setting.key(), Given { source, text });
        }
    }

    /// The value of a setting: the given one, or the default. A value that is among the problems counts as
    /// not given, so that the rest can be checked.
    pub(super) fn value<T: Value>(&self, setting: &Setting<T>) -> Option<T> {
        let text = self.text(setting).or_else(|| setting.default())?;
        let value = setting.parse(text).ok()?;
        Some(match self.folder_of(setting) {
            Some(folder) => value.beside(folder),
            None => value,
        })
    }

    /// The folder that the paths of a setting are relative to; `None` = the working directory.
    pub(super) fn folder_of(&self, setting: &dyn Definition) -> Option<&Path> {
        let is_of_file = |source: &Source| matches!(source, Source::File { .. });
        let source = self.source(setting);
        self.folder
            .as_deref()
            .filter(|_| source.is_none_or(is_of_file))
    }

    /// The value of a setting that has a default.
    pub(super) fn or_default<T: Value>(&self, setting: &Setting<T>) -> T {
        self.value(setting)
            .expect("a test reads the defaults of all settings")
    }

    /// The value of a variable that holds a secret.
    pub(super) fn secret_variable(&self, name: &str) -> Option<Secret> {
        self.variables.get(OsStr::new(name)).cloned()
    }

    /// The source of a setting; `None` = it was not set.
    pub(super) fn source(&self, setting: &dyn Definition) -> Option<&Source> {
        self.given.get(setting.key()).map(|given| &given.source)
    }

    /// The given text of a setting that can be read.
    pub(super) fn text(&self, setting: &dyn Definition) -> Option<&str> {
        self.given
            .get(setting.key())?
            .text
            .as_ref()
            .map(Secret::reveal)
    }

    /// Check the constraints of these sections, for this kind of queue if it is known.
    pub(super) fn check(&mut self, kind: Option<Kind>, sections: &[&Section]) {
        for setting in sections.iter().flat_map(|section| section.settings) {
            self.check_setting(kind, *setting);
        }
    }

    /// Check the constraints of one setting.
    pub(super) fn check_setting(&mut self, kind: Option<Kind>, setting: &'static dyn Definition) {
        if self.source(setting).is_none() {
            return;
        }
        let (key, facts) = (setting.key(), setting.facts());
        let missing = |other: &&'static dyn Definition| self.source(*other).is_none();
        let idle = facts.idle_without.filter(missing);
        if let (Some(kinds), Some(kind)) = (facts.kinds, kind)
            && !kinds.kinds.contains(&kind)
        {
            let what = format!("`{key}` {}", kinds.otherwise);
            self.conflict(Some(setting), what, kinds.hint);
        } else if let Some(other) = facts.only_with.filter(missing).map(|other| other.key()) {
            let what = format!("`{key}` means nothing without `{other}`");
            let hint = format!("set `{other}` as well, or neither");
            self.conflict(Some(setting), what, hint);
        } else if let Some(other) = idle.map(|other| other.key()) {
            let what = format!("`{key}` does nothing without `{other}`");
            self.warn(setting, what, None);
        }
    }

    /// Something that should be looked at, but stops nothing.
    pub(super) fn warn(&mut self, setting: &dyn Definition, what: String, hint: Option<&str>) {
        let source = self.source(setting).cloned();
        let problem = Problem::new(source, ProblemKind::Conflict(what));
        self.warnings.push(problem.hint(hint.map(str::to_owned)));
    }

    /// Settings contradict each other, here at this one; or one is missing.
    pub(super) fn conflict(
        &mut self,
        setting: Option<&dyn Definition>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let source = setting.and_then(|setting| self.source(setting)).cloned();
        let problem = Problem::new(source, ProblemKind::Conflict(what.into()));
        self.problems.push(problem.hint(hint.into()));
    }

    /// A value that can be read, but not used.
    pub(super) fn bad_value(&mut self, setting: &'static dyn Definition, what: String) {
        let key = setting.key();
        let source = self.source(setting).cloned();
        self.problems
            .push(Problem::new(source, ProblemKind::Value { key, what }));
    }

    /// Every setting with its value and its source, in order.
    pub fn effective(&self) -> Vec<Effective> {
        let effective = |setting: &'static dyn Definition| {
            let given = self.given.get(setting.key());
            let text = match given {
                Some(given) => given.text.as_ref().map(Secret::reveal),
                None => setting.default(),
            };
            Effective {
                key: setting.key(),
                is_live: setting.is_live(),
                is_live_in_file: setting.is_live_in_file(),
                value: text.and_then(|text| setting.show(text).ok()),
                source: given.map_or(Source::Default, |given| given.source.clone()),
            }
        };
        settings::all().map(effective).collect()
    }
}

/// Leave out the values of a file that flags or variables replace.
fn retain_unreplaced(values: &mut Vec<FileValue>, input: &Input<'_>) {
    let flag = |key: &str| input.flags.iter().find(|(flag, _)| *flag == key);
    let redis = server::REDIS.key();
    let variable = server::REDIS.variable();
    let is_other_server =
        flag(redis).is_some() || input.variables.iter().any(|(name, _)| *name == *variable);
    let is_other_queue = QUEUE_KEYS
        .iter()
        .filter_map(|key| flag(key))
        .any(|(key, text)| {
            let same =
                |value: &FileValue| value.setting.key() == *key && value.text.as_ref() == Ok(text);
            !values.iter().any(same)
        });
    values.retain(|value| {
        let key = value.setting.key();
        let of_server = server::SECTION
            .settings
            .iter()
            .any(|setting| setting.key() == key);
        match of_server {
            true => !is_other_server || !key.starts_with(redis),
            false => !is_other_queue,
        }
    });
}

/// As in the XDG base directory specification, which ignores relative paths.
fn user_cache(variables: &[(OsString, OsString)]) -> Option<PathBuf> {
    let absolute = |wanted: &str| {
        let (_, path) = variables.iter().find(|(name, _)| name == wanted)?;
        Some(PathBuf::from(path)).filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// Kubernetes sets variables such as `HOSTLER_PORT_9400_TCP_ADDR` in every container, for a service called
/// `hostler` or `hostler-...`. They are not settings.
fn is_service_link(name: &str) -> bool {
    let ends = ["_PORT", "_SERVICE_HOST", "_SERVICE_PORT"];
    let holds = ["_PORT_", "_SERVICE_PORT_"];
    ends.iter().any(|end| name.ends_with(end)) || holds.iter().any(|part| name.contains(part))
}
