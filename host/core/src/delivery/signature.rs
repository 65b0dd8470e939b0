//! What failures with the same cause have in common: [`signature`].

use crate::delivery::outcome::FaultKind;
use crate::delivery::text::truncated;

/// The most bytes of a text that are compared. The part that varies is mostly at the end.
const TEXT_MAX: usize = 200;

/// The innermost functions that are compared: those further out depend on the way to them.
const FRAMES_MAX: usize = 3;

/// As above, if they have no names: nothing distinguishes the handler's own from the up to four that carry out a panic.
pub const NUMBERED_MAX: usize = 6;

/// So is a function without a name called, with its number.
pub const NUMBERED: &str = "function ";

/// So begins what a detail quotes of stderr; so it ends in a fault.
const QUOTE: (&str, &str) = ("stderr: ", "; ");

/// The text before the functions that the handler itself names on stderr, innermost first.
pub const PLACE: &str = ", at ";

/// The text between a function and the one that called it.
pub const BELOW: &str = " < ";

/// The label of the outcome of a handler that wants its message again.
const NACK: &str = "nack-requeue";

/// The detail of a message whose last attempt asked for another one, with what its handler wrote about that.
pub fn of_nack(told: Option<&str>) -> String {
    match told {
        Some(told) => format!("{NACK}: {}{told}", QUOTE.0),
        None => NACK.to_owned(),
    }
}

/// The name of a function without a name in JavaScript.
const ANONYMOUS: &str = "<anonymous>";

/// The text that messages share which died for the same cause: the fault or the nack, the error that the handler wrote to
/// stderr, and the functions in which it was; or the reason, and the text of the handler. Numbers, ids and
/// quoted values of texts count as equal, and the lines of functions that have names.
///
/// The functions are those that the handler names. One that names none (Rust, C) has the functions of its
/// component, and the line that it names.
///
/// `reason` and `detail` are those of a dead letter. Any texts have a signature.
pub fn signature(reason: &str, detail: &str) -> String {
    let Some((label, told, frames)) = failure_of(detail) else {
        let (reason, text) = (truncated(reason, TEXT_MAX), normalized(detail));
        return match text.is_empty() {
            true => reason.to_owned(),
            false => format!("{reason}: {text}"),
        };
    };
    let (message, places) = match told.rsplit_once(PLACE) {
        Some((message, places)) if places.split(BELOW).all(|place| Place::of(place).is_some()) => {
            (message, places)
        }
        _ => (told, ""),
    };
    let places = places.split(BELOW).filter_map(Place::of);
    let places: Vec<Place<'_>> = places.take(FRAMES_MAX).collect();
    let mut signature = format!("{label}: {}", normalized(message));
    let shown = places.iter().enumerate();
    let shown = shown.map(|(at, place)| place.show(at == 0));
    append(&mut signature, PLACE, shown.collect());
    // The functions of an interpreter say nothing about its guest.
    if places.iter().all(|place| place.function.is_empty()) && !frames.is_empty() {
        let is_numbered = frames.starts_with(NUMBERED);
        let most = if is_numbered {
            NUMBERED_MAX
        } else {
            FRAMES_MAX
        };
        let frames = frames.split(BELOW).take(most).map(str::to_owned);
        append(&mut signature, ", in ", frames.collect());
    }
    signature
}

/// Append functions, bounded.
fn append(signature: &mut String, before: &str, functions: Vec<String>) {
    if !functions.is_empty() {
        signature.push_str(before);
        signature.push_str(truncated(&functions.join(BELOW), 2 * TEXT_MAX));
    }
}

/// Where in its own code a handler was: `price (order.py:12)`, or only `src/lib.rs:12:5`.
struct Place<'a> {
    /// Empty if only the place is known.
    function: &'a str,
    file: &'a str,
    line: &'a str,
}

impl<'a> Place<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let named = text
            .strip_suffix(')')
            .and_then(|text| text.rsplit_once(" ("));
        let (function, place) = named.unwrap_or(("", text));
        let number = |text: &'a str| {
            let (before, number) = text.rsplit_once(':')?;
            let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            (is_number && !before.is_empty()).then_some((before, number))
        };
        let (before, last) = number(place)?;
        let (file, line) = number(before).unwrap_or((before, last));
        let is_place = !function.is_empty() || file.contains('.') && !file.contains(' ');
        is_place.then_some(Self {
            function,
            file,
            line,
        })
    }

    /// Without what each build changes: the line counts only if nothing else identifies the innermost place.
    fn show(&self, is_innermost: bool) -> String {
        let Self {
            function,
            file,
            line,
        } = self;
        match *function {
            "" => format!("{file}:{line}"),
            ANONYMOUS if is_innermost => format!("{function} ({file}:{line})"),
            _ => format!("{function} ({file})"),
        }
    }
}

/// The label that a detail begins with, the error that it names, and the functions of the component.
fn failure_of(detail: &str) -> Option<(&str, &str, &str)> {
    let (label, text) = detail.split_once(": ")?;
    if label == NACK {
        return Some((label, text.strip_prefix(QUOTE.0)?, ""));
    }
    FaultKind::ALL.into_iter().find(|k| k.label() == label)?;
    let is_quote_over = |head: &str| !head.starts_with(QUOTE.0) || head.contains(QUOTE.1);
    let (text, frames) = match text.rsplit_once(", in ") {
        Some((text, frames)) if is_quote_over(text) => (text, frames),
        _ => (text, ""),
    };
    let told = text
        .strip_prefix(QUOTE.0)
        .and_then(|quoted| quoted.rsplit_once(QUOTE.1))
        .map_or(text, |(told, _)| told);
    Some((label, told, frames))
}

/// A text without what differs from message to message: `#` stands for numbers and ids, `"…"` for a quoted
/// value, a blank for blanks.
fn normalized(text: &str) -> String {
    let mut out = String::new();
    let mut rest = truncated(text, TEXT_MAX).trim();
    while let Some(first) = rest.chars().next() {
        let end = |is_part: fn(char) -> bool| {
            let behind = rest.find(|c| !is_part(c));
            behind.unwrap_or(rest.len())
        };
        let taken = if first == '"' {
            out.push_str("\"…\"");
            // A quote that is cut off ends with the text.
            rest[1..].find('"').map_or(rest.len(), |close| close + 2)
        } else if first.is_whitespace() {
            out.push(' ');
            end(char::is_whitespace)
        } else if first.is_alphanumeric() {
            let taken = end(char::is_alphanumeric);
            push_word(&mut out, &rest[..taken]);
            taken
        } else {
            out.push(first);
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    out
}

/// Append a word; its numbers become `#`, and so does a word that looks like an id. The parts of an id, a time
/// or a fraction are one.
fn push_word(out: &mut String, word: &str) {
    let has_digit = word.contains(|c: char| c.is_ascii_digit());
    let is_id = has_digit && word.len() >= 4 && word.chars().all(|c| c.is_ascii_hexdigit());
    let is_number = has_digit && word.chars().all(|c| c.is_ascii_digit());
    if is_id || is_number {
        let joined = out
            .strip_suffix(['-', '.', ':'])
            .filter(|before| before.ends_with('#'))
            .map(str::len);
        match joined {
            Some(length) => out.truncate(length),
            None => out.push('#'),
        }
        return;
    }
    let mut in_number = false;
    for c in word.chars() {
        let is_digit = c.is_ascii_digit();
        if !is_digit {
            out.push(c);
        } else if !in_number {
            out.push('#');
        }
        in_number = is_digit;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn failures_of_one_cause_share_a_signature() {
        for (reason, details, expected) in [
            (
                "dropped",
                &["no customer 17", "no  customer 4711 "][..],
                "dropped: no customer #",
            ),
            (
                "dropped",
                &[
                    "unknown order 550e8400-e29b-41d4-a716-446655440000",
                    "unknown order 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
                ],
                "dropped: unknown order #",
            ),
            (
                "malformed",
                &[
                    "the field \"a\" is repeated",
                    "the field \"b c\" is repeated",
                ],
                "malformed: the field \"…\" is repeated",
            ),
            (
                "max-deliveries",
                &[
                    "trap: stderr: no stock of item 7; wasm trap: wasm `unreachable` instruction executed, \
                     in shop::take < shop::handle < a < b",
                    "trap: stderr: no stock of item 12; wasm trap: wasm `unreachable` instruction executed, \
                     in shop::take < shop::handle < a < c",
                ],
                "trap: no stock of item #, in shop::take < shop::handle < a",
            ),
            (
                "trap",
                &["trap: wasm trap: integer divide by zero, in f < g"],
                "trap: wasm trap: integer divide by zero, in f < g",
            ),
            (
                "timeout",
                &["wall-timeout: no answer within 5s (limit `timeout`)"],
                "wall-timeout: no answer within #s (limit `timeout`)",
            ),
            (
                "max-deliveries",
                &["nack-requeue"],
                "max-deliveries: nack-requeue",
            ),
            (
                "trap",
                &[
                    "trap: stderr: ValueError: bad \"a\", at price (app.py:11) < handle (app.py:25); wasm trap: x, \
                     in interpreter",
                    "trap: stderr: ValueError: bad \"b\", at price (app.py:12) < handle (app.py:27); wasm trap: x",
                ],
                "trap: ValueError: bad \"…\", at price (app.py) < handle (app.py)",
            ),
            (
                "trap",
                &[
                    "trap: stderr: no item 7, at src/lib.rs:10:5; wasm trap: x, in shop::take < shop::handle",
                    "trap: stderr: no item 9, at src/lib.rs:10:5; wasm trap: x, in shop::take < shop::handle",
                ],
                "trap: no item #, at src/lib.rs:10, in shop::take < shop::handle",
            ),
            (
                "trap",
                &[
                    "trap: stderr: e, at <anonymous> (h.js:3:1) < <anonymous> (h.js:9:1); wasm trap: x",
                ],
                "trap: e, at <anonymous> (h.js:3) < <anonymous> (h.js)",
            ),
            (
                "trap",
                &["trap: stderr: no stock, at shelf 5, in hall 7; wasm trap: x"],
                "trap: no stock, at shelf #, in hall #",
            ),
            (
                "max-deliveries",
                &[
                    "nack-requeue: stderr: *main.Declined: order 7: declined; again, at main.charge (main.go:12)",
                    "nack-requeue: stderr: *main.Declined: order 9: declined; again, at main.charge (main.go:17)",
                ],
                "nack-requeue: *main.Declined: order #: declined; again, at main.charge (main.go)",
            ),
            (
                "max-deliveries",
                &["nack-requeue: stderr: no stock, in hall 7, at src/lib.rs:7:5"],
                "nack-requeue: no stock, in hall #, at src/lib.rs:7",
            ),
            ("expired", &["", "  "], "expired"),
            (
                "dropped",
                &[
                    "at 2026-11-23T08:00:01.5 v2 f7 #",
                    "at 2025-01-02T23:59:59.25 v3 f9 #",
                ],
                "dropped: at #-#T# v# f# #",
            ),
        ] {
            for detail in details {
                assert_eq!(signature(reason, detail), expected, "{detail}");
            }
        }
    }

    #[test]
    fn other_causes_have_other_signatures() {
        let one = signature("trap", "trap: stderr: a; wasm trap, in f < g");
        for (reason, detail) in [
            ("trap", "trap: stderr: b; wasm trap, in f < g"),
            ("trap", "trap: stderr: a; wasm trap, in f < h"),
            (
                "trap",
                "trap: stderr: a, at src/lib.rs:7:1; wasm trap, in f < g",
            ),
            (
                "trap",
                "trap: stderr: a, at f (a.py:1); wasm trap, in f < g",
            ),
            ("trap", "guest-exit: stderr: a; exited"),
            ("dropped", "a"),
        ] {
            assert_ne!(signature(reason, detail), one, "{detail}");
        }
    }

    proptest! {
        #[test]
        fn every_text_has_a_bounded_signature(reason in ".{0,300}", detail in ".{0,2000}") {
            let signature = signature(&reason, &detail);
            prop_assert!(signature.len() <= 8 * TEXT_MAX, "{}", signature.len());
        }
    }
}
