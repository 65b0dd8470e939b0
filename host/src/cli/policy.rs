//! `hostler policy`: rules of queues that change while their hosts run.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::text::one_line;
use crate::cli::{Common, Exit, Failure, Flags, Reach, Variables, ask, output};
use crate::config::settings::dead_letter_key;
use crate::policies::{Policies, Scope, Stored, effective};
use crate::policy_change::{self, Found};

/// Change rules of queues while their hosts run
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Set(SetArgs),
    Get(GetArgs),
    Unset(UnsetArgs),
}

/// The queues of a policy.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct Target {
    /// The queue with this key
    #[arg(long, value_name = "KEY")]
    queue: Option<String>,

    /// Every queue whose key matches this pattern: `*` is any text, `?` any one character
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
}

impl Target {
    fn scope(&self) -> Option<Scope> {
        match (&self.queue, &self.pattern) {
            (Some(queue), _) => Some(Scope::Queue(queue.as_str().into())),
            (None, Some(pattern)) => Some(Scope::Match(pattern.as_str().into())),
            (None, None) => None,
        }
    }

    pub(super) fn required(&self) -> Result<Scope, Failure> {
        let scope = self.scope().ok_or_else(|| {
            let hint = "give `--queue KEY`, or `--match PATTERN` for all keys that match a pattern";
            Failure::new(Exit::Usage, "which queues are meant?").hint(hint)
        })?;
        policy_change::check_scope(&scope)?;
        Ok(scope)
    }
}

/// Set rules; running hosts apply them within two seconds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A policy does not change a rule that a host gets from a flag, a variable or its
file. The queue's own policy wins over a policy by pattern; the longer pattern
wins over the shorter. A wrong policy is refused here. A policy that is wrong
only together with a host's own settings is ignored by that host, with an error.

Examples:
  hostler policy set --redis redis://localhost --queue orders \\
    max_deliveries=5 dead_letter.key=orders:dead
  hostler policy set --redis redis://localhost --queue orders \\
    dead_letter.routes='timeout=orders:slow'
  hostler policy set --redis redis://localhost --match 'orders.*' \\
    backoff.first=1s backoff.max=5m")]
struct SetArgs {
    /// The rules, as in the configuration file
    #[arg(value_name = "SETTING=VALUE", required = true)]
    settings: Vec<String>,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    common: Common<Reach>,
}

/// Show the policies of a queue, or all policies by pattern
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler policy get --redis redis://localhost --queue orders
  hostler policy get --redis redis://localhost --json | jq .")]
struct GetArgs {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    common: Common<Reach>,
}

/// Remove rules: the host's other settings apply again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler policy unset --redis redis://localhost --queue orders \\
    max_deliveries
  hostler policy unset --redis redis://localhost --match 'orders.*' --all")]
struct UnsetArgs {
    /// The settings to remove
    #[arg(value_name = "SETTING", required_unless_present = "all")]
    settings: Vec<String>,

    /// Remove all settings
    #[arg(long, conflicts_with = "settings")]
    all: bool,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    common: Common<Reach>,
}

/// A rule as it is shown; `--json` prints an array of them.
#[derive(Debug, Serialize)]
struct Row<'a> {
    setting: &'a str,
    value: &'a str,
    /// The queue, or the pattern.
    #[serde(rename = "for")]
    target: &'a str,
    /// Whether it applies: no other policy for the queue overrides it.
    counts: bool,
    /// Why every host ignores it.
    problem: Option<String>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    match args.command {
        Command::Set(args) => set(args, variables),
        Command::Get(args) => get(args, variables),
        Command::Unset(args) => unset(args, variables),
    }
}

fn set(args: SetArgs, variables: Variables) -> Result<Exit, Failure> {
    let scope = args.target.required()?;
    let wanted = parse(&args.settings)?;
    with_policies(args.common.flags, variables, async |policies| {
        let found = policy_change::set(policies, &scope, wanted).await?;
        advise(&found.settings);
        show(found, Some(&scope), args.common.json)
    })
}

/// Parse `SETTING=VALUE`.
fn parse(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut wanted = BTreeMap::new();
    for word in given {
        let Some((setting, text)) = word.split_once('=') else {
            let what = format!("`{word}` is not a setting with a value");
            return Err(Failure::new(Exit::Usage, what).hint("write it as `max_deliveries=5`"));
        };
        if wanted.insert(setting.to_owned(), text.to_owned()).is_some() {
            let what = format!("`{setting}` is given twice");
            return Err(Failure::new(Exit::Usage, what));
        }
    }
    Ok(wanted)
}

/// Warn of rules that are right, and yet may be ignored.
fn advise(found: &[Stored]) {
    let effective = effective(found);
    let text = |key: &str| {
        let stored = effective.iter().find(|stored| stored.setting == key);
        stored.map(|stored| stored.text.as_str())
    };
    if text("max_deliveries").is_some()
        && text("dead_letter.key").is_none()
        && text("on_cap") != Some("discard")
    {
        let what =
            "`max_deliveries` needs `dead_letter.key`: a host without one ignores this policy";
        let hint = "set it as well, or `on_cap=discard` to discard messages on purpose";
        output::warning(what, Some(hint));
    }
}

/// Say what follows if no dead-letter key is left.
fn advise_without_key(removed: &[&str], found: &[Stored]) {
    let key = dead_letter_key();
    if removed.contains(&key) && found.iter().all(|stored| stored.setting != key) {
        let what = "hosts that had the dead-letter key from here keep their dead letters in the queue from now on";
        let hint = "set another key, or discard on purpose: `dead_letter.routes=dropped=discard`";
        output::warning(what, Some(hint));
    }
}

fn get(args: GetArgs, variables: Variables) -> Result<Exit, Failure> {
    let scope = args.target.scope();
    with_policies(args.common.flags, variables, async |policies| {
        let found = match &scope {
            Some(scope) => policy_change::stored(policies, scope).await?,
            None => {
                let (settings, unreadable) = policies.by_pattern().await.stored()?;
                Found {
                    settings,
                    unreadable,
                }
            }
        };
        show(found, scope.as_ref(), args.common.json)
    })
}

fn unset(args: UnsetArgs, variables: Variables) -> Result<Exit, Failure> {
    let scope = args.target.required()?;
    with_policies(args.common.flags, variables, async |policies| {
        let mut names = args.settings.clone();
        if args.all {
            let found = policy_change::stored(policies, &scope).await?;
            let own = found.settings.into_iter().filter(|s| s.scope == scope);
            names.extend(own.map(|s| s.setting));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let removed = match names.is_empty() {
            true => 0,
            false => policies.unset(&scope, &names).await?,
        };
        if removed == 0 {
            output::warning("none of these settings was set", None);
        }
        let found = policy_change::stored(policies, &scope).await?;
        if removed > 0 {
            advise_without_key(&names, &found.settings);
        }
        show(found, Some(&scope), args.common.json)
    })
}

/// Print the policies of these queues. Those of all patterns (`None`) are for different queues, so that
/// none overrides another.
fn show(found: Found, scope: Option<&Scope>, json: bool) -> Result<Exit, Failure> {
    if let Some(why) = &found.unreadable {
        let hint = "hosts keep the policies that they know; one that starts waits";
        output::warning(&format!("hosts do not read all of this: {why}"), Some(hint));
    }
    let effective = effective(&found.settings);
    let mut rows: Vec<Row<'_>> = found
        .settings
        .iter()
        .map(|stored| Row {
            setting: &stored.setting,
            value: &stored.text,
            target: stored.scope.text(),
            counts: scope.is_none() || effective.contains(&stored),
            problem: problem(stored),
        })
        .collect();
    rows.sort_by_key(|row| (row.target, row.setting));
    output::either(json, &rows, |rows| {
        if rows.is_empty() {
            return match scope {
                Some(Scope::Queue(key)) => format!("no policy is set for `{key}`"),
                Some(Scope::Match(pattern)) => format!("no policy is set by `{pattern}`"),
                None => {
                    "no policy is set by pattern; `--queue KEY` shows those of one queue".to_owned()
                }
            };
        }
        let rows = rows.iter().map(|row| {
            let remark = match (&row.problem, row.counts) {
                (Some(problem), _) => format!("ignored: {problem}"),
                (None, false) => "overridden".to_owned(),
                (None, true) => String::new(),
            };
            // Other programs may have written these texts.
            [row.setting, row.value, row.target, &remark].map(one_line)
        });
        output::titled(["setting", "value", "for", ""], rows)
    })
}

/// Why every host ignores a rule.
fn problem(stored: &Stored) -> Option<String> {
    policy_change::problem(stored).map(|error| Failure::from(error).what)
}

fn with_policies<T>(
    flags: Flags<Reach>,
    variables: Variables,
    work: impl AsyncFnOnce(&Policies) -> Result<T, Failure>,
) -> Result<T, Failure> {
    ask(flags, variables, "policy", async |session| {
        work(&Policies::new(session.link("policies"))).await
    })
}
