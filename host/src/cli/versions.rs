//! `hostler versions`: what is stored for a queue, and what each of its hosts runs.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use crate::cli::check::people_size;
use crate::cli::connect::{Connected, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::{Variables, flags, output};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::{Store, Stored, StoredVersions, Verdicts};

/// List the versions stored for a queue, and what each host runs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler versions --redis redis://localhost --queue-key orders
  hostler versions --redis redis://localhost --queue-key orders --json | jq '.hosts[].handler'")]
pub(super) struct Args {
    /// The queue: the key of its stream or list, or its channel
    #[arg(long, value_name = "KEY")]
    queue_key: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Shown<'a> {
    queue: &'a str,
    wanted: Option<u64>,
    before: Option<u64>,
    stored: Vec<Version<'a>>,
    hosts: &'a [HostSeen],
}

#[derive(Serialize)]
struct Version<'a> {
    version: u64,
    digest: &'a str,
    size_bytes: u64,
    at_ms: u64,
    by: &'a str,
    /// Which host has kept it after its trial, and which one has given it up, and why.
    kept: Option<&'a str>,
    given_up: Option<&'a str>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let loaded = args.flags.collect(variables).redis()?;
    flags::warn(&loaded.warnings);
    let redis = loaded.value;
    let (report, verdicts, hosts) = ask(async {
        let connected = Connected::new(&redis, "versions").await?;
        let store = Store::new(connected.connector.link("versions"), &args.queue_key);
        let asked = async || {
            let report = store.report().await?;
            let verdicts = store.verdicts(&report.stored).await?;
            Ok((report, verdicts, store.hosts().await?))
        };
        let found = patiently::<_, crate::redis::Error>(redis.wait, asked).await;
        connected.close().await;
        found
    })?;
    let hosts = read(&hosts);
    let known = |number: u64| (number > 0).then_some(number);
    if args.json {
        let stored = report.stored.iter().zip(&verdicts);
        let stored = stored.map(|(stored, verdicts)| Version {
            version: stored.number,
            digest: &stored.digest,
            size_bytes: stored.size,
            at_ms: stored.at_ms,
            by: &stored.by,
            kept: verdicts.kept.as_deref(),
            given_up: verdicts.rejected.as_deref(),
        });
        output::json(&Shown {
            queue: &args.queue_key,
            wanted: known(report.requested),
            before: known(report.previous),
            stored: stored.collect(),
            hosts: &hosts,
        })?;
    } else {
        output::line(&text(&report, &verdicts, &hosts))?;
    }
    Ok(Exit::Ok)
}

/// What hosts say of themselves, as far as this version of hostler understands it.
pub(super) fn read(hosts: &[String]) -> Vec<HostSeen> {
    let hosts = hosts.iter();
    hosts
        .filter_map(|text| serde_json::from_str(text).ok())
        .collect()
}

fn text(report: &StoredVersions, verdicts: &[Verdicts], hosts: &[HostSeen]) -> String {
    let mut text = if report.stored.is_empty() {
        "nothing was deployed".to_owned()
    } else {
        let head = ["version", "digest", "size", "when", "by", ""].map(str::to_owned);
        let rows = report.stored.iter().zip(verdicts);
        let rows = rows.map(|(stored, verdicts)| row(report, stored, verdicts));
        output::table(std::iter::once(head).chain(rows))
    };
    if !hosts.is_empty() {
        text.push_str("\n\n");
        text.push_str(&of_hosts(hosts));
    }
    text
}

fn row(report: &StoredVersions, stored: &Stored, verdicts: &Verdicts) -> [String; 6] {
    let is_wanted = (stored.number == report.requested).then_some("wanted");
    let is_before = (stored.number == report.previous).then_some("before");
    let mut what = Vec::from_iter(is_wanted.or(is_before).map(str::to_owned));
    if let Some(given_up) = &verdicts.rejected {
        what.push(format!("given up by {given_up}"));
    } else if let Some(kept) = &verdicts.kept {
        what.push(format!("kept by {kept}"));
    }
    let at = UNIX_EPOCH + Duration::from_millis(stored.at_ms);
    [
        stored.number.to_string(),
        short(&stored.digest).to_owned(),
        people_size(stored.size),
        humantime::format_rfc3339_seconds(at).to_string(),
        stored.by.clone(),
        what.join(", "),
    ]
}

/// What each host runs, one line each; and what it refused.
pub(super) fn of_hosts(hosts: &[HostSeen]) -> String {
    let head = ["host", "runs", "from", "canary", "refused"].map(str::to_owned);
    let rows = hosts.iter().map(|host| {
        let handler = &host.handler;
        let canary = handler.canary.as_ref();
        let refused = handler.refused.as_ref();
        [
            host.consumer.clone(),
            short(&handler.current.digest).to_owned(),
            handler.current.origin.clone(),
            canary.map_or_else(String::new, |canary| {
                format!("{} ({})", short(&canary.digest), canary.share)
            }),
            refused.map_or_else(String::new, |refused| {
                format!(
                    "{} at `{}`: {}",
                    short(&refused.digest),
                    refused.step,
                    refused.reason
                )
            }),
        ]
    });
    output::table(std::iter::once(head).chain(rows))
}

/// Enough of a digest for people.
fn short(digest: &str) -> &str {
    let end = "sha256:".len() + 12;
    digest.get(..end).unwrap_or(digest)
}
