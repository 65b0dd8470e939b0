//! `hostler inspect`: what does this queue look like right now?

use std::time::Duration;

use serde::Serialize;

use crate::cli::connect::{Connected, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, ReachQueue};
use crate::cli::{Variables, flags, output, versions};
use crate::config::{DeadLetter, QueueKind, Value};
use crate::queue::inspect;
use crate::queue::stream::PARKED_CONSUMER;
use crate::redis::Error;
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;

mod ruled;

pub(super) use ruled::Ruled;

/// Show what a queue holds, who holds it, and how full its dead-letter queue is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler inspect --redis redis://localhost --stream orders --group billing --dead-letter orders:dead
  hostler inspect --redis redis://localhost --list jobs --reliable --recovery-zset jobs:claims
  hostler inspect --config orders.toml --json | jq .pending")]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<ReachQueue>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a Report<'a>,
    #[serde(flatten)]
    ruled: &'a Ruled,
}

#[derive(Serialize)]
struct Report<'a> {
    key: &'a str,
    group: Option<&'a str>,
    length: u64,
    lag: Option<u64>,
    unread: bool,
    pending: u64,
    oldest_pending_ms: Option<u64>,
    delayed: u64,
    next_due_ms: Option<u64>,
    dead_letters: Option<u64>,
    dead_letter_max_len: Option<u64>,
    dead_letter_targets: Vec<DeadLetterTarget<'a>>,
    consumers: Vec<Consumer<'a>>,
    groups: Vec<Group<'a>>,
    pinned_by: Option<&'a str>,
    hosts: Vec<HostSeen>,
}

#[derive(Serialize)]
struct Consumer<'a> {
    name: &'a str,
    pending: u64,
    idle_ms: u64,
}

/// A key that dead letters may go to.
#[derive(Serialize)]
struct DeadLetterTarget<'a> {
    key: &'a str,
    length: u64,
    max_len: u64,
}

#[derive(Serialize)]
struct Group<'a> {
    name: &'a str,
    pending: u64,
    needs_from: &'a str,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let sources = args.flags.sources(variables);
    let loaded = sources.collect(None, Vec::new()).redis_and_queue()?;
    flags::warn(&loaded.warnings);
    let (redis, queue, dead_letter) = loaded.value;
    let is_stream = queue.group().is_some();
    let (seen, ruled, hosts) = ask(async {
        let connected = Connected::new(&redis, "inspect").await?;
        let link = connected.connector.link("inspect");
        let reached = patiently(redis.wait, async || link.reach().await).await;
        let seen = match reached {
            Ok(()) => {
                let policies = connected.connector.link("policies");
                let ruled = Ruled::look(policies, &sources, &queue, dead_letter).await;
                let dead_letter = ruled.dead_letter.as_ref();
                let key = dead_letter.map(|d| &*d.key);
                let targets = dead_letter.map_or_else(Vec::new, |d| {
                    let mut targets = d.routes.targets(&d.key, queue.name());
                    // The queue itself is no more than a way back.
                    targets.retain(|key| **key != **queue.name());
                    targets
                });
                let place = queue.place();
                let seen = patiently(redis.wait, async || {
                    let seen = place.look(&link, key).await?;
                    Ok::<_, Error>((seen, inspect::lengths(&link, &targets, is_stream).await?))
                });
                let seen = seen.await;
                seen.map(|(seen, lengths)| ((seen, lengths, targets), ruled))
            }
            Err(failure) => Err(failure),
        };
        let hosts = hosts(&connected, &queue).await;
        connected.close().await;
        seen.map(|(seen, ruled)| (seen, ruled, hosts))
    })?;
    let (seen, lengths, targets) = seen;
    let dead_letter = &ruled.dead_letter;
    let Some(seen) = seen else {
        let what = "a channel holds nothing: there is nothing to inspect";
        return Err(Failure::new(Exit::Usage, what).hint("give `--stream` or `--list`"));
    };
    let mut report = shape(&queue, dead_letter.as_ref(), &seen);
    report.hosts = hosts;
    let max_len = dead_letter.as_ref().map_or(0, |d| d.max_len.get());
    let targets = targets.iter().zip(&lengths);
    report.dead_letter_targets = targets
        .map(|(key, length)| DeadLetterTarget {
            key,
            length: *length,
            max_len,
        })
        .collect();
    if args.json {
        output::json(&Whole {
            report: &report,
            ruled: &ruled,
        })?;
    } else {
        let text = text(&queue, &report);
        output::line(&format!("{text}\n\n{}", ruled.text()))?;
    }
    Ok(Exit::Ok)
}

/// What the hosts of the queue that still show themselves run. A user may look at a queue without
/// the right to look at these.
async fn hosts(connected: &Connected, queue: &QueueKind) -> Vec<HostSeen> {
    let store = Store::new(connected.connector.link("inspect"), queue.name());
    let hosts = versions::read(&store.hosts().await.unwrap_or_default());
    let ours = |host: &HostSeen| host.group.as_deref() == queue.group();
    hosts.into_iter().filter(ours).collect()
}

fn consumer(c: &inspect::ConsumerReport) -> Consumer<'_> {
    Consumer {
        name: &c.name,
        pending: c.pending,
        idle_ms: c.idle_ms,
    }
}

fn shape<'a>(
    queue: &'a QueueKind,
    dead_letter: Option<&DeadLetter>,
    report: &'a inspect::Report,
) -> Report<'a> {
    let one_group = |g: &'a inspect::GroupReport| Group {
        name: &g.name,
        pending: g.pending,
        needs_from: &g.needs_from,
    };
    Report {
        key: queue.name(),
        group: queue.group(),
        length: report.length,
        lag: report.lag,
        unread: report.unread,
        pending: report.pending,
        oldest_pending_ms: report.oldest_pending_ms,
        delayed: report.delayed,
        next_due_ms: report.next_due_ms,
        dead_letters: report.dead_letters,
        dead_letter_max_len: dead_letter.map(|d| d.max_len.get()),
        dead_letter_targets: Vec::new(),
        consumers: report.consumers.iter().map(consumer).collect(),
        groups: report.groups.iter().map(one_group).collect(),
        pinned_by: report.groups.first().map(|g| g.name.as_str()),
        hosts: Vec::new(),
    }
}

fn text(queue: &QueueKind, report: &Report<'_>) -> String {
    let length = format!("{} ({} entries)", report.key, report.length);
    let mut facts = vec![[queue.kind().to_owned(), length]];
    facts.extend(
        report
            .group
            .map(|group| ["group", group].map(str::to_owned)),
    );
    facts.extend([
        ["unread".to_owned(), unread(report)],
        ["pending".to_owned(), pending(report)],
        ["delayed".to_owned(), delayed(report)],
    ]);
    for (target, index) in report.dead_letter_targets.iter().zip(0..) {
        let DeadLetterTarget {
            key,
            length,
            max_len,
        } = target;
        let share = *length as f64 * 100.0 / *max_len as f64;
        let text = format!("{length} of {max_len} in {key} ({share:.0} % full)");
        let name = if index == 0 { "dead letters" } else { "" };
        facts.push([name.to_owned(), text]);
    }
    if let (Some(name), true) = (report.pinned_by, report.groups.len() > 1) {
        let needs = report.groups.first().map_or("-", |g| g.needs_from);
        let text = format!("{name} (retention `acked` trims up to {needs})");
        facts.push(["slowest group".to_owned(), text]);
    }
    let mut text = output::table(facts);
    if !report.consumers.is_empty() {
        let head = ["consumer", "pending", "idle"].map(str::to_owned);
        let rows = report.consumers.iter().map(|consumer| {
            let idle = if consumer.name == PARKED_CONSUMER {
                "(holds what is parked)".to_owned()
            } else {
                people_ms(consumer.idle_ms)
            };
            [consumer.name.to_owned(), consumer.pending.to_string(), idle]
        });
        text.push_str("\n\n");
        text.push_str(&output::table(std::iter::once(head).chain(rows)));
    }
    if !report.hosts.is_empty() {
        text.push_str("\n\n");
        text.push_str(&versions::of_hosts(&report.hosts));
    }
    text
}

fn unread(report: &Report<'_>) -> String {
    match (report.unread, report.lag) {
        (false, _) => "nothing".to_owned(),
        (true, Some(lag)) => format!("about {lag}"),
        (true, None) => "some (Redis does not know how many)".to_owned(),
    }
}

fn pending(report: &Report<'_>) -> String {
    match report.oldest_pending_ms {
        Some(oldest) => format!("{} (the oldest for {})", report.pending, people_ms(oldest)),
        None => report.pending.to_string(),
    }
}

fn delayed(report: &Report<'_>) -> String {
    match report.next_due_ms {
        Some(0) => format!("{} (the next is due now)", report.delayed),
        Some(next) => format!(
            "{} (the next is due in {})",
            report.delayed,
            people_ms(next)
        ),
        None => report.delayed.to_string(),
    }
}

/// A duration that people can read: no finer than it matters.
fn people_ms(ms: u64) -> String {
    let duration = match ms {
        0..1_000 => Duration::from_millis(ms),
        _ => Duration::from_secs(ms / 1_000),
    };
    duration.show()
}
