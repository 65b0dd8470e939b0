//! `hostler pause`: stop the intake of queues, on all their hosts. Also what `resume` shares with it.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli::policy::Target;
use crate::cli::session::{Session, ask};
use crate::cli::text::count;
use crate::cli::{Common, Exit, Failure, Reach, Variables, output};
use crate::config::settings::paused_key;
use crate::policies::{self, Policies, Scope, Stored, effective};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;

/// Hosts follow a policy within two seconds, and say so soon after.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(4);
/// How often hosts are asked whether they follow.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Pause queues: their hosts read nothing more, and nothing is charged
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every host of the queue follows within two seconds. Running attempts end;
messages that have not started go back as they were. Producers go on. This is
the policy `queue.paused`: it lasts until `hostler resume`, and hosts that start
meanwhile wait.

Examples:
  hostler pause --redis redis://localhost --queue orders
  hostler pause --redis redis://localhost --match 'orders.*'")]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) target: Target,

    #[command(flatten)]
    pub(super) common: Common<Reach>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Told<'a> {
    queue: Option<&'a str>,
    #[serde(rename = "match")]
    pattern: Option<&'a str>,
    paused: bool,
    /// The hosts that follow.
    hosts: Vec<String>,
    /// The hosts that do not, and why.
    others: Vec<Other>,
}

#[derive(Serialize)]
struct Other {
    host: String,
    why: String,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    tell(args, variables, "pause", true)
}

/// Pause or resume, and wait until the hosts of the queue follow.
pub(super) fn tell(
    args: Args,
    variables: Variables,
    command: &str,
    paused: bool,
) -> Result<Exit, Failure> {
    let scope = args.target.required()?;
    let hosts = ask(args.common.flags, variables, command, async |session| {
        let policies = Policies::new(session.link("policies"));
        session
            .retry(async || write(&policies, &scope, paused).await)
            .await?;
        match &scope {
            Scope::Queue(key) => Ok(followers(session, key, paused).await),
            Scope::Match(_) => Ok(Vec::new()),
        }
    })?;
    let (following, others): (Vec<_>, Vec<_>) = hosts.iter().partition(|h| follows(h, paused));
    let told = Told {
        queue: matches!(scope, Scope::Queue(_)).then_some(scope.text()),
        pattern: matches!(scope, Scope::Match(_)).then_some(scope.text()),
        paused,
        hosts: following.iter().map(|h| h.consumer.clone()).collect(),
        others: others.into_iter().map(other).collect(),
    };
    for Other { host, why } in &told.others {
        output::warning(&format!("{host} does not follow: {why}"), None);
    }
    output::either(args.common.json, &told, |told| {
        let word = if paused { "paused" } else { "resumed" };
        match (&scope, told.hosts.len(), told.others.is_empty()) {
            (Scope::Match(pattern), ..) => format!("queues that match {pattern} are {word}"),
            (Scope::Queue(key), 0, true) => {
                format!("{key} is {word}; no host says that it serves it now")
            }
            (Scope::Queue(key), n, _) => {
                let hosts = count(n as u64, "host");
                let follow = if n == 1 { "follows" } else { "follow" };
                format!("{key} is {word}: {hosts} {follow}")
            }
        }
    })
}

async fn write(policies: &Policies, scope: &Scope, paused: bool) -> Result<(), policies::Error> {
    if paused {
        return policies.set(scope, &[(paused_key(), "true")]).await;
    }
    policies.unset(scope, &[paused_key()]).await?;
    let Scope::Queue(key) = scope else {
        return Ok(());
    };
    // A policy by pattern may still pause it: the queue's own one wins.
    let (found, _) = policies.of_queue(key).await.stored()?;
    let is_paused = |stored: &&Stored| stored.setting == paused_key() && stored.text != "false";
    match effective(&found).iter().any(is_paused) {
        true => policies.set(scope, &[(paused_key(), "false")]).await,
        false => Ok(()),
    }
}

/// The hosts of a queue, once all of them follow, or after a while.
async fn followers(session: &Session, key: &str, paused: bool) -> Vec<HostSeen> {
    let store = Store::new(session.link("hosts"), key);
    let begun = Instant::now();
    loop {
        // A user who may set policies may lack the right to read hosts.
        let hosts = HostSeen::parse_all(&store.hosts().await.unwrap_or_default());
        let is_over = begun.elapsed() > FOLLOWED_WITHIN;
        if is_over || hosts.iter().all(|host| follows(host, paused)) {
            return hosts;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Whether a host follows this.
fn follows(host: &HostSeen, paused: bool) -> bool {
    host.paused == paused
}

fn other(host: &HostSeen) -> Other {
    let rule = host.rules.iter().find(|rule| rule.setting == paused_key());
    let why = match (&host.rules_refused, rule) {
        (Some(refused), _) => format!("it ignores new rules: {refused}"),
        (None, Some(rule)) => format!("`{}` is set there by {}", paused_key(), rule.from),
        (None, None) => format!("its hostler {} does not know pauses", host.hostler),
    };
    Other {
        host: host.consumer.clone(),
        why,
    }
}
