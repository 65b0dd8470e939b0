//! Flags made from the settings: one definition each, shared by the commands that read them.

use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Once;

use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::cli::exit::Failure;
use crate::cli::{Variables, output};
use crate::config::settings::{self, Section};
use crate::config::{
    self, CONFIG_VARIABLE, Collected, Definition, EMBEDDED_DIR, Loaded, QUEUE_KEYS, Shape, Source,
    Sources,
};
use crate::embedded;

/// The word for a private server.
const EMBEDDED: &str = "embedded";
/// The configuration of a project. Commands read it where none is named.
pub(super) const CONFIG: &str = "hostler.toml";

/// The settings that a command takes as flags.
pub(super) trait Scope: Clone + 'static {
    /// Whether the command reads [`CONFIG`] in the working directory if no file is named.
    const READS_BESIDE: bool = true;

    /// Whether this setting is among them.
    fn has(key: &str) -> bool;

    /// Whether `--help` shows the flag of this setting. `--help-all` shows all.
    fn is_common(key: &str) -> bool {
        COMMON.contains(&key) || key.starts_with("dev.")
    }

    /// The help of a setting, where the command uses it differently than a host.
    fn meaning(setting: &dyn Definition) -> &str {
        setting.meaning()
    }
}

/// The settings that most people need.
const COMMON: [&str; 12] = [
    "redis",
    "stream",
    "group",
    "list",
    "channel",
    "handler",
    "concurrency",
    "timeout",
    "max_deliveries",
    "dead_letter.key",
    "admin",
    "until_empty",
];

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident$(($beside:literal))?, $key:ident: $has:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(super) struct $name;

        impl Scope for $name {
            $(const READS_BESIDE: bool = $beside;)?

            fn has($key: &str) -> bool {
                $has
            }
        }
    )*};
}

scopes! {
    /// Everything that a host reads. A host in production reads no file by accident.
    All(false), key: !key.starts_with("dev.");

    /// All settings.
    Developed, _key: true;

    /// How a component is run.
    Sandboxed, key: ["limit.", "grant.", "compile_cache"].iter().any(|start| key.starts_with(start))
        || ["timeout", "cpu", "memory"].contains(&key);

    /// How a component is tested.
    Tested, key: Sandboxed::has(key) || key == "reuse";

    /// How to reach Redis.
    Reach, key: key.starts_with("redis") || ["durability", "wait_redis"].contains(&key);

    /// How to reach Redis, and how a component is tried on dead letters.
    Tried, key: Reach::has(key)
        || Sandboxed::has(key)
        || ["body_field", "concurrency", "max_deliveries", "max_payload", "missing_body"]
            .contains(&key);

    /// How to reach Redis, and how a component is measured.
    Benched(false), key: Reach::has(key)
        || Sandboxed::has(key)
        || ["handler", "concurrency", "batch_size", "batch_wait", "prefetch"].contains(&key);

    /// How to reach Redis, and how a component is checked.
    Deploying, key: Reach::has(key) || Sandboxed::has(key);

    /// How to reach Redis, and the queue with its live settings.
    ReachQueue, key: Reach::has(key)
        || QUEUE_KEYS.contains(&key)
        || QUEUE.contains(&key)
        || settings::find(key).is_some_and(Definition::is_live);
}

/// The settings that name a queue, beside its key.
const QUEUE: [&str; 3] = ["group", "reliable", "recovery_zset"];

/// How to reach Redis, and where messages go.
#[derive(Clone, Debug)]
pub(super) struct ReachDestination;

impl Scope for ReachDestination {
    fn has(key: &str) -> bool {
        Reach::has(key) || DESTINATION.iter().any(|(known, _)| *known == key)
    }

    fn meaning(setting: &dyn Definition) -> &str {
        let known = DESTINATION.iter().find(|(key, _)| *key == setting.key());
        known.map_or_else(|| setting.meaning(), |(_, meaning)| meaning)
    }
}

/// The settings that name a destination, and what they mean to a publisher.
const DESTINATION: [(&str, &str); 6] = [
    ("stream", "Publish to this stream."),
    ("list", "Publish to this list."),
    (
        "reliable",
        "The hosts of the list read it with `--reliable`. A `--delay` needs this.",
    ),
    ("channel", "Publish to this channel."),
    (
        "sharded_channel",
        "Publish to this sharded channel (`SPUBLISH`).",
    ),
    (
        "body_field",
        "The field of a stream entry that holds the body. Lists and channels have no fields.",
    ),
];

/// The flags that were given to a command.
#[derive(Clone)]
pub(super) struct Flags<S> {
    config: Option<PathBuf>,
    given: Vec<(&'static str, String)>,
    scope: PhantomData<S>,
}

// A flag may hold a password.
impl<S> std::fmt::Debug for Flags<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flags").finish_non_exhaustive()
    }
}

impl<S: Scope> Flags<S> {
    /// Collect flags, variables and the file; each value is checked for itself.
    pub(super) fn collect(self, variables: Variables) -> Collected {
        self.sources(variables).collect()
    }

    /// Collect and check the settings; print the warnings.
    pub(super) fn load<T>(
        self,
        variables: Variables,
        check: impl FnOnce(Collected) -> Result<Loaded<T>, config::Error>,
    ) -> Result<T, Failure> {
        checked(check(self.collect(variables)))
    }

    /// The sources of the settings, to be collected more than once.
    pub(super) fn sources(mut self, variables: Variables) -> Sources {
        let is_beside = S::READS_BESIDE && self.finds_file(&variables);
        if is_beside {
            self = self.or_file(CONFIG, &variables);
        }
        let by_variable = config_variable(&variables).map(Into::into);
        let mut sources = Sources {
            file: self.config.or(by_variable),
            is_beside,
            text: None,
            variables,
            flags: self.given,
        };
        if is_beside && S::has("redis") {
            prefer_private_server(&mut sources);
        }
        sources
    }

    /// Whether [`CONFIG`] is in the working directory, and no other file is named.
    fn finds_file(&self, variables: &Variables) -> bool {
        !self.names_file(variables) && Path::new(CONFIG).is_file()
    }

    /// Read [`CONFIG`], if it is in the working directory and no other file is named.
    #[must_use]
    pub(super) fn or_beside(self, variables: &Variables) -> Self {
        match self.finds_file(variables) {
            true => self.or_file(CONFIG, variables),
            false => self,
        }
    }

    /// Read this file, unless another one is given.
    #[must_use]
    pub(super) fn or_file(mut self, path: &str, variables: &Variables) -> Self {
        if !self.names_file(variables) {
            self.config = Some(path.into());
        }
        self
    }

    /// Whether a flag or the variable names a configuration file.
    pub(super) fn names_file(&self, variables: &Variables) -> bool {
        self.config.is_some() || config_variable(variables).is_some()
    }

    /// Add this flag, if there is a text for it and it is not given.
    #[must_use]
    pub(super) fn or<'a>(mut self, key: &'static str, text: impl Into<Option<&'a str>>) -> Self {
        let text = text.into().filter(|_| self.flag(key).is_none());
        self.given.extend(text.map(|text| (key, text.to_owned())));
        self
    }

    /// Add this flag, if no flag, variable or file sets it.
    #[must_use]
    pub(super) fn or_unset(self, key: &'static str, text: &str, variables: &Variables) -> Self {
        let mut effective = self.clone().collect(variables.clone()).effective();
        effective.retain(|setting| setting.key == key && setting.source == Source::Default);
        match effective.is_empty() {
            true => self,
            false => self.or(key, text),
        }
    }

    /// The settings that were given: keys and texts.
    pub(super) fn given(&self) -> &[(&'static str, String)] {
        &self.given
    }

    /// The text of this flag, if it is given.
    pub(super) fn flag(&self, key: &str) -> Option<&str> {
        let given = self.given.iter().find(|(given, _)| *given == key);
        given.map(|(_, text)| text.as_str())
    }

    /// Whether there is a flag, or a configuration file.
    pub(super) fn is_configured(&self, variables: &Variables) -> bool {
        self.names_file(variables) || !self.given.is_empty()
    }
}

/// While the private server of this folder runs, for `hostler dev` above all, the commands beside it use it: the file may
/// name a server in production.
fn prefer_private_server(sources: &mut Sources) {
    static NOTED: Once = Once::new();
    const REDIS: &str = "redis";
    let mut effective = sources.collect().effective();
    effective.retain(|setting| {
        let is_replaced = matches!(setting.source, Source::File { .. } | Source::Default);
        setting.key == REDIS && is_replaced && setting.value.as_deref() != Some(EMBEDDED)
    });
    if effective.is_empty() || !embedded::is_running(Path::new(EMBEDDED_DIR)) {
        return;
    }
    sources.flags.push((REDIS, EMBEDDED.to_owned()));
    NOTED.call_once(|| {
        output::people(&format!(
            "note: this uses the private Redis that runs in {}; `--redis` names another one\n",
            EMBEDDED_DIR
        ));
    });
}

/// The flags of most commands.
#[derive(Debug, clap::Args)]
pub(super) struct Common<S: Scope> {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) flags: Flags<S>,
}

/// The value of the variable that names the configuration file.
fn config_variable(variables: &Variables) -> Option<&OsString> {
    let named = variables.iter().find(|(name, _)| name == CONFIG_VARIABLE);
    named.map(|(_, path)| path)
}

/// The checked settings; prints their warnings.
pub(super) fn checked<T>(loaded: Result<Loaded<T>, config::Error>) -> Result<T, Failure> {
    let loaded = loaded?;
    for problem in &loaded.warnings {
        output::warning(&problem.to_string(), problem.hint.as_deref());
    }
    Ok(loaded.value)
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
            .help(with_default(*setting, first_sentence(S::meaning(*setting))))
            .long_help(with_default(*setting, S::meaning(*setting)))
            .hide_short_help(!S::is_common(setting.key()))
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
fn first_sentence(meaning: &str) -> &str {
    let first = meaning.split_once(". ").map_or(meaning, |(first, _)| first);
    let first = first.split_once(": ").map_or(first, |(first, _)| first);
    first.trim_end_matches('.')
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
