//! `hostler deploy`: a new version of the handler, for every host of a queue that accepts deploys.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::cli::flags::{Common, Deploying};
use crate::cli::rolled_out::{Outcome, Waiting};
use crate::cli::text;
use crate::cli::{Exit, Failure, Variables, ask_at, output};
use crate::config::Collected;
use crate::host::{component, settings};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::{ChangeResult, Store};
use crate::rollout::verify;

/// Store a component beside its queue, for every host that runs with `--accept-deploys`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
This command checks the component, and stores it whole or not at all. The hosts
notice it within two seconds, verify it, and run it; hosts that start later run
it as well. `hostler versions` shows what each host made of it.
`hostler rollback` goes back.

--wait ends when every host runs it for all messages, or has refused it or given
it up. Exit codes then: 0 every host took it, 65 a host refused it or gave it
up, 69 no host takes deploys, 75 some host has not decided in time.

Examples:
  hostler deploy handler.wasm --redis redis://localhost --queue orders
  hostler deploy handler.wasm --config orders.toml --queue orders \\
    --by \"build 712\" --json
  hostler deploy handler.wasm --redis redis://localhost --queue orders \\
    --wait=10m")]
pub(super) struct Args {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    #[command(flatten)]
    request: Request,

    /// Store it without checking it here: the hosts check it anyway
    #[arg(long)]
    unchecked: bool,

    #[command(flatten)]
    wait: Wait,

    #[command(flatten)]
    common: Common<Deploying>,
}

/// Whether a command waits for the hosts.
#[derive(Debug, clap::Args)]
pub(super) struct Wait {
    /// Wait until every host has taken or refused it, 5 minutes or this long
    #[arg(
        long = "wait",
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5m",
        value_parser = text::parse::<Duration>
    )]
    pub(super) limit: Option<Duration>,
}

/// A request for another version.
#[derive(Debug, clap::Args)]
pub(super) struct Request {
    /// The queue: the key of its stream or list, or its channel
    #[arg(long = "queue", alias = "queue-key", value_name = "KEY")]
    pub(super) queue: String,

    /// Who asks for it [default: the user and the machine]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// Identifies the request: a retry is not a second one.
    #[arg(skip = format!("{:032x}", fastrand::u128(..)))]
    pub(super) token: String,
}

impl Request {
    /// Who asks for it.
    pub(super) fn author(&self) -> String {
        self.by.clone().unwrap_or_else(|| {
            let id = nix::unistd::geteuid();
            let user = nix::unistd::User::from_uid(id).ok().flatten();
            let user = user.map_or_else(|| id.to_string(), |user| user.name);
            format!("{user}@{}", settings::host_name())
        })
    }
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Deployed<'a> {
    queue: &'a str,
    version: u64,
    digest: &'a str,
    size_bytes: u64,
    /// What the hosts made of it, with `--wait`.
    #[serde(flatten)]
    outcome: Option<Outcome>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let (redis, settings) = args
        .common
        .flags
        .load(variables, Collected::redis_and_sandbox)?;
    let component = component::read(&args.file, settings.limits.component)?;
    if !args.unchecked {
        component::load_bytes(&args.file, &component, &settings)?;
    }
    let request = &args.request;
    let (queue, by) = (&*request.queue, request.author());
    let digest = verify::digest(&component);
    let (done, hosts, outcome) = ask_at(&redis, "deploy", async |session| {
        let store = Store::new(session.link("deploy"), queue);
        // A host may have refused the same component before.
        let before = store.hosts().await.ok();
        let waiting = args
            .wait
            .limit
            .map(|limit| Waiting::new(limit, &digest, before));
        let deployed = async || store.deploy(&request.token, &component, &by).await;
        let done = session.retry(deployed).await?;
        let outcome = match (waiting, &done) {
            (Some(waiting), ChangeResult::Requested(_)) => {
                Some(waiting.until_decided(&store).await?)
            }
            _ => None,
        };
        // A user who may deploy may lack the right to read the hosts.
        Ok((done, store.hosts().await.ok(), outcome))
    })?;
    let ChangeResult::Requested(version) = done else {
        let what = "redis lost the uploaded component before it was stored";
        return Err(Failure::new(Exit::Unavailable, what).hint("deploy it again"));
    };
    let hosts = hosts.map(|hosts| HostSeen::parse_all(&hosts));
    if hosts.is_some_and(|hosts| !hosts.iter().any(|host| host.accepts_deploys)) {
        output::people(&format!(
            "no host of {queue} takes deploys now: start hosts with `--accept-deploys`\n"
        ));
    }
    let deployed = Deployed {
        queue,
        version,
        digest: &digest,
        size_bytes: component.len() as u64,
        outcome,
    };
    let exit = Outcome::exit(deployed.outcome.as_ref());
    output::either(args.common.json, &deployed, |deployed| {
        let text = format!("version {version} of {queue} is {}", deployed.digest);
        text + &Outcome::lines(deployed.outcome.as_ref())
    })?;
    Ok(exit)
}

/// The failure of `rollback` and `promote` where there is nothing to go back to.
pub(super) fn nothing_deployed(queue: &str) -> Failure {
    let what = format!("nothing was ever deployed to {queue}");
    Failure::new(Exit::Usage, what).hint("`--queue` takes the key of a stream or list")
}
