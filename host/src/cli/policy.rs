//! `hostler policy`: rules of queues that change while their hosts run.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::text::one_line;
use crate::cli::{Common, Exit, Failure, Flags, Reach, Variables, ask, output};
use crate::config::settings::{self, live_keys};
use crate::config::{Collected, PolicyValue, QueueKind, RouteTable, Value, queue_of_type};
use crate::host::settings::{policy_value, policy_values};
use crate::policies::{Policies, QueuePolicies, SETTINGS_MAX, Scope, Stored, TEXT_MAX};

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
        if scope.text().is_empty() || scope.text().len() > TEXT_MAX {
            let what = format!("a key or pattern has 1 to {TEXT_MAX} bytes");
            return Err(Failure::new(Exit::Usage, what));
        }
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
    let wanted = parse(&args.settings, &scope)?;
    with_policies(args.common.flags, variables, async |policies| {
        let mut stored = stored(policies, &scope).await?;
        let is_wanted = |s: &Stored| wanted.iter().any(|wanted| wanted.setting == s.setting);
        stored.retain(|s| s.scope != scope || !is_wanted(s));
        stored.extend(wanted.iter().cloned());
        if stored.len() > SETTINGS_MAX {
            let what = format!("a policy has at most {SETTINGS_MAX} rules");
            return Err(Failure::new(Exit::Usage, what).hint("remove some with `unset`"));
        }
        let found = QueuePolicies::of(stored);
        let kind = check(policies, &scope, &found).await?;
        check_targets(policies, kind, &found).await?;
        let pairs: Vec<_> = wanted.iter().map(|s| (&*s.setting, &*s.text)).collect();
        policies.set(&scope, &pairs).await?;
        advise(&found);
        show(&found, Some(&scope), args.common.json)
    })
}

/// Parse `SETTING=VALUE`, and check each value for itself.
fn parse(given: &[String], scope: &Scope) -> Result<Vec<Stored>, Failure> {
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for word in given {
        let Some((setting, text)) = word.split_once('=') else {
            let what = format!("`{word}` is not a setting with a value");
            return Err(Failure::new(Exit::Usage, what).hint("write it as `max_deliveries=5`"));
        };
        if text.len() > TEXT_MAX {
            let what = format!("the value of `{setting}` is longer than {TEXT_MAX} bytes");
            return Err(Failure::new(Exit::Usage, what));
        }
        if settings::find(setting).is_none() {
            let what = format!("unknown setting `{setting}`");
            let hint = format!("policies may set {}", live_keys());
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        }
        if wanted.insert(setting.to_owned(), text.to_owned()).is_some() {
            let what = format!("`{setting}` is given twice");
            return Err(Failure::new(Exit::Usage, what));
        }
    }
    let stored = wanted.into_iter().map(|(setting, text)| Stored {
        scope: scope.clone(),
        setting,
        text,
    });
    let stored: Vec<Stored> = stored.collect();
    check_isolated(stored.iter().map(policy_value).collect(), None)?;
    Ok(stored)
}

/// Check policies without the settings of any host.
fn check_isolated(policies: Vec<PolicyValue>, queue: Option<&QueueKind>) -> Result<(), Failure> {
    Ok(Collected::of_policies(policies).policies_alone(queue)?)
}

/// Check the rules together. Returns the kind of the queue, if there is one queue and it exists.
async fn check(
    policies: &Policies,
    scope: &Scope,
    found: &QueuePolicies,
) -> Result<Option<&'static str>, Failure> {
    let values = policy_values(found);
    let Scope::Queue(key) = scope else {
        check_isolated(values, None)?;
        return Ok(None);
    };
    let (kind, queue) = queue_of_type(key, &policies.kind_of_queue(key).await?);
    check_isolated(values, Some(&queue))?;
    Ok(kind)
}

/// Check that dead letters go to keys of the queue's own type.
async fn check_targets(
    policies: &Policies,
    kind: Option<&'static str>,
    found: &QueuePolicies,
) -> Result<(), Failure> {
    let Some(kind) = kind else { return Ok(()) };
    for stored in found.effective() {
        let targets = match stored.setting.as_str() {
            "dead_letter.key" | "dead_letter.cycle_key" => vec![stored.text.clone()],
            "dead_letter.routes" => {
                let routes = RouteTable::parse(&stored.text).unwrap_or_default();
                routes.0.into_values().flatten().collect()
            }
            _ => continue,
        };
        for target in targets {
            let holds = policies.kind_of(&target).await?;
            if holds != "none" && holds != kind {
                let what = format!(
                    "`{}`: the key `{target}` holds a {holds}, and the queue is a {kind}",
                    stored.setting
                );
                return Err(Failure::new(Exit::Usage, what).hint("name another key"));
            }
        }
    }
    Ok(())
}

/// Warn of rules that are right, and yet may be ignored.
fn advise(found: &QueuePolicies) {
    let effective = found.effective();
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

fn get(args: GetArgs, variables: Variables) -> Result<Exit, Failure> {
    let scope = args.target.scope();
    with_policies(args.common.flags, variables, async |policies| {
        let found = match &scope {
            Some(scope) => stored(policies, scope).await?,
            None => policies.by_pattern().await?,
        };
        show(&QueuePolicies::of(found), scope.as_ref(), args.common.json)
    })
}

fn unset(args: UnsetArgs, variables: Variables) -> Result<Exit, Failure> {
    let scope = args.target.required()?;
    with_policies(args.common.flags, variables, async |policies| {
        let mut names = args.settings.clone();
        if args.all {
            let own = stored(policies, &scope).await?.into_iter();
            names.extend(own.filter(|s| s.scope == scope).map(|s| s.setting));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let removed = match names.is_empty() {
            true => 0,
            false => policies.unset(&scope, &names).await?,
        };
        if removed == 0 {
            output::warning("none of these settings was set", None);
        }
        let found = stored(policies, &scope).await?;
        show(&QueuePolicies::of(found), Some(&scope), args.common.json)
    })
}

/// The stored policies of these queues; of one queue, with those of patterns that match it.
async fn stored(policies: &Policies, scope: &Scope) -> Result<Vec<Stored>, Failure> {
    match scope {
        Scope::Queue(key) => {
            let found = policies.of_queue(key).await?;
            if let Some(error) = found.patterns_error {
                let what = format!("policies by pattern cannot be read: {error}");
                output::warning(&what, None);
            }
            Ok(found.settings)
        }
        Scope::Match(_) => {
            let mut all = policies.by_pattern().await?;
            all.retain(|stored| stored.scope == *scope);
            Ok(all)
        }
    }
}

/// Print the policies of these queues. Those of all patterns (`None`) are for different queues, so that
/// none overrides another.
fn show(found: &QueuePolicies, scope: Option<&Scope>, json: bool) -> Result<Exit, Failure> {
    let effective = found.effective();
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
    let checked = check_isolated(vec![policy_value(stored)], None);
    checked.err().map(|failure| failure.what)
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
