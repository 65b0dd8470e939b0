//! `hostler trace`: what Redis knows of one message.

use std::collections::BTreeMap;

use crate::cli::dlq::show::recorded;
use crate::cli::text::{count, duration_ms, one_line, or_dash, short, time};
use crate::cli::{Common, Exit, Failure, Reach, Variables, ask, output};
use crate::registry::trace::{Found, Trace, trace};
use crate::registry::{listed, named};
use crate::telemetry::wall_clock_ms;

/// Show where a message is, its attempts, its history, and what follows from it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
ID is the id of the message as its handler and the logs have it, or the id of an
entry. Searched are the queues that hosts list, and their dead letters: of each
key the newest entries. An entry of a stream is found by its own id however old
it is. Messages that follow from one have its id as `x-correlation-id`.

Exit codes: 0 it was found, 1 it was not.

Examples:
  hostler trace --redis redis://localhost 1700000000000-0
  hostler trace --redis redis://localhost --queue orders order-17 --json \\
    | jq '.found[].state'")]
pub(super) struct Args {
    /// The id of the message
    id: String,

    /// Only this queue and its dead letters
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,

    /// The most entries of each key to search, the newest ones
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    newest: usize,

    #[command(flatten)]
    common: Common<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let traced = ask(args.common.flags, variables, "trace", async |session| {
        let link = session.link("queues");
        let queues = session
            .retry(async || match &args.queue {
                Some(name) => named(&link, name).await,
                None => listed(&link).await,
            })
            .await?;
        Ok(trace(&session.connector, &queues, &args.id, args.newest).await)
    })?;
    for problem in &traced.problems {
        output::warning(&format!("could not be searched: {problem}"), None);
    }
    output::either(args.common.json, &traced, text)?;
    Ok(match traced.found.is_empty() {
        true => Exit::Failed,
        false => Exit::Ok,
    })
}

fn text(trace: &Trace) -> String {
    let searched = count(trace.queues as u64, "queue");
    if trace.found.is_empty() {
        let mut text = format!("{} is in none of {searched}", one_line(&trace.id));
        let cut = trace.cut.iter().map(|key| one_line(key));
        text.extend(cut.map(|key| format!("\nonly the newest of {key} were searched")));
        return text;
    }
    let titles = ["message", "where", "state", "attempts", ""];
    let rows = trace.found.iter().map(|found| {
        let mut id = one_line(&found.id);
        if found.is_follow_up {
            id = format!("-> {id}");
        }
        [
            id,
            place(found),
            found.state.label().to_owned(),
            or_dash(found.attempts),
            remark(found),
        ]
    });
    let mut text = output::titled(titles, rows);
    for found in &trace.found {
        if let Some(since) = found.held_since_ms {
            let (id, holds) = (one_line(&found.id), count(found.holds.into(), "time"));
            let since = time(since);
            text.push_str(&format!(
                "\n{id} was held by its handler {holds} since {since}, uncharged"
            ));
        }
    }
    for found in &trace.found {
        let id = one_line(&found.id);
        if let Some((name, tick)) = &found.schedule {
            let [name, tick] = [name, tick].map(|text| one_line(text));
            text.push_str(&format!(
                "\n{id} comes from the schedule {name}, tick {tick}"
            ));
        }
        if let Some(first) = &found.correlation {
            text.push_str(&format!("\n{id} follows from {}", one_line(first)));
        }
        if let Some(inbox) = &found.inbox {
            text.push_str(&format!("\n{id} is awaited by the inbox {inbox}"));
        }
        for answer in &found.answers {
            let [status, at] = [answer.status.to_owned(), time(answer.written_ms)];
            text.push_str(&format!("\n{id} was answered at {at}: {status}"));
            if let Some(reason) = &answer.reason {
                text.push_str(&format!(" ({})", one_line(reason)));
            }
            if let Some(bytes) = answer.bytes {
                text.push_str(&format!(
                    ", with a reply of {}",
                    count(bytes as u64, "byte")
                ));
            }
        }
    }
    // Copies of a message have its deaths until then: the last one has all.
    let mut deaths = BTreeMap::new();
    for found in &trace.found {
        for (queue, reason, times) in &found.history {
            let most = deaths.entry((&found.id, queue, reason)).or_insert(0);
            *most = (*times).max(*most);
        }
    }
    for ((id, queue, reason), times) in deaths {
        let [id, queue, reason] = [id, queue, reason].map(|text| one_line(text));
        let times = count(times, "time");
        text.push_str(&format!("\n{id} died in {queue} for {reason}, {times}"));
    }
    for found in trace.found.iter().filter(|found| !found.journal.is_empty()) {
        text.push_str(&format!("\n\n{}", recorded(&found.journal)));
    }
    text
}

fn place(found: &Found) -> String {
    let mut place = one_line(&found.key);
    if let Some(group) = &found.group {
        place.push_str(&format!(" ({})", one_line(group)));
    }
    place
}

fn remark(found: &Found) -> String {
    if let Some(host) = &found.host {
        return format!("on {}", one_line(host));
    }
    if let (Some(due), Some((limit, key))) = (found.due_ms, &found.limit) {
        let [limit, key] = [limit, key].map(|text| one_line(text));
        let left = duration_ms(due.saturating_sub(wall_clock_ms()));
        return format!("waits for limit {limit}, key {key}, starts in {left}");
    }
    if let Some(due) = found.due_ms {
        let why = match found.is_reserved {
            true => ": its limit reserves that start",
            false => "",
        };
        return format!("due {}{why}", time(due));
    }
    match (&found.reason, &found.detail) {
        (Some(reason), Some(detail)) => format!("{}: {}", one_line(reason), short(detail)),
        (Some(reason), None) => one_line(reason),
        // Another entry of the message, that of a replay for example.
        _ => match &found.entry {
            Some(entry) if *entry != found.id => format!("entry {}", one_line(entry)),
            _ => String::new(),
        },
    }
}
