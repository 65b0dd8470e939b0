//! Bounded and printable texts.

use std::fmt::{self, Write};

/// The longest detail of a dead letter or a fault, in bytes.
pub const DETAIL_MAX: usize = 1024;

/// Cut a text at a character boundary, so that it has at most `max` bytes.
pub fn truncate_utf8(text: &mut String, max: usize) {
    text.truncate(truncated(text, max).len());
}

/// The longest part of a text that has at most `max` bytes and ends at a character boundary.
pub fn truncated(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|&i| text.is_char_boundary(i));
    &text[..end.unwrap_or(0)]
}

/// The first `max` bytes of a value as text, cut at a character boundary. Formatting stops there: a short
/// value may have a very long text.
pub fn format_up_to(max: usize, value: fmt::Arguments<'_>) -> String {
    struct UpTo {
        text: String,
        max: usize,
    }
    impl Write for UpTo {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            let kept = truncated(part, self.max - self.text.len());
            self.text.push_str(kept);
            // An error ends the formatting.
            if kept.len() == part.len() {
                Ok(())
            } else {
                Err(fmt::Error)
            }
        }
    }
    let mut out = UpTo {
        text: String::new(),
        max,
    };
    // An error is the end of the room.
    out.write_fmt(value).unwrap_or_default();
    out.text
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a character could act on a terminal or forge a line: control characters (except tabs), line
/// separators and marks of the writing direction.
pub fn acts(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

/// The text without characters that could act on a terminal or forge a line: they are escaped.
pub fn printable(text: &str) -> String {
    if !text.contains(acts) {
        return text.to_owned();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// The same for a text of several lines, which stay lines.
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for max in 0..12 {
            let mut text = "aä€😀bc".to_owned();
            truncate_utf8(&mut text, max);
            assert!(text.len() <= max && "aä€😀bc".starts_with(&text));
        }
    }

    #[test]
    fn a_printable_text_acts_on_no_terminal_and_stays_on_its_line() {
        let safe = printable(
            "a\u{1b}[31m\u{9b}0m\u{7f}\r\u{85}\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{61c}\0é\n\tb",
        );
        assert!(!safe.contains(acts), "{safe}");
        assert!(safe.starts_with("a\\u{1b}[31m") && safe.ends_with("é\\n\tb"));
        assert_eq!(printable(&safe), safe);
        assert_eq!(printable_lines("a\u{7}\nb\n"), "a\\u{7}\nb\n");
    }

    #[test]
    fn formatting_stops_at_the_limit() {
        /// Writes for ever.
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("ab€")?;
                }
            }
        }
        for (max, text) in [(0, ""), (1, "a"), (4, "ab"), (5, "ab€"), (7, "ab€ab")] {
            assert_eq!(format_up_to(max, format_args!("{Endless}")), text);
        }
        assert_eq!(
            format_up_to(9, format_args!("{}-{}", 1, "whole")),
            "1-whole"
        );
    }
}
