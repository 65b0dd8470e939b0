//! `hostler inspect`: the state of a queue right now.

use std::sync::Arc;

use serde::Serialize;

use crate::cli::live_rules::LiveRules;
use crate::cli::named::{FoundQueue, OfQueue, with_queue, with_queues};
use crate::cli::session::Session;
use crate::cli::text::{duration_ms, one_line};
use crate::cli::{Exit, Failure, Variables, output, schedule as schedules, versions};
use crate::queue::inspect::{self, Report};
use crate::queue::stream::PARKED_CONSUMER;
use crate::redis::Error;
use crate::registry::overview::{self, Destination, LimitSeen};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;
use crate::schedule::{self, ScheduleSeen};

/// Show what a queue holds, which hosts serve it, and how full its dead-letter queue is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler inspect --redis redis://localhost orders
  hostler inspect --redis redis+cluster://a,b,c '{orders:*}'
  hostler inspect --redis redis://localhost --stream orders --group billing \\
    --dead-letter orders:dead
  hostler inspect --redis redis://localhost --list jobs --reliable \\
    --recovery-zset {jobs}:claims
  hostler inspect --config orders.toml --json | jq .pending")]
pub(super) struct Args {
    #[command(flatten)]
    of: OfQueue,
}

/// The shape of `--json`; an array of these for a pattern.
#[derive(Serialize)]
struct Inspected {
    #[serde(skip)]
    kind: &'static str,
    key: String,
    group: Option<String>,
    #[serde(flatten)]
    queue: Report,
    dead_letter_max_len: Option<u64>,
    dead_letter_targets: Vec<DeadLetterTarget>,
    pinned_by: Option<String>,
    hosts: Vec<HostSeen>,
    schedules: Vec<ScheduleSeen>,
    destinations: Vec<Destination>,
    limits: Vec<LimitSeen>,
    #[serde(flatten)]
    rules: LiveRules,
}

/// A key that dead letters may go to.
#[derive(Serialize)]
struct DeadLetterTarget {
    key: String,
    length: u64,
    max_len: u64,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    const COMMAND: &str = "inspect";
    let of = args.of;
    let json = of.common.json;
    if let Some(pattern) = of.named.pattern() {
        let all = with_queues(pattern, of.common.flags, variables, COMMAND, look)?;
        return output::either(json, &all, |all| {
            let texts: Vec<_> = all.iter().map(text).collect();
            texts.join("\n\n\n")
        });
    }
    let one = with_queue(of, variables, COMMAND, look)?;
    output::either(json, &one, text)
}

async fn look(session: &Session, found: FoundQueue) -> Result<Inspected, Failure> {
    let queue = &found.queue;
    let policies = session.link("policies");
    let store = Store::new(session.link("hosts"), queue.name());
    let hosts = versions::hosts_of(&store, queue.group()).await;
    let rules = LiveRules::read(policies, &found, &hosts).await;
    let dead_letter = rules.dead_letter.as_ref();
    let key = dead_letter.map(|d| &*d.key);
    let mut targets = dead_letter.map_or_else(Vec::new, |d| d.routes.targets(&d.key, queue.name()));
    // A route to the queue itself is a way back, not a dead-letter queue.
    targets.retain(|key| **key != **queue.name());
    let (link, place) = (session.link("inspect"), queue.place());
    let is_stream = queue.group().is_some();
    let (seen, lengths) = session
        .retry(async || {
            let seen = place.look(&link, key).await?;
            let lengths = inspect::lengths(&link, &targets, is_stream).await?;
            Ok::<_, Error>((seen.unwrap_or_default(), lengths))
        })
        .await?;
    let limits = overview::limits(&link, &hosts).await;
    let scheduled = schedule::Store::new(Arc::new(link), queue.name());
    // They are shown where the user may read them.
    let scheduled = match queue.is_at_most_once() {
        false => schedule::seen(&scheduled).await.unwrap_or_default(),
        true => Vec::new(),
    };
    let max_len = dead_letter.map(|d| d.max_len.get());
    let targets = targets.into_iter().zip(lengths);
    Ok(Inspected {
        kind: queue.kind(),
        key: queue.name().to_string(),
        group: queue.group().map(str::to_owned),
        dead_letter_max_len: max_len,
        dead_letter_targets: targets
            .map(|(key, length)| DeadLetterTarget {
                key,
                length,
                max_len: max_len.unwrap_or_default(),
            })
            .collect(),
        pinned_by: seen.groups.first().map(|g| g.name.clone()),
        destinations: Destination::of(&hosts),
        limits,
        hosts,
        schedules: scheduled,
        queue: seen,
        rules,
    })
}

fn text(report: &Inspected) -> String {
    let queue = &report.queue;
    let length = format!("{} ({} entries)", report.key, queue.length);
    let mut facts = vec![[report.kind.to_owned(), length]];
    let group = report.group.as_ref();
    facts.extend(group.map(|group| ["group", group].map(str::to_owned)));
    facts.extend([
        ["unread".to_owned(), unread(queue)],
        ["pending".to_owned(), pending(queue)],
        ["delayed".to_owned(), delayed(queue)],
    ]);
    let journals = (queue.journals > 0).then(|| queue.journals.to_string());
    facts.extend(journals.map(|journals| ["journals".to_owned(), journals]));
    if let Some(held) = queue.on_hold.filter(|held| *held > 0) {
        let text = format!("{held}, uncharged (`hostler trace ID` says since when)");
        facts.push(["held".to_owned(), text]);
    }
    for (index, target) in report.dead_letter_targets.iter().enumerate() {
        let (key, length, max_len) = (&target.key, target.length, target.max_len);
        let share = length as f64 * 100.0 / max_len as f64;
        let text = format!("{length} of {max_len} in {key} ({share:.0} % full)");
        let name = if index == 0 { "dead letters" } else { "" };
        facts.push([name.to_owned(), text]);
    }
    if let [slowest, _, ..] = queue.groups.as_slice() {
        let (name, needs) = (&slowest.name, &slowest.needs_from);
        let text = format!("{name} (retention `acked` trims up to {needs})");
        facts.push(["slowest group".to_owned(), text]);
    }
    for (index, outbox) in queue.outboxes.iter().filter(|o| o.length > 0).enumerate() {
        let (to, length) = (&outbox.to, outbox.length);
        let age = duration_ms(outbox.oldest_ms.unwrap_or_default());
        let name = if index == 0 { "outbox" } else { "" };
        let text = format!("{length} to {to} (the oldest for {age})");
        facts.push([name.to_owned(), text]);
    }
    let mut parts = vec![output::table(facts)];
    if !queue.consumers.is_empty() {
        let rows = queue.consumers.iter().map(|consumer| {
            let idle = match consumer.name == PARKED_CONSUMER {
                true => "(holds parked messages)".to_owned(),
                false => duration_ms(consumer.idle_ms),
            };
            [consumer.name.clone(), consumer.pending.to_string(), idle]
        });
        parts.push(output::titled(["consumer", "pending", "idle"], rows));
    }
    if !report.hosts.is_empty() {
        parts.push(versions::hosts_table(&report.hosts));
    }
    if !report.limits.is_empty() {
        parts.push(limits(&report.limits));
    }
    if !report.destinations.is_empty() {
        parts.push(destinations(&report.destinations));
    }
    if !report.schedules.is_empty() {
        parts.push(schedules::table(&report.schedules));
    }
    parts.push(report.rules.text());
    parts.join("\n\n")
}

fn limits(all: &[LimitSeen]) -> String {
    let rows = all.iter().map(|one| {
        [
            one_line(&one.limit.name),
            one_line(&one.limit.allows()),
            one_line(one.limit.by.as_deref().unwrap_or("-")),
            one_line(&one.state()),
        ]
    });
    output::titled(["limit", "allows", "by", "state"], rows)
}

fn destinations(all: &[Destination]) -> String {
    let rows = all.iter().map(|one| {
        let seen = &one.seen;
        let state = one.trouble();
        [
            one_line(&seen.destination),
            one_line(&seen.rule),
            format!("{} of {}", seen.in_flight, seen.allowed),
            seen.waiting.to_string(),
            state.map_or_else(|| "open".to_owned(), |state| one_line(&state)),
        ]
    });
    output::titled(
        ["destination", "rule", "requests", "waiting", "state"],
        rows,
    )
}

fn unread(queue: &Report) -> String {
    match (queue.unread, queue.lag) {
        (false, _) => "nothing".to_owned(),
        (true, Some(lag)) => format!("about {lag}"),
        (true, None) => "some (Redis does not know how many)".to_owned(),
    }
}

fn pending(queue: &Report) -> String {
    match queue.oldest_pending_ms {
        Some(oldest) => format!("{} (the oldest for {})", queue.pending, duration_ms(oldest)),
        None => queue.pending.to_string(),
    }
}

fn delayed(queue: &Report) -> String {
    let delayed = queue.delayed;
    match queue.next_due_ms {
        Some(0) => format!("{delayed} (the next is due now)"),
        Some(next) => format!("{delayed} (the next is due in {})", duration_ms(next)),
        None => delayed.to_string(),
    }
}
