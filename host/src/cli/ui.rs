//! `hostler ui`: the dashboard of all queues of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::admin;
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::session::ask;
use crate::cli::{Variables, output, text};
use crate::config::read_token;
use crate::host::StopSignals;
use crate::ui::Ui;

/// Serve the dashboard: queues, hosts, dead letters, versions, policies
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One page without outside resources. Without a token it only reads. With a token
it can also replay and purge dead letters, pause and resume queues, promote,
roll back and set policies: each action is confirmed by a person and logged.
A host serves the same with `--admin ADDRESS --ui`.

Who reaches the address can read messages: it is for this machine only unless
--listen says otherwise. Put it behind a proxy with TLS before others use it.

Examples:
  hostler ui --redis redis://localhost
  hostler ui --redis redis://localhost --listen 0.0.0.0:9401 \\
    --token-file /run/secrets/hostler-ui")]
pub(super) struct Args {
    /// Where the page is served; a port alone means this machine only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9401", value_parser = text::parse::<SocketAddr>)]
    listen: SocketAddr,

    /// A file with the token for actions
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    flags: Flags<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let token = args.token_file.as_deref().map(read_token).transpose();
    let token = token.map_err(|what| Failure::new(Exit::Usage, what))?;
    ask(args.flags, variables, "ui", async |session| {
        let mut stops = StopSignals::listen()?;
        let bound = admin::bind(args.listen).await;
        let bound = bound.map_err(|error| Failure::new(Exit::Usage, error))?;
        let address = bound.address();
        let can = match token {
            Some(_) => "reads, and acts with the token",
            None => "only reads: `--token-file` makes actions possible",
        };
        output::people(&format!("http://{address}/ui {can}\n"));
        let ui = Ui::new(session.connector.clone(), token, address.ip().is_loopback());
        let serve = bound.serve_only(ui.router());
        tokio::select! {
            _ = stops.next() => {}
            () = serve => {}
            () = ui.observe() => {}
        }
        Ok(Exit::Ok)
    })
}
