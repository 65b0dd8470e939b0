//! Flags made from the settings: one definition each, shared by the commands that read them.

use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::PathBuf;

use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::config::settings::{self, Section};
use crate::config::{CONFIG_VARIABLE, Collected, Definition, Input, PolicyValue, Problem, Shape};

/// Which settings a command takes as flags.
pub(super) trait Scope: 'static {
    /// Whether this one is among them.
    fn has(key: &str) -> bool;
}

/// Everything that a host goes by.
#[derive(Clone, Debug)]
pub(super) struct All;

impl Scope for All {
    fn has(key: &str) -> bool {
        !key.starts_with("dev.")
    }
}

/// Everything that there is.
#[derive(Clone, Debug)]
pub(super) struct Developed;

impl Scope for Developed {
    fn has(_: &str) -> bool {
        true
    }
}

/// How a component is run.
#[derive(Clone, Debug)]
pub(super) struct Sandboxed;

impl Scope for Sandboxed {
    fn has(key: &str) -> bool {
        key.starts_with("limit.")
            || key.starts_with("grant.")
            || key.starts_with("compile_cache")
            || ["timeout", "cpu", "memory"].contains(&key)
    }
}

/// How a component is tested.
#[derive(Clone, Debug)]
pub(super) struct Tested;

impl Scope for Tested {
    fn has(key: &str) -> bool {
        Sandboxed::has(key) || key == "reuse"
    }
}

/// How to reach Redis.
#[derive(Clone, Debug)]
pub(super) struct Reach;

impl Scope for Reach {
    fn has(key: &str) -> bool {
        key.starts_with("redis") || key == "wait_redis"
    }
}

/// How to reach Redis, and how a component is tried on dead letters.
#[derive(Clone, Debug)]
pub(super) struct Tried;

impl Scope for Tried {
    fn has(key: &str) -> bool {
        Reach::has(key)
            || Sandboxed::has(key)
            || [
                "body_field",
                "concurrency",
                "max_deliveries",
                "max_payload",
                "missing_body",
            ]
            .contains(&key)
    }
}

/// What a benchmark goes by.
#[derive(Clone, Debug)]
pub(super) struct Benched;

impl Scope for Benched {
    fn has(key: &str) -> bool {
        Reach::has(key)
            || Sandboxed::has(key)
            || [
                "handler",
                "concurrency",
                "batch_size",
                "batch_wait",
                "prefetch",
            ]
            .contains(&key)
    }
}

/// How to reach Redis, and how a component is checked.
#[derive(Clone, Debug)]
pub(super) struct Deploying;

impl Scope for Deploying {
    fn has(key: &str) -> bool {
        Reach::has(key) || Sandboxed::has(key)
    }
}

/// How to reach Redis, and which queue.
#[derive(Clone, Debug)]
pub(super) struct ReachQueue;

impl Scope for ReachQueue {
    fn has(key: &str) -> bool {
        Reach::has(key)
            || [
                "stream",
                "group",
                "list",
                "reliable",
                "recovery_zset",
                "channel",
                "pattern",
                "sharded_channel",
            ]
            .contains(&key)
            || settings::find(key).is_some_and(Definition::is_live)
    }
}

/// How to reach Redis, and where messages go.
#[derive(Clone, Debug)]
pub(super) struct ReachDestination;

impl Scope for ReachDestination {
    fn has(key: &str) -> bool {
        Reach::has(key)
            || [
                "stream",
                "list",
                "reliable",
                "channel",
                "sharded_channel",
                "body_field",
            ]
            .contains(&key)
    }
}

/// The settings of a command, as they were given.
#[derive(Clone)]
pub(super) struct Flags<S> {
    config: Option<PathBuf>,
    given: Vec<(&'static str, String)>,
    scope: PhantomData<S>,
}

// What was given may hold a password.
impl<S> std::fmt::Debug for Flags<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flags").finish_non_exhaustive()
    }
}

impl<S> Flags<S> {
    /// Flags, variables and the file together, each value checked for itself.
    pub(super) fn collect(self, variables: Vec<(OsString, OsString)>) -> Collected {
        self.sources(variables).collect(None, Vec::new())
    }

    /// The same, to be collected more than once.
    pub(super) fn sources(self, variables: Vec<(OsString, OsString)>) -> Sources {
        let named = |(name, _): &&(OsString, OsString)| name == CONFIG_VARIABLE;
        let by_variable = variables.iter().find(named).map(|(_, path)| path.into());
        Sources {
            file: self.config.or(by_variable),
            variables,
            flags: self.given,
        }
    }
}

/// Where the settings of a command come from.
pub(super) struct Sources {
    /// The configuration file.
    pub(super) file: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// Everything together, each value checked for itself; with the text of the file, if it has been
    /// read, and with these policies.
    pub(super) fn collect(&self, text: Option<&str>, policies: Vec<PolicyValue>) -> Collected {
        Collected::new(Input {
            file: self.file.as_deref(),
            file_text: text,
            variables: self.variables.clone(),
            flags: self.flags.clone(),
            policies,
        })
    }
}

impl<S> Flags<S> {
    /// With this file, unless another one is given.
    #[must_use]
    pub(super) fn or_file(mut self, path: &str, variables: &[(OsString, OsString)]) -> Self {
        let is_named = variables.iter().any(|(name, _)| name == CONFIG_VARIABLE);
        if self.config.is_none() && !is_named {
            self.config = Some(path.into());
        }
        self
    }

    /// With this flag, unless it is given.
    #[must_use]
    pub(super) fn or(mut self, key: &'static str, text: &str) -> Self {
        if self.given.iter().all(|(given, _)| *given != key) {
            self.given.push((key, text.to_owned()));
        }
        self
    }
}

impl<S> Flags<S> {
    /// Whether anything says what the configuration is.
    pub(super) fn is_configured(&self, variables: &[(OsString, OsString)]) -> bool {
        self.config.is_some()
            || !self.given.is_empty()
            || variables.iter().any(|(name, _)| name == CONFIG_VARIABLE)
    }
}

/// What looked odd, on stderr.
pub(super) fn warn(warnings: &[Problem]) {
    for problem in warnings {
        super::output::warning(&problem.to_string(), problem.hint.as_deref());
    }
}

impl<S: Scope> Args for Flags<S> {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Read settings from this TOML file; flags and HOSTLER_ variables win over it");
        let mut command = command.arg(config);
        for section in settings::SECTIONS {
            for arg in args::<S>(section) {
                command = command.arg(arg);
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn args<S: Scope>(section: &'static Section) -> impl Iterator<Item = Arg> {
    let flags = section
        .settings
        .iter()
        .filter(|s| S::has(s.key()) && !s.is_variable_only());
    flags.map(|setting| {
        let arg = Arg::new(setting.key())
            .long(setting.flag())
            .value_name(setting.placeholder())
            .help(short_help(*setting))
            .long_help(long_help(*setting))
            .help_heading(section.title);
        match setting.shape() {
            Shape::Bool => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true"),
            _ => arg,
        }
    })
}

/// The first sentence, for `-h`.
fn short_help(setting: &dyn Definition) -> String {
    let meaning = setting.meaning();
    let first = meaning.split_once(". ").map_or(meaning, |(first, _)| first);
    let first = first.split_once(": ").map_or(first, |(first, _)| first);
    with_default(setting, first.trim_end_matches('.'))
}

fn long_help(setting: &dyn Definition) -> String {
    with_default(setting, setting.meaning())
}

fn with_default(setting: &dyn Definition, text: &str) -> String {
    match setting.default().filter(|_| setting.shape() != Shape::Bool) {
        Some(default) => format!("{text} [default: {default}]"),
        None => text.to_owned(),
    }
}

impl<S: Scope> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = settings::all()
            .filter(|s| S::has(s.key()) && !s.is_variable_only())
            .filter(|s| matches.value_source(s.key()) == Some(ValueSource::CommandLine))
            .filter_map(|s| Some((s.key(), matches.get_one::<String>(s.key())?.clone())))
            .collect();
        Ok(Self {
            config: matches.get_one::<PathBuf>("config").cloned(),
            given,
            scope: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
