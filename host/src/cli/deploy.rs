//! `hostler deploy`: a new version of the handler, for every host of a queue that accepts deploys.

use std::path::PathBuf;

use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Deploying, Flags};
use crate::cli::session::ask_at;
use crate::cli::{Variables, output, versions};
use crate::config::Collected;
use crate::host::{component, settings};
use crate::rollout::store::{ChangeResult, Store};
use crate::rollout::verify;

/// Store a component beside its queue, for every host that runs with `--accept-deploys`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
This command checks the component, and stores it whole or not at all. The hosts
notice it within two seconds, verify it, and run it; hosts that start later run
it as well. `hostler versions` shows what each host made of it.
`hostler rollback` goes back.

Examples:
  hostler deploy handler.wasm --redis redis://localhost --queue-key orders
  hostler deploy handler.wasm --config orders.toml --queue-key orders \\
    --by \"build 712\" --json")]
pub(super) struct Args {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    #[command(flatten)]
    request: Request,

    /// Store it without checking it here: the hosts check it anyway
    #[arg(long)]
    unchecked: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Deploying>,
}

/// A request for another version.
#[derive(Debug, clap::Args)]
pub(super) struct Request {
    /// The queue: the key of its stream or list, or its channel
    #[arg(long, value_name = "KEY")]
    pub(super) queue_key: String,

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
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let (redis, settings) = args.flags.load(variables, Collected::redis_and_sandbox)?;
    let component = component::read(&args.file, settings.limits.component)?;
    if !args.unchecked {
        component::load_bytes(&args.file, &component, &settings)?;
    }
    let request = &args.request;
    let (queue, by) = (&*request.queue_key, request.author());
    let (done, hosts) = ask_at(&redis, "deploy", async |session| {
        let store = Store::new(session.link("deploy"), queue);
        let deployed = async || store.deploy(&request.token, &component, &by).await;
        let done = session.retry(deployed).await?;
        // A user who may deploy may lack the right to read the hosts.
        Ok((done, store.hosts().await.ok()))
    })?;
    let ChangeResult::Requested(version) = done else {
        let what = "redis lost the uploaded component before it was stored";
        return Err(Failure::new(Exit::Unavailable, what).hint("deploy it again"));
    };
    let accepts = |hosts: Vec<String>| {
        versions::parse_hosts(&hosts)
            .iter()
            .any(|h| h.accepts_deploys)
    };
    if hosts.is_some_and(|hosts| !accepts(hosts)) {
        output::people(&format!(
            "no host of {queue} takes deploys now: start hosts with `--accept-deploys`\n"
        ));
    }
    let deployed = Deployed {
        queue,
        version,
        digest: &verify::digest(&component),
        size_bytes: component.len() as u64,
    };
    output::either(args.json, &deployed, |deployed| {
        format!("version {version} of {queue} is {}", deployed.digest)
    })
}

/// The failure of `rollback` and `promote` where there is nothing to go back to.
pub(super) fn nothing_deployed(queue: &str) -> Failure {
    let what = format!("nothing was ever deployed to {queue}");
    Failure::new(Exit::Usage, what).hint("`--queue-key` takes the key of a stream or list")
}
