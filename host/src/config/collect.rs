//! Gather what was set: the file, the variables, the flags; check each value where it stands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::file;
use crate::config::problem::{Problem, ProblemKind, Source};
use crate::config::secret::Secret;
use crate::config::setting::{Definition, Setting};
use crate::config::settings;
use crate::config::value::{Invalid, Value, nearest};

/// What every variable of hostler begins with.
pub const VARIABLE_PREFIX: &str = "HOSTLER_";
/// The variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "HOSTLER_CONFIG";

/// Where settings come from. Nothing else is looked at: the environment comes in.
#[derive(Clone, Default)]
pub struct Input<'a> {
    /// The configuration file.
    pub file: Option<&'a Path>,
    /// What the file holds, if it has been read.
    pub file_text: Option<&'a str>,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The flags: the key of the setting and the text given.
    pub flags: Vec<(&'static str, String)>,
    /// The policies for the queue: for each setting the one that counts.
    pub policies: Vec<PolicyValue>,
}

/// What a policy says about one setting.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicyValue {
    /// The key of the setting.
    pub key: String,
    /// The text of its value.
    pub text: String,
    /// Whose policy it is: a queue's key, or a pattern.
    pub target: Arc<str>,
}

/// What was set, each value checked for itself.
#[derive(Debug, Default)]
pub struct Collected {
    given: BTreeMap<&'static str, Given>,
    /// What is wrong so far.
    pub problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// Only policies: what a host adds to them is not known.
    pub(super) is_partial: bool,
    /// Where this user's programs keep what they can make again.
    pub(super) user_cache: Option<PathBuf>,
}

/// The value that counts for a setting somebody set.
#[derive(Debug)]
struct Given {
    source: Source,
    /// `None`: it is among the problems. Any text may turn out to be a secret.
    text: Option<Secret>,
}

/// One setting as it stands: for `check --config`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Effective {
    /// The name.
    pub key: &'static str,
    /// Whether it may change under a running host.
    pub is_live: bool,
    /// The value, secrets masked; `None` = nobody set it, and there is no default.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
}

impl Collected {
    /// Gather everything. Never fails: what is wrong is in `problems`.
    pub fn new(input: Input<'_>) -> Self {
        let mut collected = Self {
            user_cache: user_cache(&input.variables),
            ..Self::default()
        };
        if let Some(path) = input.file {
            let (values, problems) = match input.file_text {
                Some(text) => file::parse(path, text.to_owned()),
                None => file::read(path),
            };
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
                let kind = ProblemKind::Unknown {
                    what: "setting",
                    name: policy.key,
                };
                self.problems.push(Problem::new(source, kind));
            }
        }
    }

    fn unknown_variable(&mut self, name: String) {
        let known: Vec<String> = settings::all().map(Definition::variable).collect();
        let hint = nearest(&name, known.iter().map(String::as_str))
            .map(|known| format!("did you mean `{known}`?"));
        let kind = ProblemKind::Unknown {
            what: "variable",
            name,
        };
        self.problems.push(Problem::new(None, kind).hint(hint));
    }

    /// A value for a setting; it counts if nothing of higher precedence was given before.
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
                    Invalid::new(format!("must not stand in {place}")).hint(format!(
                        "set the variable {}, or name a file with `redis_password_file`",
                        setting.variable()
                    )),
                );
            }
            setting.show(&text).map(|_| text)
        });
        let text = match checked {
            Ok(text) => Some(Secret::new(text)),
            Err(invalid) => {
                let kind = ProblemKind::Value {
                    key: setting.key(),
                    what: invalid.what,
                };
                let problem = Problem::new(source.clone(), kind).hint(invalid.hint);
                self.problems.push(problem);
                None
            }
        };
        let given = self.given.get(setting.key());
        if given.is_none_or(|given| given.source < source) {
            self.given.insert(setting.key(), Given { source, text });
        }
    }

    /// The value of a setting: what was given, or the default. A value that is among the problems
    /// counts as not given, so that the rest can be checked.
    pub(super) fn value<T: Value>(&self, setting: &Setting<T>) -> Option<T> {
        let given = self
            .given
            .get(setting.key())
            .and_then(|g| g.text.as_ref())
            .map(Secret::expose);
        let text = given.or_else(|| setting.default())?;
        setting.parse(text).ok()
    }

    /// The value of a setting that has a default.
    pub(super) fn or_default<T: Value>(&self, setting: &Setting<T>) -> T {
        self.value(setting)
            .expect("a test reads the defaults of all settings")
    }

    /// Where a setting was set; `None` = nobody set it.
    pub(super) fn source<T>(&self, setting: &Setting<T>) -> Option<&Source>
    where
        Setting<T>: Definition,
    {
        self.given.get(setting.key()).map(|given| &given.source)
    }

    /// What was set among the settings with such keys, in the order of their definition.
    pub(super) fn given_where(&self, such: impl Fn(&str) -> bool) -> Vec<(&'static str, Source)> {
        let given = |setting: &'static dyn Definition| {
            let given = self
                .given
                .get(setting.key())
                .filter(|_| such(setting.key()));
            Some((setting.key(), given?.source.clone()))
        };
        settings::all().filter_map(given).collect()
    }

    /// Something is wrong between settings, or is missing.
    pub(super) fn conflict(&mut self, source: Option<&Source>, what: String, hint: String) {
        self.problems
            .push(Problem::new(source.cloned(), ProblemKind::Conflict(what)).hint(hint));
    }

    /// Every setting as it stands, in order.
    pub fn effective(&self) -> Vec<Effective> {
        let effective = |setting: &'static dyn Definition| {
            let given = self.given.get(setting.key());
            let text = match given {
                Some(given) => given.text.as_ref().map(Secret::expose),
                None => setting.default(),
            };
            Effective {
                key: setting.key(),
                is_live: setting.is_live(),
                value: text.and_then(|text| setting.show(text).ok()),
                source: given.map_or(Source::Default, |given| given.source.clone()),
            }
        };
        settings::all().map(effective).collect()
    }
}

/// As the XDG base directory specification has it: a relative path counts as none.
fn user_cache(variables: &[(OsString, OsString)]) -> Option<PathBuf> {
    let absolute = |wanted: &str| {
        let (_, path) = variables.iter().find(|(name, _)| name == wanted)?;
        Some(PathBuf::from(path)).filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// Kubernetes tells every container about a service called `hostler` or `hostler-...` by variables
/// such as `HOSTLER_PORT_9400_TCP_ADDR`. They are not ours.
fn is_service_link(name: &str) -> bool {
    let ends = ["_PORT", "_SERVICE_HOST", "_SERVICE_PORT"];
    let holds = ["_PORT_", "_SERVICE_PORT_"];
    ends.iter().any(|end| name.ends_with(end)) || holds.iter().any(|part| name.contains(part))
}
