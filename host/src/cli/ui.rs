//! `hostler ui`: the dashboard of all queues of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::admin;
use crate::cli::flags::{Flags, Tried};
use crate::cli::session::{connected, start_logging};
use crate::cli::{Exit, Failure, Variables, output, text};
use crate::config::{Collected, Trying, read_token};
use crate::host::{StopSignals, Threads, component};
use crate::trial::Candidate;
use crate::ui::{Trials, Ui};

/// Serve the dashboard: queues, hosts, dead letters, versions, policies
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One page without outside resources. Without a token it only reads. With a token
it can also replay, purge and try dead letters, pause and resume queues,
promote, roll back and set policies: a person confirms each action, and it is
logged.
A dead letter is tried with a handler of `--try` only; that writes nothing.
A host serves the same with `--admin ADDRESS --ui`.

Who reaches the address can read messages: it is for this machine only unless
--listen says otherwise. Put it behind a proxy with TLS before others use it.

Examples:
  hostler ui --redis redis://localhost
  hostler ui --redis redis://localhost --listen 0.0.0.0:9401 \\
    --token-file /run/secrets/hostler-ui --try fixed.wasm")]
pub(super) struct Args {
    /// Where the page is served; a port alone means this machine only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9401", value_parser = text::parse::<SocketAddr>)]
    listen: SocketAddr,

    /// A file with the token for actions
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// A handler that dead letters may be tried with; once for each
    ///
    /// It runs on this machine, in the sandbox, with the limits and grants of these flags. No user of
    /// the page can bring another one.
    #[arg(long = "try", value_name = "FILE", requires = "token_file")]
    tries: Vec<PathBuf>,

    #[command(flatten)]
    flags: Flags<Tried>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let token = args.token_file.as_deref().map(read_token).transpose();
    let token = token.map_err(|what| Failure::new(Exit::Usage, what))?;
    let (redis, trying) = args.flags.load(variables, Collected::trying)?;
    start_logging();
    let candidates = candidates(&args.tries, &trying)?;
    Threads::start()?.run(async |attempts| {
        connected(&redis, "ui", async |session| {
            let mut stops = StopSignals::listen()?;
            let bound = admin::bind(args.listen).await;
            let bound = bound.map_err(|error| Failure::new(Exit::Usage, error))?;
            let address = bound.address();
            let can = match token {
                Some(_) => "reads, and acts with the token",
                None => "only reads: `--token-file` makes actions possible",
            };
            output::people(&format!("http://{address}/ui {can}\n"));
            let trials = Trials {
                candidates,
                reading: trying.reading,
                attempts: attempts.clone(),
            };
            let ui = Ui::new(session.connector.clone(), token, Some(trials));
            let serve = bound.serve_only(ui.router());
            tokio::select! {
                _ = stops.next() => {}
                () = serve => {}
                () = ui.observe() => {}
            }
            Ok(Exit::Ok)
        })
        .await
    })
}

/// Load these handlers. Each has the name of its file.
fn candidates(files: &[PathBuf], trying: &Trying) -> Result<Vec<(String, Candidate)>, Failure> {
    let mut candidates: Vec<(String, Candidate)> = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if candidates.iter().any(|(known, _)| *known == name) {
            let what = format!("two handlers of `--try` are called {name}");
            return Err(Failure::new(Exit::Usage, what).hint("rename one of the files"));
        }
        let sandbox = component::load(file, &trying.sandbox)?;
        candidates.push((name.into_owned(), Candidate::new(sandbox, trying)));
    }
    Ok(candidates)
}
