//! `hostler cancel`: take messages off their queue that are not settled.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::cli::confirm::confirm;
use crate::cli::message::{Header, header};
use crate::cli::progress::Progress;
use crate::cli::session::Session;
use crate::cli::text::{self, one_line};
use crate::cli::{Common, Exit, Failure, Reach, Variables, ask, named, output};
use crate::host::StopSignals;
use crate::publish::cancel::{CancelError, Cancelled, Canceller, Found, Scan, Verdict};
use crate::registry::cancel::canceller;
use crate::registry::trace::{Stage, trace};
use crate::registry::{Listed, ListedKind, listed, named as queues_named};

/// The answers that are shown one by one.
const SHOWN_MAX: usize = 100;
/// How many entries of each key are searched for a dead letter.
const NEWEST: usize = 10_000;

/// Take messages off their queue that are not settled, wherever they are
#[derive(Debug, clap::Args)]
#[command(after_help = "\
ID is the id of the message as its handler and the logs have it, or the id of an
entry. It may be unread, delayed, held, or running: then its attempt is cut off,
and what it publishes, writes and replies is void. The answers are `cancelled`,
`running: void`, `too late` (it is settled) and `unknown`. Of many messages, the
count comes first, and a question. A dead letter stays: `hostler dlq purge`.

Exit codes: 0 something was cancelled, or nothing matched; 1 it was too late, or
no message has this id.

Examples:
  hostler cancel --redis redis://localhost 1700000000000-0
  hostler cancel --redis redis://localhost --queue orders order-17
  hostler cancel --redis redis://localhost --queue orders \\
    --header tenant=acme --older 1h")]
pub(super) struct Args {
    /// The id of the message
    #[arg(required_unless_present_any = ["headers", "older", "all"])]
    id: Option<String>,

    /// The queue. An ID is looked for in all listed queues without it
    #[arg(long, value_name = "QUEUE", required_unless_present = "id")]
    queue: Option<String>,

    /// Only in this consumer group of a stream
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,

    /// All messages with this header, `name=value`; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header, conflicts_with = "id")]
    headers: Vec<Header>,

    /// All messages of a stream that came at least this long ago, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = text::parse::<Duration>, conflicts_with = "id")]
    older: Option<Duration>,

    /// All messages
    #[arg(long, conflicts_with_all = ["id", "headers", "older"])]
    all: bool,

    /// Do not ask
    #[arg(long, short, conflicts_with = "id")]
    yes: bool,

    /// Show how many there are; change nothing
    #[arg(long, conflicts_with_all = ["id", "yes"])]
    dry_run: bool,

    #[command(flatten)]
    common: Common<Reach>,
}

/// The shape of `--json`.
#[derive(Default, Serialize)]
struct Summary {
    /// How many have which answer.
    by_answer: BTreeMap<&'static str, u64>,
    /// The first of them.
    messages: Vec<Shown>,
    /// How many match; only with `--dry-run`, or if a person did not want it.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<u64>,
}

#[derive(Serialize)]
struct Shown {
    id: String,
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    answer: &'static str,
    /// The host that had it, or why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Summary {
    fn add(&mut self, queue: &str, done: Vec<Cancelled>) {
        for Cancelled { id, group, verdict } in done {
            let answer = verdict.label();
            *self.by_answer.entry(answer).or_default() += 1;
            if self.messages.len() < SHOWN_MAX {
                self.messages.push(Shown {
                    id,
                    queue: queue.to_owned(),
                    group,
                    answer,
                    detail: match verdict {
                        Verdict::Void(host) => Some(host),
                        Verdict::Refused(why) => Some(why),
                        _ => None,
                    },
                });
            }
        }
    }

    fn count(&self, verdict: &Verdict) -> u64 {
        self.by_answer.get(verdict.label()).copied().unwrap_or(0)
    }

    fn cancelled(&self) -> u64 {
        self.count(&Verdict::Cancelled) + self.count(&Verdict::Void(String::new()))
    }

    fn text(&self) -> String {
        if let Some(found) = self.found {
            return format!("would cancel {found}");
        }
        let rows = self.messages.iter().map(|shown| {
            let mut place = one_line(&shown.queue);
            if let Some(group) = &shown.group {
                place.push_str(&format!(" ({})", one_line(group)));
            }
            let detail = shown.detail.as_deref().map_or_else(String::new, one_line);
            [one_line(&shown.id), place, shown.answer.to_owned(), detail]
        });
        let mut text = output::table(rows);
        if self.by_answer.values().sum::<u64>() != 1 {
            let counts = self
                .by_answer
                .iter()
                .map(|(answer, n)| format!("{answer}: {n}"));
            let counts: Vec<String> = counts.collect();
            let counts = match counts.is_empty() {
                true => "nothing to cancel".to_owned(),
                false => counts.join(", "),
            };
            text = format!("{text}\n{counts}").trim_start().to_owned();
        }
        text
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let (json, flags) = (args.common.json, args.common.flags.clone());
    let (summary, exit) = ask(flags, variables, "cancel", async |session| match &args.id {
        Some(id) => one(session, &args, id).await,
        None => many(session, &args).await,
    })?;
    output::either(json, &summary, Summary::text)?;
    Ok(exit)
}

/// Cancel the message with this id.
async fn one(session: &Session, args: &Args, id: &str) -> Result<(Summary, Exit), Failure> {
    let link = session.link("queues");
    let mut queues = session
        .retry(async || match &args.queue {
            Some(name) => queues_named(&link, name).await,
            None => listed(&link).await,
        })
        .await?;
    queues.retain(|queue| args.group.is_none() || queue.group == args.group);
    let all = queues.clone();
    // A canceller takes the groups of a stream together.
    queues.dedup_by(|a, b| a.queue == b.queue && a.kind == b.kind);
    if queues.len() > 1 {
        queues.retain(|queue| queue.kind != ListedKind::Channel);
    }
    if queues.is_empty() {
        let what = "no such queue is known";
        return Err(Failure::new(Exit::Usage, what).hint("`hostler queues` lists the queues"));
    }
    let mut cancellers = Vec::new();
    for queue in &queues {
        cancellers.push(of(session, queue, args.group.as_deref()).await?);
    }
    let mut holders = Vec::new();
    for (queue, canceller) in queues.iter().zip(&cancellers) {
        if queues.len() > 1 && canceller.has(id).await? {
            holders.push(one_line(&queue.queue));
        }
    }
    if holders.len() > 1 {
        let what = format!(
            "several queues have a message with this id: {}",
            holders.join(", ")
        );
        return Err(Failure::new(Exit::Usage, what).hint("name one with `--queue`"));
    }
    let mut summary = Summary::default();
    for (queue, canceller) in queues.iter().zip(&cancellers) {
        let done = canceller.cancel(id).await?;
        if queues.len() == 1 || done.iter().any(|done| done.verdict != Verdict::Unknown) {
            summary.add(&queue.queue, done);
        }
    }
    if summary.messages.is_empty() {
        let verdict = Verdict::Unknown;
        let (id, group) = (id.to_owned(), None);
        summary.add("-", vec![Cancelled { id, group, verdict }]);
    }
    if summary.cancelled() == 0 {
        // It may be a dead letter.
        let traced = trace(&session.connector, &all, id, NEWEST).await;
        for found in traced
            .found
            .iter()
            .filter(|f| f.state == Stage::Dead && !f.is_follow_up)
        {
            let (key, entry) = (
                one_line(&found.key),
                found.entry.as_deref().unwrap_or_default(),
            );
            let hint = format!("`hostler dlq purge {key} --id {entry}` deletes it");
            output::warning(&format!("it is a dead letter in {key}"), Some(&hint));
        }
        return Ok((summary, Exit::Failed));
    }
    Ok((summary, Exit::Ok))
}

/// Cancel all messages that match.
async fn many(session: &Session, args: &Args) -> Result<(Summary, Exit), Failure> {
    let name = args.queue.as_deref().unwrap_or_default();
    let queue = named::find(session, name, args.group.as_deref()).await?;
    if args.older.is_some() && queue.kind != ListedKind::Stream {
        return Err(CancelError::NoAge.into());
    }
    let canceller = of(session, &queue, args.group.as_deref()).await?;
    let canceller = canceller.sole_group().await?;
    let mut summary = Summary::default();
    // With `--yes` there is no need to wait for the count.
    let total = match args.yes {
        true => None,
        false => {
            let (mut scan, mut found) = (canceller.scan().await?, 0);
            while let Some(page) = scan.next().await? {
                found += matching(args, &scan, page).len() as u64;
            }
            Some(found)
        }
    };
    if let Some(found) = total.filter(|found| args.dry_run || *found > 0) {
        let question = format!("cancel {found} messages of {}? [y/N] ", one_line(name));
        if args.dry_run || !confirm(&question, "nothing was cancelled")? {
            summary.found = Some(found);
            return Ok((summary, Exit::Ok));
        }
    }
    let mut stops = StopSignals::listen()?;
    let progress = match total {
        None => Progress::counting("cancelled"),
        Some(total) => Progress::of(total, "cancelled"),
    };
    let mut scan = canceller.scan().await?;
    let exit = loop {
        let page = tokio::select! {
            biased;
            signal = stops.next() => break signal.into(),
            page = scan.next() => page?,
        };
        let Some(page) = page else {
            break Exit::Ok;
        };
        let done = canceller.cancel_all(&matching(args, &scan, page)).await?;
        let removed = done
            .iter()
            .filter(|done| done.verdict.is_cancelled())
            .count();
        scan.removed(removed);
        progress.advance(removed as u64);
        summary.add(&queue.queue, done);
    };
    progress.finish();
    Ok((summary, exit))
}

async fn of(session: &Session, queue: &Listed, group: Option<&str>) -> Result<Canceller, Failure> {
    Ok(canceller(&session.connector, queue, group).await?)
}

/// Those that the flags mean.
fn matching(args: &Args, scan: &Scan<'_>, page: Vec<Found>) -> Vec<Found> {
    let fits = |found: &Found| {
        let has = |(name, value): &Header| found.headers.find_str(name) == Some(value);
        let is_old = |older| scan.is_older(found, older);
        args.headers.iter().all(has) && args.older.is_none_or(is_old)
    };
    page.into_iter().filter(fits).collect()
}
