//! `hostler promote`: end a canary's trial early, in its favour.

use crate::cli::deploy::{Request, nothing_deployed};
use crate::cli::{Exit, Failure, Flags, Reach, Variables, ask, output};
use crate::rollout::store::{ChangeResult, Store};

/// Let the canary take over, on every host that runs with `--accept-deploys`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The deployed version gets all messages, also on hosts that have given it up. To
cancel a deployed canary: `hostler rollback`. To cancel a canary that came from
the handler's file: restore the old file.

Examples:
  hostler promote --redis redis://localhost --queue orders")]
pub(super) struct Args {
    #[command(flatten)]
    request: Request,

    #[command(flatten)]
    flags: Flags<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let request = &args.request;
    let (queue, by) = (&request.queue, request.author());
    let done = ask(args.flags, variables, "promote", async |session| {
        let store = Store::new(session.link("promote"), queue);
        session
            .retry(async || store.promote(&request.token, &by).await)
            .await
    })?;
    if done == ChangeResult::NothingDeployed {
        return Err(nothing_deployed(queue));
    }
    output::line(&format!("the canary of {queue} takes over"))?;
    Ok(Exit::Ok)
}
