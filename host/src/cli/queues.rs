//! `hostler queues`: every queue that hosts serve or served lately.

use crate::cli::text::{count, duration_ms, one_line, or_dash};
use crate::cli::{Common, Exit, Failure, Reach, Variables, ask, output};
use crate::registry::overview::{self, QueueSeen, State};

/// List the queues that hosts serve or served lately, and what stops them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each host lists its queue, for a week. `lag` is what no host has read, `rate`
the attempts that ended in a second lately. States: serving, paused, stopped
(the handler cannot run: its breaker is open), not ready, version refused (the
version before serves), no hosts. Below the table: what stops them.

Examples:
  hostler queues --redis redis://localhost
  hostler queues --redis redis://localhost 'orders*' --json \\
    | jq '.[] | select(.state != \"serving\")'")]
pub(super) struct Args {
    /// Only queues whose key matches: `*` is any text, `?` any one character
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,

    #[command(flatten)]
    common: Common<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let pattern = args.pattern.as_deref();
    let queues = ask(args.common.flags, variables, "queues", async |session| {
        let connector = &session.connector;
        session
            .retry(async || overview::queues(connector, pattern).await)
            .await
    })?;
    output::either(args.common.json, &queues, |queues| text(queues, pattern))
}

fn text(queues: &[QueueSeen], pattern: Option<&str>) -> String {
    if queues.is_empty() {
        return match pattern {
            Some(pattern) => format!("no queue is listed that matches `{pattern}`"),
            None => "no queue is listed: hosts list theirs when they serve it".to_owned(),
        };
    }
    let titles = [
        "queue", "kind", "group", "hosts", "lag", "pending", "oldest", "rate", "dead", "state",
    ];
    let rows = queues.iter().map(|queue| {
        [
            one_line(&queue.queue),
            queue.kind.to_owned(),
            one_line(queue.group.as_deref().unwrap_or_default()),
            queue.hosts.to_string(),
            or_dash(queue.lag),
            queue.pending.to_string(),
            or_dash(queue.oldest_pending_ms.map(duration_ms)),
            or_dash(queue.attempts_per_second),
            or_dash(queue.dead_letters),
            queue.state.label().to_owned(),
        ]
    });
    let mut text = output::titled(titles, rows);
    for queue in queues {
        let problem = queue.problem.iter();
        let why = queue.trouble.iter().chain(problem).map(|why| one_line(why));
        let name = one_line(&queue.queue);
        text.extend(why.map(|why| format!("\n{name}: {why}")));
    }
    let stopped = queues.iter().filter(|queue| queue.state == State::Stopped);
    let stopped = stopped.count() as u64;
    if stopped > 0 {
        text.push_str(&format!("\n\nstopped: {}", count(stopped, "queue")));
    }
    text
}
