//! `hostler promote`: keep a canary without waiting for the end of its window.

use crate::cli::connect::{Connected, ask, patiently};
use crate::cli::deploy::{nothing, token, whoever};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::{Variables, flags, output};
use crate::rollout::store::{ChangeResult, Store};

/// Let the canary take over, on every host that runs with `--accept-deploys`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is deployed takes over whole, also on hosts that have given it up. To give up one that is deployed:
`hostler rollback`; one that came from the handler's file: put the old file back.

Examples:
  hostler promote --redis redis://localhost --queue-key orders")]
pub(super) struct Args {
    /// The queue: the key of its stream or list, or its channel
    #[arg(long, value_name = "KEY")]
    queue_key: String,

    /// Who promotes it [default: the user and the machine]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

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
        let connected = Connected::new(&redis, "promote").await?;
        let store = Store::new(connected.connector.link("promote"), &args.queue_key);
        let done = patiently(redis.wait, async || store.promote(&token, &by).await).await;
        connected.close().await;
        done
    })?;
    let queue = &args.queue_key;
    if done == ChangeResult::NothingDeployed {
        return Err(nothing(queue));
    }
    output::line(&format!("the canary of {queue} takes over"))?;
    Ok(Exit::Ok)
}
