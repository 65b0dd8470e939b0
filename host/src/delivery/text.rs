//! Bounded texts.

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
}
