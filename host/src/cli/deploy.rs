//! `hostler deploy`: a new version of the handler, for every host of a queue that accepts it.

use std::path::PathBuf;

use serde::Serialize;

use crate::cli::connect::{Connected, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Deploying, Flags};
use crate::cli::{Variables, check, flags, output, versions};
use crate::rollout::store::{ChangeResult, Store};
use crate::rollout::verify;

/// Store a component beside its queue, for every host that runs with `--accept-deploys`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The component is checked here, stored whole or not at all, and taken by the hosts within two
seconds and the time that they verify it; hosts that start later take it as well. What each host
made of it: `hostler versions`. The way back: `hostler rollback`.

Examples:
  hostler deploy handler.wasm --redis redis://localhost --queue-key orders
  hostler deploy handler.wasm --config orders.toml --queue-key orders --by \"build 712\" --json")]
pub(super) struct Args {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    /// The queue: the key of its stream or list, or its channel
    #[arg(long, value_name = "KEY")]
    queue_key: String,

    /// Who deploys [default: the user and the machine]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// Store it without checking it here: the hosts check it anyway
    #[arg(long)]
    unchecked: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Deploying>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Deployed<'a> {
    queue: &'a str,
    version: u64,
    digest: &'a str,
    size_bytes: u64,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let loaded = args.flags.collect(variables).redis_and_sandbox()?;
    flags::warn(&loaded.warnings);
    let (redis, settings) = loaded.value;
    let max = settings.limits.component;
    let component = check::read(&args.file, max)?;
    if !args.unchecked {
        check::load_bytes(&args.file, &component, &settings)?;
    }
    let by = args.by.unwrap_or_else(whoever);
    let token = token();
    let done = ask(async {
        let connected = Connected::new(&redis, "deploy").await?;
        let store = Store::new(connected.connector.link("deploy"), &args.queue_key);
        let deployed = async || store.deploy(&token, &component, &by).await;
        let done = patiently(redis.wait, deployed).await;
        // Whoever may deploy may lack the right to look at hosts.
        let hosts = store.hosts().await.ok();
        connected.close().await;
        done.map(|done| (done, hosts))
    })?;
    let (done, hosts) = done;
    let ChangeResult::Requested(version) = done else {
        let what = "redis lost what was uploaded before it was stored";
        return Err(Failure::new(Exit::Unavailable, what).hint("deploy it again"));
    };
    let digest = verify::digest(&component);
    let queue = &*args.queue_key;
    let takes = |hosts: Vec<String>| versions::read(&hosts).iter().any(|h| h.accepts_deploys);
    if hosts.is_some_and(|hosts| !takes(hosts)) {
        output::people(&format!(
            "no host of {queue} takes deploys now: they do with `--accept-deploys`\n"
        ));
    }
    if args.json {
        output::json(&Deployed {
            queue,
            version,
            digest: &digest,
            size_bytes: component.len() as u64,
        })?;
    } else {
        output::line(&format!("version {version} of {queue} is {digest}"))?;
    }
    Ok(Exit::Ok)
}

/// Why neither `rollback` nor `promote` means anything to a queue.
pub(super) fn nothing(queue: &str) -> Failure {
    let what = format!("nothing was ever deployed to {queue}");
    Failure::new(Exit::Usage, what).hint("`--queue-key` takes the key of a stream or list")
}

/// Tells one request from every other.
pub(super) fn token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// The user and the machine.
pub(super) fn whoever() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let user = user
        .ok()
        .flatten()
        .map_or_else(|| nix::unistd::geteuid().to_string(), |user| user.name);
    format!("{user}@{}", super::run::hostname())
}
