//! Foreign text on a line of a terminal, and times as numbers.

use std::time::Duration;

use ratatui::text::Span;

use crate::delivery::text::printable;

/// How much of a body or a detail a table shows, in characters.
const SHORT_MAX: usize = 60;

/// Foreign text on one line. Characters that act on a terminal are escaped.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\t', "\\t")
}

/// Foreign text on one line, cut after 60 characters.
pub fn short(text: &str) -> String {
    let mut short = one_line(&text.chars().take(SHORT_MAX).collect::<String>());
    if text.chars().nth(SHORT_MAX).is_some() {
        short.push('…');
    }
    short
}

/// The columns that a text takes on a terminal.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Foreign text on one line of at most `max` columns.
pub fn cut(text: &str, max: usize) -> String {
    wrapped(text, max, 1).concat()
}

/// Foreign text on at most so many lines of at most `max` columns each.
pub fn wrapped(text: &str, max: usize, lines: usize) -> Vec<String> {
    // Characters that take no columns are bounded as well.
    let most = 2 * max * lines;
    let mut is_cut = text.chars().nth(most).is_some();
    let text: String = text.chars().take(most).collect();
    let mut wrapped = vec![String::new()];
    for c in one_line(&text).chars() {
        let is_last = wrapped.len() == lines;
        let Some(line) = wrapped.last_mut() else {
            break;
        };
        line.push(c);
        if width(line) <= max {
            continue;
        }
        is_cut |= is_last;
        if is_last {
            break;
        }
        line.pop();
        wrapped.push(c.to_string());
    }
    if let Some(line) = wrapped.last_mut().filter(|_| is_cut) {
        while width(line) >= max {
            line.pop();
        }
        line.push('…');
    }
    wrapped
}

/// Whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_on_its_line() {
        assert_eq!(one_line("a\nb\u{1b}[1mc é"), "a\\nb\\u{1b}[1mc é");
        assert_eq!(short(&"x".repeat(61)), format!("{}…", "x".repeat(60)));
    }

    #[test]
    fn a_text_is_cut_after_columns_and_says_so() {
        assert_eq!(cut("abcde", 5), "abcde");
        assert_eq!(cut("abcdef", 5), "abcd…");
        assert_eq!(cut("\u{6f22}\u{6f22}\u{6f22}", 5), "\u{6f22}\u{6f22}…");
        assert_eq!(cut("", 5), "");
        assert_eq!(wrapped("abcdefghij", 5, 2), ["abcde", "fghij"]);
        assert_eq!(wrapped("abcdefghijk", 5, 2), ["abcde", "fghi…"]);
        // Marks without a width do not make a line endless.
        let marks = "a\u{301}".repeat(1000);
        assert_eq!(cut(&marks, 5), format!("{}…", "a\u{301}".repeat(4)));
    }
}
