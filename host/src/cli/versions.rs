//! `hostler versions`: the versions stored for a queue, and the versions that its hosts run.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use crate::cli::text::{one_line, short_digest, size};
use crate::cli::{Common, Exit, Failure, Reach, Variables, ask, output};
use crate::redis::Error;
use crate::rollout::follower::HostSeen;
use crate::rollout::store::{Store, Stored, StoredVersions, Verdicts};

/// List the versions stored for a queue, and what each host runs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler versions --redis redis://localhost --queue orders
  hostler versions --redis redis://localhost --queue orders --json \\
    | jq '.hosts[].handler'")]
pub(super) struct Args {
    /// The queue: the key of its stream or list, or its channel
    #[arg(long = "queue", alias = "queue-key", value_name = "KEY")]
    queue: String,

    #[command(flatten)]
    common: Common<Reach>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Shown<'a> {
    queue: &'a str,
    wanted: Option<u64>,
    before: Option<u64>,
    stored: Vec<Version<'a>>,
    hosts: Vec<HostSeen>,
}

#[derive(Serialize)]
struct Version<'a> {
    #[serde(flatten)]
    stored: &'a Stored,
    #[serde(flatten)]
    verdicts: &'a Verdicts,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let found = ask(args.common.flags, variables, "versions", async |session| {
        let store = Store::new(session.link("versions"), &args.queue);
        session
            .retry(async || {
                let report = store.report().await?;
                let verdicts = store.verdicts(&report.stored).await?;
                Ok::<_, Error>((report, verdicts, store.hosts().await?))
            })
            .await
    });
    let (report, verdicts, hosts) = found?;
    let shown = shown(&args.queue, &report, &verdicts, &hosts);
    output::either(args.common.json, &shown, text)
}

fn shown<'a>(
    queue: &'a str,
    report: &'a StoredVersions,
    verdicts: &'a [Verdicts],
    hosts: &[String],
) -> Shown<'a> {
    let known = |number: u64| (number > 0).then_some(number);
    let stored = report.stored.iter().zip(verdicts);
    let stored = stored.map(|(stored, verdicts)| Version { stored, verdicts });
    Shown {
        queue,
        wanted: known(report.requested),
        before: known(report.previous),
        stored: stored.collect(),
        hosts: HostSeen::parse_all(hosts),
    }
}

/// The hosts of a queue, of this group of it, that show themselves. Empty if the user may not read them.
pub(super) async fn hosts_of(store: &Store, group: Option<&str>) -> Vec<HostSeen> {
    let mut hosts = HostSeen::parse_all(&store.hosts().await.unwrap_or_default());
    hosts.retain(|host| host.group.as_deref() == group);
    hosts
}

fn text(shown: &Shown<'_>) -> String {
    let mut text = if shown.stored.is_empty() {
        "nothing was deployed".to_owned()
    } else {
        let titles = ["version", "digest", "size", "when", "by", ""];
        let rows = shown.stored.iter().map(|version| row(shown, version));
        output::titled(titles, rows)
    };
    if !shown.hosts.is_empty() {
        text.push_str("\n\n");
        text.push_str(&hosts_table(&shown.hosts));
    }
    text
}

fn row(shown: &Shown<'_>, Version { stored, verdicts }: &Version<'_>) -> [String; 6] {
    let is = |number: Option<u64>| number == Some(stored.number);
    let mut remarks = Vec::new();
    if is(shown.wanted) {
        remarks.push("wanted".to_owned());
    } else if is(shown.before) {
        remarks.push("before".to_owned());
    }
    if let Some(given_up) = &verdicts.rejected {
        remarks.push(format!("given up by {given_up}"));
    } else if let Some(kept) = &verdicts.kept {
        remarks.push(format!("kept by {kept}"));
    }
    let at = UNIX_EPOCH + Duration::from_millis(stored.at_ms);
    [
        stored.number.to_string(),
        short_digest(&stored.digest).to_owned(),
        size(stored.size),
        humantime::format_rfc3339_seconds(at).to_string(),
        stored.by.clone(),
        remarks.join(", "),
    ]
}

/// The state of each host, what it runs and has refused, one line each; below, why hosts are not ready or
/// ignore rules.
pub(super) fn hosts_table(hosts: &[HostSeen]) -> String {
    let rows = hosts.iter().map(|host| {
        let handler = &host.handler;
        let canary = handler.canary.as_ref();
        let refused = handler.refused.as_ref();
        [
            host.consumer.clone(),
            host.state().to_owned(),
            short_digest(&handler.current.digest).to_owned(),
            handler.current.origin.clone(),
            canary.map_or_else(String::new, |canary| {
                format!("{} ({})", short_digest(&canary.digest), canary.share)
            }),
            refused.map_or_else(String::new, |refused| {
                let digest = short_digest(&refused.digest);
                format!("{digest} at `{}`: {}", refused.step, refused.reason)
            }),
        ]
    });
    let titles = ["host", "state", "runs", "from", "canary", "refused"];
    let mut text = output::titled(titles, rows);
    for host in hosts {
        let ignores = host.rules_refused.as_ref();
        let ignores = ignores.map(|why| format!("{} ignores new rules: {why}", host.consumer));
        let remarks = host.trouble().into_iter().chain(ignores);
        text.extend(remarks.map(|remark| format!("\n{}", one_line(&remark))));
    }
    text
}
