//! `hostler policy`: rules of queues that change under their running hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::connect::{Connected, Passing, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{self, Flags, Reach};
use crate::cli::{Variables, output};
use crate::config::settings::{self, live_keys};
use crate::config::{Collected, Input, PolicyValue, QueueKind, RouteTable, Value, queue_of_type};
use crate::policies::{Found, Policies, SETTINGS_MAX, Scope, Stored, TEXT_MAX};

/// Change rules of queues under their running hosts
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

/// Which queues are meant.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
struct Which {
    /// The queue of this key
    #[arg(long, value_name = "KEY")]
    queue: Option<String>,

    /// Every queue whose key this pattern names: `*` is any text, `?` any one character
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
}

impl Which {
    fn scope(&self) -> Option<Scope> {
        match (&self.queue, &self.pattern) {
            (Some(queue), _) => Some(Scope::Queue(queue.as_str().into())),
            (None, Some(pattern)) => Some(Scope::Match(pattern.as_str().into())),
            (None, None) => None,
        }
    }

    fn needed(&self) -> Result<Scope, Failure> {
        let scope = self.scope().ok_or_else(|| {
            let hint = "give `--queue KEY`, or `--match PATTERN` for all that a pattern names";
            Failure::new(Exit::Usage, "which queues are meant?").hint(hint)
        })?;
        if scope.text().is_empty() || scope.text().len() > TEXT_MAX {
            let what = format!("a key or pattern has 1 to {TEXT_MAX} bytes");
            return Err(Failure::new(Exit::Usage, what));
        }
        Ok(scope)
    }
}

/// Set rules; running hosts follow within two seconds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A rule that a host has by a flag, a variable or its file is not changed by a policy. A queue's own
policy wins over one by pattern, the longer pattern over the shorter. What is wrong is refused here;
what is wrong together with what a host has of its own is ignored by that host, with an error.

Examples:
  hostler policy set --redis redis://localhost --queue orders max_deliveries=5 dead_letter.key=orders:dead
  hostler policy set --redis redis://localhost --queue orders dead_letter.routes='timeout=orders:slow'
  hostler policy set --redis redis://localhost --match 'orders.*' backoff.first=1s backoff.max=5m")]
struct SetArgs {
    /// The rules, as in the configuration file
    #[arg(value_name = "SETTING=VALUE", required = true)]
    settings: Vec<String>,

    #[command(flatten)]
    which: Which,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

/// Show rules: of a queue with those by pattern that name it, or all by pattern
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler policy get --redis redis://localhost --queue orders
  hostler policy get --redis redis://localhost --json | jq .")]
struct GetArgs {
    #[command(flatten)]
    which: Which,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

/// Take rules back: what lies behind them holds again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler policy unset --redis redis://localhost --queue orders max_deliveries
  hostler policy unset --redis redis://localhost --match 'orders.*' --all")]
struct UnsetArgs {
    /// Which settings
    #[arg(value_name = "SETTING", required_unless_present = "all")]
    settings: Vec<String>,

    /// All of them
    #[arg(long, conflicts_with = "settings")]
    all: bool,

    #[command(flatten)]
    which: Which,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

/// A rule as it is shown, and one of the array of `--json`.
#[derive(Debug, Serialize)]
struct Row<'a> {
    setting: &'a str,
    value: &'a str,
    /// The queue, or the pattern.
    #[serde(rename = "for")]
    target: &'a str,
    /// Whether no other policy for the queue overrules it.
    counts: bool,
    /// Why no host can use it.
    problem: Option<String>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    match args.command {
        Command::Set(args) => set(args, variables),
        Command::Get(args) => get(&args.which, args.json, args.flags, variables),
        Command::Unset(args) => unset(args, variables),
    }
}

fn set(args: SetArgs, variables: Variables) -> Result<Exit, Failure> {
    let scope = args.which.needed()?;
    let wanted = wanted(&args.settings, &scope)?;
    with(args.flags, variables, async |policies| {
        let mut stored = stored(policies, &scope).await?;
        for (setting, text) in &wanted {
            stored.retain(|s| s.scope != scope || s.setting != *setting);
            stored.push(Stored {
                scope: scope.clone(),
                setting: setting.clone(),
                text: text.clone(),
            });
        }
        if stored.len() > SETTINGS_MAX {
            let what = format!("there are {SETTINGS_MAX} rules at most");
            return Err(Failure::new(Exit::Usage, what).hint("take some back with `unset`"));
        }
        let found = Found {
            settings: stored,
            unseen: None,
        };
        let kind = check(policies, &scope, &found).await?;
        check_targets(policies, kind, &found).await?;
        let pairs: Vec<(&str, &str)> = wanted.iter().map(|(s, t)| (&**s, &**t)).collect();
        let set = policies.set(&scope, &pairs).await;
        set.map_err(|error| error.failure())?;
        advise(&found);
        show(&found, args.json)
    })
}

/// The settings as they were given, each right for itself.
fn wanted(given: &[String], scope: &Scope) -> Result<Vec<(String, String)>, Failure> {
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for word in given {
        let Some((setting, text)) = word.split_once('=') else {
            let what = format!("`{word}` is no setting with a value");
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
    let value = |(key, text): (&String, &String)| PolicyValue {
        key: key.clone(),
        text: text.clone(),
        target: Arc::clone(scope.text()),
    };
    alone(wanted.iter().map(value).collect(), None)?;
    Ok(wanted.into_iter().collect())
}

fn alone(policies: Vec<PolicyValue>, queue: Option<&QueueKind>) -> Result<(), Failure> {
    let collected = Collected::new(Input {
        policies,
        ..Input::default()
    });
    Ok(collected.policies_alone(queue)?)
}

/// Whether the rules for these queues go together. Says what kind of queue it is, if it is one that
/// is there.
async fn check(
    policies: &Policies,
    scope: &Scope,
    found: &Found,
) -> Result<Option<&'static str>, Failure> {
    let values = super::keeper::values(found);
    let Scope::Queue(key) = scope else {
        alone(values, None)?;
        return Ok(None);
    };
    let kind = policies.kind_of_queue(key).await;
    let (kind, queue) = queue_of_type(key, &kind.map_err(|error| error.failure())?);
    alone(values, Some(&queue))?;
    Ok(kind)
}

/// Dead letters go to keys of the queue's own type.
async fn check_targets(
    policies: &Policies,
    kind: Option<&'static str>,
    found: &Found,
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
            let holds = policies.kind_of(&target).await;
            let holds = holds.map_err(|error| error.failure())?;
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

/// What is right, and yet may not do what is wanted.
fn advise(found: &Found) {
    let effective = found.effective();
    let text = |key: &str| {
        let stored = effective.iter().find(|stored| stored.setting == key);
        stored.map(|stored| stored.text.as_str())
    };
    if text("max_deliveries").is_some()
        && text("dead_letter.key").is_none()
        && text("on_cap") != Some("discard")
    {
        let what = "`max_deliveries` needs `dead_letter.key`: a host that has none ignores this";
        let hint = "set it as well, or `on_cap=discard` to lose messages on purpose";
        output::warning(what, Some(hint));
    }
}

fn get(
    which: &Which,
    json: bool,
    flags: Flags<Reach>,
    variables: Variables,
) -> Result<Exit, Failure> {
    let scope = which.scope();
    with(flags, variables, async |policies| {
        let settings = match &scope {
            Some(scope) => stored(policies, scope).await?,
            None => {
                let all = policies.by_pattern().await;
                all.map_err(|error| error.failure())?
            }
        };
        let found = Found {
            settings,
            unseen: None,
        };
        show_all(&found, scope.is_none(), json)
    })
}

fn unset(args: UnsetArgs, variables: Variables) -> Result<Exit, Failure> {
    let scope = args.which.needed()?;
    with(args.flags, variables, async |policies| {
        let mut names = args.settings.clone();
        if args.all {
            let own = stored(policies, &scope).await?.into_iter();
            names.extend(own.filter(|s| s.scope == scope).map(|s| s.setting));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let removed = match names.is_empty() {
            true => 0,
            false => {
                let removed = policies.unset(&scope, &names).await;
                removed.map_err(|error| error.failure())?
            }
        };
        if removed == 0 {
            output::warning("nothing of that was set", None);
        }
        let found = Found {
            settings: stored(policies, &scope).await?,
            unseen: None,
        };
        show(&found, args.json)
    })
}

/// What is stored for these queues: of a queue, with what patterns say of it.
async fn stored(policies: &Policies, scope: &Scope) -> Result<Vec<Stored>, Failure> {
    match scope {
        Scope::Queue(key) => {
            let found = policies.of_queue(key).await;
            let found = found.map_err(|error| error.failure())?;
            if let Some(error) = found.unseen {
                output::warning(&format!("policies by pattern are not seen: {error}"), None);
            }
            Ok(found.settings)
        }
        Scope::Match(_) => {
            let all = policies.by_pattern().await;
            let mut all = all.map_err(|error| error.failure())?;
            all.retain(|stored| stored.scope == *scope);
            Ok(all)
        }
    }
}

fn show(found: &Found, json: bool) -> Result<Exit, Failure> {
    show_all(found, false, json)
}

/// `apart`: the rules are for different queues, and none overrules another.
fn show_all(found: &Found, apart: bool, json: bool) -> Result<Exit, Failure> {
    let effective = found.effective();
    let mut rows: Vec<Row<'_>> = found
        .settings
        .iter()
        .map(|stored| Row {
            setting: &stored.setting,
            value: &stored.text,
            target: stored.scope.text(),
            counts: apart || effective.contains(&stored),
            problem: problem(stored),
        })
        .collect();
    rows.sort_by_key(|row| (row.target, row.setting));
    if json {
        output::json(&rows)?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        output::line("no policy is set")?;
        return Ok(Exit::Ok);
    }
    let head = ["setting", "value", "for", ""].map(str::to_owned);
    let lines = rows.iter().map(|row| {
        let remark = match (&row.problem, row.counts) {
            (Some(problem), _) => format!("ignored: {problem}"),
            (None, false) => "overruled".to_owned(),
            (None, true) => String::new(),
        };
        [row.setting, row.value, row.target, &remark].map(super::dlq::line)
    });
    output::line(&output::table(std::iter::once(head).chain(lines)))?;
    Ok(Exit::Ok)
}

/// Why no host can use a rule, for itself.
fn problem(stored: &Stored) -> Option<String> {
    let value = PolicyValue {
        key: stored.setting.clone(),
        text: stored.text.clone(),
        target: Arc::clone(stored.scope.text()),
    };
    alone(vec![value], None).err().map(|failure| failure.what)
}

fn with<T>(
    flags: Flags<Reach>,
    variables: Variables,
    work: impl AsyncFnOnce(&Policies) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let loaded = flags.collect(variables).redis()?;
    flags::warn(&loaded.warnings);
    let redis = loaded.value;
    ask(async {
        let connected = Connected::new(&redis, "policy").await?;
        let link = connected.connector.link("reach");
        let reached = patiently(redis.wait, async || link.reach().await).await;
        let done = match reached {
            Ok(()) => work(&Policies::new(connected.connector.link("policies"))).await,
            Err(failure) => Err(failure),
        };
        connected.close().await;
        done
    })
}
