//! `hostler promote`: end a canary's trial early, in its favour.

use crate::cli::deploy::{Request, nothing_deployed};
use crate::cli::{Exit, Failure, Flags, Reach, Variables, ask, output};
use crate::rollout::follower::HostSeen;
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
    let (done, hosts) = ask(args.flags, variables, "promote", async |session| {
        let store = Store::new(session.link("promote"), queue);
        // A user who may promote may lack the right to read the hosts.
        let hosts = store.hosts().await.ok();
        let promoted = session.retry(async || store.promote(&request.token, &by).await);
        Ok((promoted.await?, hosts))
    })?;
    let ChangeResult::Requested(version) = done else {
        return Err(nothing_deployed(queue));
    };
    let hosts = HostSeen::parse_all(&hosts.unwrap_or_default());
    let mut canaries = hosts.iter().filter(|host| host.handler.canary.is_some());
    output::line(&match (canaries.next(), version) {
        (Some(_), _) => format!("the canary of {queue} takes over"),
        (None, 0) => format!("no host of {queue} has a canary: nothing changes"),
        (None, version) => {
            format!("no host of {queue} has a canary; version {version} gets all messages")
        }
    })?;
    Ok(Exit::Ok)
}
