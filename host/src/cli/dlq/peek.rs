//! `hostler dlq peek`: dead letters by reason, and the newest ones.

use super::filter::Letters;
use super::{INDENT, rows_with_lines, with_letters};
use crate::cli::text::{count, cut, or_dash, time_to_seconds, wrapped};
use crate::cli::{Common, Exit, Failure, Reach, Variables, output};
use crate::dead_letter::{Entry, Peek};
use crate::sandbox::BACKTRACE;

/// Columns of the terminal that rows are made for.
const WIDTH: usize = 80;
/// How much of a reason is shown: hostler's own reasons are not longer.
const REASON_WIDTH: usize = 14;
/// How much of a number of attempts is shown: other programs may write any.
const ATTEMPTS_WIDTH: usize = 8;
/// How much of a detail is shown, in lines.
const DETAIL_LINES: usize = 2;
/// How many lines of the end of a log are shown.
const LOG_LINES: usize = 3;

/// Show how many messages died for each reason, and the newest ones
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Below each entry: where it died, its detail, the last lines of the log of its
attempt, its body, each cut.

Examples:
  hostler dlq peek --redis redis://localhost orders:dead
  hostler dlq peek --redis redis://localhost orders:dead --reason trap
  hostler dlq peek --redis redis://localhost orders:dead --limit 100 --json \\
    | jq .by_reason")]
pub(super) struct Args {
    #[command(flatten)]
    letters: Letters,

    /// Only entries that died for this reason; may be repeated
    #[arg(long = "reason", value_name = "REASON")]
    reasons: Vec<String>,

    /// The most entries to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    #[command(flatten)]
    common: Common<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let key = args.letters.key(&args.common.flags, &variables)?;
    let found = with_letters(&key, args.common.flags, variables, async |letters| {
        let found = letters.peek_for(&args.reasons, args.limit).await?;
        if found.total == 0 && !letters.exists().await? {
            let what = format!("there is no key `{}`", key);
            let hint = "is the name right? until a message dies, and when the last dead letter \
                        of a list is gone, there is no key";
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        }
        if let Some(by) = letters.served_by().await? {
            let what = format!("`{}` is a queue that is served: {by}", key);
            output::warning(&what, None);
        }
        Ok(found)
    })?;
    output::either(args.common.json, &found, |found| {
        text(&key, !args.reasons.is_empty(), found)
    })
}

fn text(key: &str, is_filtered: bool, found: &Peek) -> String {
    let others = found.total - found.dead_letters;
    let mut text = match (found.dead_letters, others) {
        (0, 0) if is_filtered => return format!("{key} has no such entries"),
        (0, 0) => return format!("{key} is empty"),
        (dead, 0) => format!("{key}: {}", count(dead, "dead letter")),
        (dead, 1) => format!("{key}: {}, 1 other entry", count(dead, "dead letter")),
        (dead, n) => format!("{key}: {}, {n} other entries", count(dead, "dead letter")),
    };
    text.push_str("\n\n");
    let mut reasons: Vec<_> = found.by_reason.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let most = reasons.first().map_or(1, |(_, count)| **count).max(1);
    let rows = reasons.iter().map(|(reason, count)| {
        let bar = "#".repeat(usize::try_from((**count * 40).div_ceil(most)).unwrap_or(40));
        [cut(reason, REASON_WIDTH), count.to_string(), bar]
    });
    text.push_str(&output::table(rows));
    if !found.entries.is_empty() {
        text.push_str("\n\n");
        text.push_str(&entries(key, &found.entries));
    }
    text
}

/// A row for each entry, and below it what may be longer.
fn entries(key: &str, entries: &[Entry]) -> String {
    let titles = ["id", "died", "reason", "attempts"];
    let row = |entry: &Entry| {
        [
            entry.id.clone(),
            time_to_seconds(entry.died_ms()),
            cut(entry.reason_in(key), REASON_WIDTH),
            cut(&or_dash(entry.attempts), ATTEMPTS_WIDTH),
        ]
    };
    rows_with_lines(titles, entries, row, below)
}

fn below(entry: &Entry) -> Vec<String> {
    let all = WIDTH - INDENT.len();
    let room = all - "body: ".len();
    let mut lines = Vec::new();
    match (&entry.source, &entry.source_id) {
        (Some(source), Some(id)) => lines.push(cut(&format!("from {source} {id}"), all)),
        (Some(source), None) => lines.push(cut(&format!("from {source}"), all)),
        (None, _) => {}
    }
    let detail = entry.detail.as_deref().filter(|detail| !detail.is_empty());
    if let Some(detail) = detail {
        let mut label = "why:  ";
        for line in wrapped(detail, room, DETAIL_LINES) {
            lines.push(format!("{label}{line}"));
            label = "      ";
        }
    }
    let log = entry.log();
    let said = log.iter().take_while(|line| *line != BACKTRACE);
    let said: Vec<&String> = said.collect();
    let last = said.iter().skip(said.len().saturating_sub(LOG_LINES));
    lines.extend(last.map(|line| format!("log:  {}", cut(line, room))));
    lines.push(match (&entry.defect, str::from_utf8(&entry.body)) {
        (Some(defect), _) => cut(&format!("(not a message: {defect})"), all),
        (None, Ok("")) => "(no body)".to_owned(),
        (None, Ok(body)) => format!("body: {}", cut(body, room)),
        (None, Err(_)) => format!("({} bytes)", entry.body.len()),
    });
    lines
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::stream;
    use crate::workbench::text::width;

    #[test]
    fn an_entry_of_any_content_fits_on_a_terminal() {
        let wide = "\u{6f22}\u{202e}\u{1b}".repeat(500);
        let long = "a message of many words ".repeat(50);
        for (reason, detail) in [("max-deliveries", &long), (wide.as_str(), &wide)] {
            let fields = [
                ("_payload", detail.as_str()),
                ("h:x-dead-letter-reason", reason),
                ("h:x-dead-letter-detail", detail),
                ("h:x-dead-letter-source", detail),
                ("h:x-dead-letter-source-id", "1-1"),
                ("h:x-dead-letter-log", detail),
                ("h:x-dead-letter-attempts", "18446744073709551615"),
            ];
            let fields =
                fields.map(|(n, v)| (Bytes::from(n.to_owned()), Bytes::from(v.to_owned())));
            let options = stream::Options::default();
            // The longest ids are those of lists.
            let id = "0123456789abcdef0123456789abcdef".to_owned();
            let entry = Entry::new(id, fields.to_vec(), &options);
            let shown = entries("orders:dead", &[entry.clone(), entry]);
            assert_eq!(
                shown.lines().count(),
                1 + 2 * (2 + DETAIL_LINES + 2),
                "{shown}"
            );
            for line in shown.lines() {
                assert!(width(line) <= WIDTH, "{line}");
            }
        }
    }
}
