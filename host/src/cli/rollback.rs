//! `hostler rollback`: back to the version before.

use crate::cli::deploy::{Request, nothing_deployed};
use crate::cli::{Common, Exit, Failure, Reach, Variables, ask, output};
use crate::rollout::store::{ChangeResult, Store};

/// Go back to the version before, on every host that runs with `--accept-deploys`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A host keeps the version before in compiled form, so it goes back within a
second. If only one version was ever deployed, each host that runs it goes back
to the version that it ran before, and the other hosts change nothing.
Run it again to undo it.

Rollback also cancels a canary. A canary that came from the handler's file is
cancelled together with the deployed version: to cancel only the canary, restore
the old file.

Examples:
  hostler rollback --redis redis://localhost --queue orders
  hostler rollback --redis redis://localhost --queue orders --to 3")]
pub(super) struct Args {
    #[command(flatten)]
    request: Request,

    /// Go back to this version; `hostler versions` lists them
    #[arg(long, value_name = "N")]
    to: Option<u64>,

    #[command(flatten)]
    common: Common<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let request = &args.request;
    let (queue, by) = (&request.queue, request.author());
    let done = ask(args.common.flags, variables, "rollback", async |session| {
        let store = Store::new(session.link("rollback"), queue);
        let asked = async || store.roll_back(&request.token, &by, args.to).await;
        session.retry(asked).await
    })?;
    match done {
        ChangeResult::NothingDeployed => Err(nothing_deployed(queue)),
        ChangeResult::Missing => {
            let what = format!("that version of {queue} is not stored");
            Err(Failure::new(Exit::Usage, what).hint("`hostler versions` lists the stored ones"))
        }
        ChangeResult::Requested(version) => {
            let json = serde_json::json!({ "queue": queue, "version": version });
            output::either(args.common.json, &json, |_| match version {
                0 => format!("{queue} goes back to what each host ran before"),
                version => format!("{queue} goes back to version {version}"),
            })
        }
    }
}
