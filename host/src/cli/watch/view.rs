//! How a look is shown: on a screen, or on a line.

use std::time::{Duration, UNIX_EPOCH};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

use super::gather::Look;
use crate::config::Value;

/// A number that is not known.
const UNKNOWN: &str = "-";

/// A look as one line of text.
pub(super) fn line(look: &Look) -> String {
    let mut words = vec![
        time(look.at_ms),
        plain(&look.key),
        format!("unread {}", known(look.lag)),
        format!("pending {}", look.pending),
        format!("delayed {}", look.delayed),
        format!("in/s {}", per_second(look.added_per_second)),
        format!("out/s {}", per_second(look.done_per_second)),
    ];
    if let Some(running) = look.in_flight {
        words.push(format!("running {running}"));
    }
    if let Some(dead) = look.dead_letters {
        let mut text = format!("dead {dead}");
        if !look.dead_by_reason.is_empty() {
            let reasons = look.dead_by_reason.iter();
            let reasons: Vec<String> = reasons.map(|(r, n)| format!("{} {n}", plain(r))).collect();
            text.push_str(&format!(" ({})", reasons.join(", ")));
        }
        words.push(text);
    }
    let mut handlers: Vec<&str> = look
        .hosts
        .iter()
        .filter_map(|h| h.handler.as_deref())
        .collect();
    handlers.dedup();
    words.extend(
        handlers
            .iter()
            .map(|digest| format!("handler {}", short(digest))),
    );
    if let Some(fault) = look.faults.first() {
        words.push(format!("last fault {} {}", fault.kind, plain(&fault.id)));
    }
    let silent = look
        .hosts
        .iter()
        .filter(|host| host.error.is_some())
        .count();
    if silent > 0 {
        words.push(format!("{silent} hosts do not answer"));
    }
    words.extend(look.trouble.iter().map(|trouble| plain(trouble)));
    words.join("  ")
}

/// A look as a screen.
pub(super) fn screen(look: &Look, frame: &mut Frame<'_>) {
    let reasons = u16::try_from(look.dead_by_reason.len())
        .unwrap_or(u16::MAX)
        .min(10);
    let hosts = u16::try_from(look.hosts.len()).unwrap_or(u16::MAX).min(8);
    let [title, facts, dead, served, faults, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(6),
        Constraint::Length(if look.dead_letters.is_some() {
            reasons + 3
        } else {
            0
        }),
        Constraint::Length(if hosts > 0 { hosts + 3 } else { 0 }),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let group = look
        .group
        .as_deref()
        .map(|g| format!(" · group {}", plain(g)));
    let head = format!(
        "{}{}  {}",
        plain(&look.key),
        group.unwrap_or_default(),
        time(look.at_ms)
    );
    frame.render_widget(Line::from(head).style(bold()), title);
    draw_facts(look, frame, facts);
    draw_dead(look, frame, dead);
    draw_hosts(look, frame, served);
    draw_faults(look, frame, faults);
    let last = match &look.trouble {
        Some(trouble) => Span::styled(plain(trouble), Style::new().fg(Color::Red)),
        None => Span::raw("q: quit"),
    };
    frame.render_widget(Line::from(last), bottom);
}

fn draw_facts(look: &Look, frame: &mut Frame<'_>, area: Rect) {
    let oldest = look.oldest_pending_ms.map(|ms| {
        let age = Duration::from_secs(ms / 1000);
        format!("the oldest for {}", age.show())
    });
    let rows = [
        [
            "unread",
            &known(look.lag),
            "in/s",
            &per_second(look.added_per_second),
        ],
        [
            "pending",
            &look.pending.to_string(),
            "out/s",
            &per_second(look.done_per_second),
        ],
        [
            "delayed",
            &look.delayed.to_string(),
            "running",
            &known(look.in_flight),
        ],
        [
            "consumers",
            &look.consumers.to_string(),
            "",
            oldest.as_deref().unwrap_or(""),
        ],
    ];
    let rows = rows.map(|row| Row::new(row.map(|cell| Cell::from(cell.to_owned()))));
    let widths = [10, 14, 9, 40].map(Constraint::Length);
    let table = Table::new(rows, widths).block(Block::bordered().title("queue"));
    frame.render_widget(table, area);
}

fn draw_dead(look: &Look, frame: &mut Frame<'_>, area: Rect) {
    let Some(total) = look.dead_letters else {
        return;
    };
    let most = look
        .dead_by_reason
        .values()
        .copied()
        .max()
        .unwrap_or(1)
        .max(1);
    let rows = look.dead_by_reason.iter().map(|(reason, count)| {
        let bar = "█".repeat(usize::try_from((count * 30).div_ceil(most)).unwrap_or(30));
        let cells = [plain(reason), count.to_string(), bar];
        Row::new(cells.map(Cell::from))
    });
    let widths = [18, 10, 32].map(Constraint::Length);
    let key = look.dead_letter_key.as_deref().unwrap_or_default();
    let title = format!(
        "dead letters: {total} of {} in {}",
        known(look.dead_letter_max_len),
        plain(key)
    );
    let table = Table::new(rows, widths).block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

fn draw_hosts(look: &Look, frame: &mut Frame<'_>, area: Rect) {
    if look.hosts.is_empty() {
        return;
    }
    let rows = look.hosts.iter().map(|host| {
        let remark = match (&host.error, &host.refused) {
            (Some(error), _) => plain(error),
            (None, Some(refused)) => format!("ignores: {}", plain(refused)),
            (None, None) => String::new(),
        };
        let handler = host.handler.as_deref().map_or(UNKNOWN, short);
        let cells = [
            plain(&host.address),
            handler.to_owned(),
            host.in_flight.to_string(),
            per_second(host.attempts_per_second),
            remark,
        ];
        let style = match host.error.is_some() || host.refused.is_some() {
            true => Style::new().fg(Color::Red),
            false => Style::new(),
        };
        Row::new(cells.map(Cell::from)).style(style)
    });
    let widths = [
        Constraint::Length(22),
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Min(10),
    ];
    let head = Row::new(["host", "handler", "running", "attempts/s", ""]).style(bold());
    let table = Table::new(rows, widths).header(head);
    let table = table.block(Block::bordered().title("hosts"));
    frame.render_widget(table, area);
}

fn draw_faults(look: &Look, frame: &mut Frame<'_>, area: Rect) {
    let block = Block::bordered().title("faults of late");
    if look.faults.is_empty() {
        let text = if look.hosts.is_empty() {
            "hosts tell: give `--admin ADDRESS`"
        } else {
            "none"
        };
        frame.render_widget(Paragraph::new(text).block(block), area);
        return;
    }
    let rows = look.faults.iter().map(|fault| {
        let cells = [
            time(fault.at_ms),
            plain(&fault.kind),
            plain(&fault.id),
            plain(&fault.detail),
        ];
        Row::new(cells.map(Cell::from))
    });
    let widths = [
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Length(20),
        Constraint::Min(10),
    ];
    frame.render_widget(Table::new(rows, widths).block(block), area);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn known(count: Option<u64>) -> String {
    count.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string())
}

fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{rate:.1}"))
}

/// The time of day, UTC.
fn time(epoch_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(epoch_ms / 1000);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    let day = text.split_once('T').map_or(&*text, |(_, time)| time);
    day.trim_end_matches('Z').to_owned()
}

/// As much of a digest as tells versions apart.
fn short(digest: &str) -> &str {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    digits.get(..12).unwrap_or(digits)
}

/// What somebody else wrote, without control characters.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::gather::{Fault, Host};
    use super::*;

    fn look() -> Look {
        Look {
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
            consumers: 2,
            dead_letter_key: Some("orders:dead".to_owned()),
            dead_letters: Some(42),
            dead_letter_max_len: Some(100_000),
            dead_by_reason: BTreeMap::from([
                ("timeout".to_owned(), 40),
                ("tr\u{1b}ap".to_owned(), 2),
            ]),
            hosts: vec![
                Host {
                    address: "10.0.0.7:9400".to_owned(),
                    handler: Some("sha256:0123456789abcdef".to_owned()),
                    in_flight: 16,
                    attempts_per_second: Some(99.0),
                    ..Host::default()
                },
                Host {
                    address: "10.0.0.8:9400".to_owned(),
                    error: Some("no answer within 2 s".to_owned()),
                    ..Host::default()
                },
            ],
            faults: vec![Fault {
                at_ms: 1_700_000_000_000,
                id: "1-1".to_owned(),
                kind: "trap".to_owned(),
                detail: "unreachable\u{7}".to_owned(),
            }],
            trouble: None,
        }
    }

    fn drawn(look: &Look, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen(look, frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_shows_all_that_there_is() {
        let text = drawn(&look(), 100, 30);
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
            "q: quit",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let forged = text.chars().any(|c| c.is_control() && c != '\n');
        assert!(!forged, "{text}");
    }

    #[test]
    fn no_screen_is_too_small_and_no_look_too_empty() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 100)] {
            drawn(&look(), width, height);
            drawn(&Look::default(), width, height);
        }
    }

    #[test]
    fn a_line_has_it_all_in_brief() {
        assert_eq!(
            line(&look()),
            "22:13:20  orders  unread 1234  pending 17  delayed 3  in/s 100.0  out/s 98.5  \
             running 16  dead 42 (timeout 40, tr\u{fffd}ap 2)  handler 0123456789ab  \
             last fault trap 1-1  1 hosts do not answer"
        );
    }
}
