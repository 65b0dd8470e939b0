//! A snapshot as a screen, or as a line.

use std::time::{Duration, UNIX_EPOCH};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::snapshot::{QueueSnapshot, QueuesSnapshot};
use crate::cli::text::{UNKNOWN, count, duration_ms, one_line, or_dash, time_to_seconds};
use crate::registry::overview::{Destination, QueueSeen, State};

/// The most reasons and hosts that are shown.
const REASONS_MAX: usize = 10;
const NOT_READY_MAX: usize = 4;
const HOSTS_MAX: usize = 8;

/// A snapshot as one line of text.
pub(super) fn line(queue: &QueueSnapshot) -> String {
    let mut words = vec![
        time(queue.at_ms),
        one_line(&queue.key),
        format!("unread {}", or_dash(queue.lag)),
        format!("pending {}", queue.pending),
        format!("delayed {}", queue.delayed),
        format!("in/s {}", per_second(queue.added_per_second)),
        format!("out/s {}", per_second(queue.done_per_second)),
    ];
    words.extend(queue.in_flight.map(|running| format!("running {running}")));
    words.extend(next_tick(queue));
    let problems = queue.schedules.iter();
    let problems = problems.filter_map(|one| Some((&one.name, one.problem.as_ref()?)));
    words.extend(problems.map(|(name, why)| format!("schedule {name}: {}", one_line(why))));
    if let Some(dead) = queue.dead_letters {
        let reasons = queue.dead_by_reason.iter();
        let reasons: Vec<_> = reasons
            .map(|(r, n)| format!("{} {n}", one_line(r)))
            .collect();
        words.push(match reasons.is_empty() {
            true => format!("dead {dead}"),
            false => format!("dead {dead} ({})", reasons.join(", ")),
        });
    }
    let handlers = queue.hosts.iter().filter_map(|h| h.handler.as_deref());
    let mut handlers: Vec<_> = handlers.map(|h| format!("handler {}", short(h))).collect();
    handlers.dedup();
    words.append(&mut handlers);
    if let Some(fault) = queue.faults.first() {
        let [kind, id] = [&fault.kind, &fault.id].map(|text| one_line(text));
        words.push(format!("last fault {kind} {id}"));
    }
    words.extend(stops(queue));
    words.extend(queue.not_ready.first().map(|host| one_line(&host.text)));
    if let more @ 1.. = queue.not_ready.len().saturating_sub(1) as u64 {
        words.push(format!("{} more not ready", count(more, "host")));
    }
    let silent = queue.hosts.iter().filter(|host| host.error.is_some());
    match silent.count() as u64 {
        0 => {}
        1 => words.push("1 host does not answer".to_owned()),
        n => words.push(format!("{} do not answer", count(n, "host"))),
    }
    words.extend(queue.trouble.as_deref().map(one_line));
    words.join("  ")
}

/// The limits that keep messages waiting, and the destinations that are closed, for people.
fn stops(queue: &QueueSnapshot) -> impl Iterator<Item = String> {
    let limited = queue.limits.iter();
    let limited = limited.filter(|limit| limit.limited_seconds.is_some());
    let limited = limited.map(|one| format!("limit {}: {}", one.limit.name, one.state()));
    let closed = queue.destinations.iter().filter_map(Destination::trouble);
    let all = limited.chain(closed);
    all.map(|text| one_line(&text)).take(NOT_READY_MAX)
}

/// The schedule that is due next.
fn next_tick(queue: &QueueSnapshot) -> Option<String> {
    let next = queue.schedules.iter();
    let next = next.filter_map(|one| Some((*one.next_ms.first()?, &one.name)));
    let (at, name) = next.min()?;
    Some(format!("{name} at {}", time_to_seconds(at)))
}

/// A snapshot as a screen.
pub(super) fn screen(queue: &QueueSnapshot, frame: &mut Frame<'_>) {
    // A table has a border, and a title or a header.
    let height = |is_shown: bool, rows: usize| match is_shown {
        true => Constraint::Length(3 + u16::try_from(rows).unwrap_or(u16::MAX)),
        false => Constraint::Length(0),
    };
    let reasons = queue.dead_by_reason.len().min(REASONS_MAX);
    let hosts = queue.hosts.len().min(HOSTS_MAX);
    let not_ready = queue.not_ready.iter().take(NOT_READY_MAX);
    let not_ready = not_ready.map(|host| one_line(&host.text));
    let lines: Vec<_> = not_ready.chain(stops(queue)).map(Line::from).collect();
    let [title, stopped, facts, dead, served, faults, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX)),
        Constraint::Length(6),
        height(queue.dead_letters.is_some(), reasons),
        height(hosts > 0, hosts),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let group = queue.group.as_deref().map(one_line);
    let group = group
        .map(|group| format!(" · group {group}"))
        .unwrap_or_default();
    let head = format!("{}{group}  {}", one_line(&queue.key), time(queue.at_ms));
    frame.render_widget(Line::from(head).style(bold()), title);
    let style = Style::new().fg(Color::Red);
    frame.render_widget(Paragraph::new(lines).style(style), stopped);
    draw_facts(queue, frame, facts);
    draw_dead(queue, frame, dead);
    draw_hosts(queue, frame, served);
    draw_faults(queue, frame, faults);
    frame.render_widget(last_line(queue.trouble.as_deref()), bottom);
}

/// Several queues, as one line of text: their sums, and those that do not serve.
pub(super) fn line_of_all(all: &QueuesSnapshot) -> String {
    let queues = &all.queues;
    let sum = |part: fn(&QueueSeen) -> u64| queues.iter().map(part).sum::<u64>();
    let rate = |queue: &QueueSeen| queue.attempts_per_second;
    let rate = queues.iter().filter_map(rate).reduce(|a, b| a + b);
    let mut words = vec![
        time(all.at_ms),
        one_line(&all.pattern),
        count(queues.len() as u64, "queue"),
        format!("lag {}", sum(|queue| queue.lag.unwrap_or_default())),
        format!("pending {}", sum(|queue| queue.pending)),
        format!("delayed {}", sum(|queue| queue.delayed)),
        format!("rate {}", per_second(rate)),
        format!(
            "dead {}",
            sum(|queue| queue.dead_letters.unwrap_or_default())
        ),
    ];
    let troubled = queues.iter().filter(|queue| queue.state != State::Serving);
    let said = |queue: &QueueSeen| format!("{}: {}", one_line(&queue.queue), queue.state.label());
    words.extend(troubled.clone().take(NOT_READY_MAX).map(said));
    if let more @ 1.. = troubled.count().saturating_sub(NOT_READY_MAX) {
        words.push(format!("and {more} more that do not serve"));
    }
    words.join("  ")
}

/// Several queues as a screen.
pub(super) fn screen_of_all(all: &QueuesSnapshot, frame: &mut Frame<'_>) {
    let [title, table, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let head = format!("{}  {}", one_line(&all.pattern), time(all.at_ms));
    frame.render_widget(Line::from(head).style(bold()), title);
    let titles = [
        "queue", "group", "hosts", "lag", "pending", "rate", "dead", "state",
    ];
    // What does not serve comes first: a screen may be shorter than the table.
    let mut queues: Vec<&QueueSeen> = all.queues.iter().collect();
    queues.sort_by_key(|queue| queue.state);
    let rows = queues.into_iter().map(|queue| {
        let style = match queue.state {
            State::Serving => Style::new(),
            _ => Style::new().fg(Color::Red),
        };
        Row::new([
            one_line(&queue.queue),
            one_line(queue.group.as_deref().unwrap_or_default()),
            queue.hosts.to_string(),
            or_dash(queue.lag),
            queue.pending.to_string(),
            per_second(queue.attempts_per_second),
            or_dash(queue.dead_letters),
            queue.state.label().to_owned(),
        ])
        .style(style)
    });
    let [name, number] = [Constraint::Min(16), Constraint::Length(9)];
    let widths = [name, name, number, number, number, number, number, name];
    let drawn = Table::new(rows, widths).header(Row::new(titles).style(bold()));
    frame.render_widget(drawn, table);
    frame.render_widget(last_line(all.trouble.as_deref()), bottom);
}

fn last_line(trouble: Option<&str>) -> Line<'static> {
    match trouble {
        Some(trouble) => Line::styled(one_line(trouble), Style::new().fg(Color::Red)),
        None => Line::raw("q: quit"),
    }
}

fn draw_facts(queue: &QueueSnapshot, frame: &mut Frame<'_>, area: Rect) {
    let oldest = queue.oldest_pending_ms.map(duration_ms);
    let oldest = oldest.map(|oldest| format!("the oldest for {oldest}"));
    let rows = [
        (
            "unread",
            or_dash(queue.lag),
            "in/s",
            per_second(queue.added_per_second),
        ),
        (
            "pending",
            queue.pending.to_string(),
            "out/s",
            per_second(queue.done_per_second),
        ),
        (
            "delayed",
            queue.delayed.to_string(),
            "running",
            or_dash(queue.in_flight),
        ),
        (
            "consumers",
            queue.consumers.to_string(),
            "",
            oldest.unwrap_or_default(),
        ),
    ];
    let rows = rows.map(|(a, b, c, d)| Row::new([a.to_owned(), b, c.to_owned(), d]));
    let widths = [10, 14, 9, 40].map(Constraint::Length);
    frame.render_widget(boxed(Table::new(rows, widths), "queue"), area);
}

fn draw_dead(queue: &QueueSnapshot, frame: &mut Frame<'_>, area: Rect) {
    let Some(total) = queue.dead_letters else {
        return;
    };
    let most = queue.dead_by_reason.values().copied().max();
    let most = most.unwrap_or(1).max(1);
    let rows = queue.dead_by_reason.iter().map(|(reason, count)| {
        let bar = "█".repeat(usize::try_from((count * 30).div_ceil(most)).unwrap_or(30));
        Row::new([one_line(reason), count.to_string(), bar])
    });
    let widths = [18, 10, 32].map(Constraint::Length);
    let key = one_line(queue.dead_letter_key.as_deref().unwrap_or_default());
    let max = or_dash(queue.dead_letter_max_len);
    let title = format!("dead letters: {total} of {max} in {key}");
    frame.render_widget(boxed(Table::new(rows, widths), &title), area);
}

fn draw_hosts(queue: &QueueSnapshot, frame: &mut Frame<'_>, area: Rect) {
    if queue.hosts.is_empty() {
        return;
    }
    let rows = queue.hosts.iter().map(|host| {
        let remark = match (&host.error, &host.refused) {
            (Some(error), _) => one_line(error),
            (None, Some(refused)) => format!("ignores: {}", one_line(refused)),
            (None, None) => String::new(),
        };
        let style = match remark.is_empty() {
            true => Style::new(),
            false => Style::new().fg(Color::Red),
        };
        let cells = [
            one_line(&host.address),
            one_line(host.handler.as_deref().map_or(UNKNOWN, short)),
            host.in_flight.to_string(),
            per_second(host.attempts_per_second),
            remark,
        ];
        Row::new(cells).style(style)
    });
    let head = Row::new(["host", "handler", "running", "attempts/s", ""]).style(bold());
    let table = Table::new(rows, widths([22, 14, 8, 12])).header(head);
    frame.render_widget(boxed(table, "hosts"), area);
}

fn draw_faults(queue: &QueueSnapshot, frame: &mut Frame<'_>, area: Rect) {
    let title = "recent faults";
    if queue.faults.is_empty() {
        let text = match queue.hosts.is_empty() {
            true => "only hosts know them: give `--admin ADDRESS`",
            false => "none",
        };
        let block = Block::bordered().title(title);
        frame.render_widget(Paragraph::new(text).block(block), area);
        return;
    }
    let rows = queue.faults.iter().map(|fault| {
        let [kind, id, detail] = [&fault.kind, &fault.id, &fault.detail].map(|text| one_line(text));
        Row::new([time(fault.at_ms), kind, id, detail])
    });
    frame.render_widget(boxed(Table::new(rows, widths([9, 14, 20])), title), area);
}

fn boxed<'a>(table: Table<'a>, title: &'a str) -> Table<'a> {
    table.block(Block::bordered().title(title))
}

/// The widths of columns; the last column takes the rest.
fn widths<const N: usize>(columns: [u16; N]) -> impl Iterator<Item = Constraint> {
    let columns = columns.into_iter().map(Constraint::Length);
    columns.chain([Constraint::Min(10)])
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn per_second(rate: Option<f64>) -> String {
    or_dash(rate.map(|rate| format!("{rate:.1}")))
}

/// The time of day, UTC.
fn time(epoch_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(epoch_ms / 1000);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    let day = text.split_once('T').map_or(&*text, |(_, time)| time);
    day.trim_end_matches('Z').to_owned()
}

/// Enough of a digest to tell versions apart.
fn short(digest: &str) -> &str {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    digits.get(..12).unwrap_or(digits)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::snapshot::{Fault, HostSnapshot, NotReady};
    use super::*;

    fn snapshot() -> QueueSnapshot {
        QueueSnapshot {
            at_ms: 1_700_000_000_123,
            key: "orders".to_owned(),
            group: Some("billing".to_owned()),
            lag: Some(1234),
            pending: 17,
            oldest_pending_ms: Some(65_000),
            delayed: 3,
            added_per_second: Some(100.0),
            done_per_second: Some(98.5),
            in_flight: Some(16),
            schedules: Vec::new(),
            destinations: Vec::new(),
            limits: Vec::new(),
            consumers: 2,
            dead_letter_key: Some("orders:dead".to_owned()),
            dead_letters: Some(42),
            dead_letter_max_len: Some(100_000),
            dead_by_reason: BTreeMap::from([
                ("timeout".to_owned(), 40),
                ("tr\u{1b}ap".to_owned(), 2),
            ]),
            hosts: vec![
                HostSnapshot {
                    address: "10.0.0.7:9400".to_owned(),
                    handler: Some("sha256:0123456789abcdef".to_owned()),
                    in_flight: 16,
                    attempts_per_second: Some(99.0),
                    ..HostSnapshot::default()
                },
                HostSnapshot {
                    address: "10.0.0.8:9400".to_owned(),
                    error: Some("no answer within 2 s".to_owned()),
                    ..HostSnapshot::default()
                },
            ],
            faults: vec![Fault {
                at_ms: 1_700_000_000_000,
                id: "1-1".to_owned(),
                kind: "trap".to_owned(),
                detail: "unreachable\u{7}".to_owned(),
            }],
            not_ready: vec![NotReady {
                host: "web-1".to_owned(),
                state: "stopped",
                text: "web-1 is stopped: handler: it faults\u{202e} on everything".to_owned(),
            }],
            trouble: None,
        }
    }

    fn drawn(queue: &QueueSnapshot, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen(queue, frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_shows_every_fact() {
        let text = drawn(&snapshot(), 100, 30);
        for part in [
            "orders · group billing  22:13:20",
            "unread     1234",
            "in/s      100.0",
            "out/s     98.5",
            "running   16",
            "the oldest for 1m5s",
            "dead letters: 42 of 100000 in orders:dead",
            "timeout            40",
            "10.0.0.7:9400          0123456789ab",
            "no answer within 2 s",
            "22:13:20  trap",
            "web-1 is stopped: handler: it faults\\u{202e} on everything",
            "q: quit",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let forged = text.chars().any(|c| c.is_control() && c != '\n');
        assert!(!forged, "{text}");
    }

    #[test]
    fn any_screen_size_and_an_empty_snapshot_can_be_drawn() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 100)] {
            drawn(&snapshot(), width, height);
            drawn(&QueueSnapshot::default(), width, height);
        }
    }

    #[test]
    fn a_line_shows_every_fact() {
        assert_eq!(
            line(&snapshot()),
            "22:13:20  orders  unread 1234  pending 17  delayed 3  in/s 100.0  out/s 98.5  \
             running 16  dead 42 (timeout 40, tr\\u{1b}ap 2)  handler 0123456789ab  \
             last fault trap 1-1  web-1 is stopped: handler: it faults\\u{202e} on everything  \
             1 host does not answer"
        );
    }
}
