//! `hostler rollback`: back to the version before.

use serde::Serialize;

use crate::cli::deploy::{Request, Wait, nothing_deployed};
use crate::cli::rolled_out::{Outcome, Waiting};
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

--wait ends when every host runs that version for all messages, with the exit
codes of `hostler deploy --wait`.

Examples:
  hostler rollback --redis redis://localhost --queue orders --wait
  hostler rollback --redis redis://localhost --queue orders --to 3")]
pub(super) struct Args {
    #[command(flatten)]
    request: Request,

    /// Go back to this version; `hostler versions` lists them
    #[arg(long, value_name = "N")]
    to: Option<u64>,

    #[command(flatten)]
    wait: Wait,

    #[command(flatten)]
    common: Common<Reach>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct RolledBack<'a> {
    queue: &'a str,
    version: u64,
    /// What the hosts made of it, with `--wait`.
    #[serde(flatten)]
    outcome: Option<Outcome>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let request = &args.request;
    let (queue, by) = (&request.queue, request.author());
    let flags = args.common.flags;
    let (done, outcome) = ask(flags, variables, "rollback", async |session| {
        let store = Store::new(session.link("rollback"), queue);
        let before = store.hosts().await.ok();
        let asked = async || store.roll_back(&request.token, &by, args.to).await;
        let done = session.retry(asked).await?;
        let (Some(limit), ChangeResult::Requested(version)) = (args.wait.limit, &done) else {
            return Ok((done, None));
        };
        let stored = store.report().await?.stored;
        let wanted = stored.into_iter().find(|stored| stored.number == *version);
        // Without a version each host goes back to one of its own, at once.
        let Some(wanted) = wanted else {
            return Ok((done, None));
        };
        let waiting = Waiting::new(limit, &wanted.digest, before);
        let outcome = waiting.until_decided(&store).await?;
        Ok((done, Some(outcome)))
    })?;
    match done {
        ChangeResult::NothingDeployed => Err(nothing_deployed(queue)),
        ChangeResult::Missing => {
            let what = format!("that version of {queue} is not stored");
            Err(Failure::new(Exit::Usage, what).hint("`hostler versions` lists the stored ones"))
        }
        ChangeResult::Requested(version) => {
            let done = RolledBack {
                queue,
                version,
                outcome,
            };
            output::either(args.common.json, &done, |done| {
                let text = match version {
                    0 => format!("{queue} goes back to what each host ran before"),
                    version => format!("{queue} goes back to version {version}"),
                };
                text + &Outcome::lines(done.outcome.as_ref())
            })?;
            Ok(Outcome::exit(done.outcome.as_ref()))
        }
    }
}
