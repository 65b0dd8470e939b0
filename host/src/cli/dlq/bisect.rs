//! `hostler dlq bisect`: the first stored version that fails on a dead letter.

use serde::Serialize;

use super::debug::{Component, Source, again, find};
use crate::cli::session::ask_at;
use crate::cli::text::{one_line, short_digest};
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::Collected;
use crate::rollout::store::{Fetched, Store, Stored};
use crate::workbench::again::{Again, Recorded, Verdict};

/// Find the first stored version that fails on a dead letter
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs the last attempt again with each version that is stored for its queue, as
`hostler dlq debug` does: offline, with its recorded answers.

Examples:
  hostler dlq bisect --redis redis://localhost orders:dead 1700000000000-0

Exit codes: 0 a version fails, 1 none fails, 2 no version tells; 64 usage")]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Found {
    /// The first version that fails.
    first: Option<u64>,
    versions: Vec<Tried>,
}

#[derive(Serialize)]
struct Tried {
    #[serde(flatten)]
    stored: Stored,
    verdict: &'static str,
    why: Vec<String>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let Source {
        letter,
        json,
        flags,
    } = args.source;
    let (key, id) = letter.named(&flags, &variables)?;
    let (redis, settings) = flags.load(variables, Collected::redis_and_sandbox)?;
    let versions = ask_at(&redis, "dlq", async |session| {
        let entry = find(session, &key, &id).await?;
        let recorded = Recorded::of(&entry)?;
        let queue = entry.source.as_deref().unwrap_or_default();
        let store = Store::new(session.link("versions"), queue);
        let mut stored = session.retry(async || store.report().await).await?.stored;
        stored.reverse();
        let max = settings.limits.component;
        let mut versions = Vec::new();
        for stored in stored {
            let fetched = session
                .retry(async || store.fetch(&stored, max).await)
                .await?;
            let (verdict, why) = match fetched {
                Fetched::Component(bytes) => {
                    let path = format!("version {}", stored.number).into();
                    let component = Component { path, bytes };
                    match again(&recorded, &component, &settings, None).await {
                        Ok(again) => judged(again),
                        Err(failure) => (Verdict::CannotTell, vec![failure.what]),
                    }
                }
                Fetched::TooLarge(why) | Fetched::Damaged(why) => {
                    (Verdict::CannotTell, vec![format!("it {why}")])
                }
            };
            let verdict = verdict.label();
            versions.push(Tried {
                stored,
                verdict,
                why,
            });
        }
        Ok::<_, Failure>(versions)
    })?;
    let says = |verdict: Verdict| move |tried: &&Tried| tried.verdict == verdict.label();
    let first = versions.iter().find(says(Verdict::Fails));
    let exit = match first {
        Some(_) => Exit::Ok,
        None if versions.iter().any(|tried| says(Verdict::Passes)(&tried)) => Exit::Failed,
        None => Exit::CannotTell,
    };
    let found = Found {
        first: first.map(|tried| tried.stored.number),
        versions,
    };
    output::either(json, &found, text)?;
    Ok(exit)
}

/// The handler of the attempt is a version like the others.
fn judged(again: Again) -> (Verdict, Vec<String>) {
    let verdict = match again.verdict {
        Verdict::Same | Verdict::Differs if again.ended.outcome == "ack" => Verdict::Passes,
        Verdict::Same | Verdict::Differs => Verdict::Fails,
        verdict => verdict,
    };
    match verdict {
        Verdict::Fails => (verdict, vec![again.ended.to_string()]),
        _ => (verdict, again.why),
    }
}

fn text(found: &Found) -> String {
    if found.versions.is_empty() {
        return "no version is stored for its queue".to_owned();
    }
    let rows = found.versions.iter().map(|tried| {
        [
            tried.stored.number.to_string(),
            short_digest(&tried.stored.digest).to_owned(),
            tried.verdict.to_owned(),
            one_line(&tried.why.join("; ")),
        ]
    });
    let table = output::titled(["version", "digest", "verdict", "why"], rows);
    let first = match found.first {
        Some(number) => format!("version {number} is the first that fails"),
        None => "no version fails".to_owned(),
    };
    format!("{table}\n\n{first}")
}
