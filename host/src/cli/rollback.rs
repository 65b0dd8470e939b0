//! `hostler rollback`: back to the version before, at once.

use crate::cli::connect::{Connected, ask, patiently};
use crate::cli::deploy::{nothing, token, whoever};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::{Variables, flags, output};
use crate::rollout::store::{ChangeResult, Store};

/// Go back to the version before, on every host that runs with `--accept-deploys`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A host keeps the version before compiled, so it goes back within a second, and compiles nothing. A
canary is given up; one that came from the handler's file, with what was deployed before it: to be rid of
that one alone put the old file back. Where only one version was ever deployed, each host that runs it goes back to
what it ran before, and the others change nothing. Again, it takes itself back.

Examples:
  hostler rollback --redis redis://localhost --queue-key orders
  hostler rollback --redis redis://localhost --queue-key orders --to 3")]
pub(super) struct Args {
    /// The queue: the key of its stream or list, or its channel
    #[arg(long, value_name = "KEY")]
    queue_key: String,

    /// Go back to this version, of those that `hostler versions` lists
    #[arg(long, value_name = "N")]
    to: Option<u64>,

    /// Who goes back [default: the user and the machine]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let loaded = args.flags.collect(variables).redis()?;
    flags::warn(&loaded.warnings);
    let redis = loaded.value;
    let by = args.by.unwrap_or_else(whoever);
    let token = token();
    let done = ask(async {
        let connected = Connected::new(&redis, "rollback").await?;
        let store = Store::new(connected.connector.link("rollback"), &args.queue_key);
        let asked = async || store.roll_back(&token, &by, args.to).await;
        let done = patiently(redis.wait, asked).await;
        connected.close().await;
        done
    })?;
    let queue = &args.queue_key;
    match done {
        ChangeResult::NothingDeployed => Err(nothing(queue)),
        ChangeResult::Missing => {
            let what = format!("that version of {queue} is not stored");
            let hint = "`hostler versions` lists those that are";
            Err(Failure::new(Exit::Usage, what).hint(hint))
        }
        ChangeResult::Requested(version) if args.json => {
            output::json(&serde_json::json!({ "queue": queue, "version": version }))?;
            Ok(Exit::Ok)
        }
        ChangeResult::Requested(0) => {
            output::line(&format!("{queue} goes back to what each host ran before"))?;
            Ok(Exit::Ok)
        }
        ChangeResult::Requested(version) => {
            output::line(&format!("{queue} goes back to version {version}"))?;
            Ok(Exit::Ok)
        }
    }
}
