//! The only place that prints. stdout is data, stderr is for people.
//!
//! Texts may come from messages, guests, other programs or the command line. Whatever is printed here
//! holds no character that acts on a terminal: in a text for people it is escaped, in JSON it is
//! written as JSON's own escape. Only [`data`] writes bytes as they are.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::cli::text::one_line;
use crate::cli::{Exit, Failure};
use crate::delivery::text::{acts, printable, printable_lines};

const BOLD_RED: &str = "\x1b[1;31m";
const BOLD_YELLOW: &str = "\x1b[1;33m";
const BOLD_CYAN: &str = "\x1b[1;36m";
const RESET: &str = "\x1b[0m";

/// Write data to stdout as it is. A reader that has closed its end (`| head`) is not an error: the
/// command ends as if it had read everything.
pub(super) fn data(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::io("cannot write to stdout", &error)),
        Ok(()) => Ok(()),
    }
}

/// Write text for people to stdout: one line, or more.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    data(format!("{}\n", printable_lines(text)).as_bytes())
}

/// Write one line of JSON to stdout.
pub(super) fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(Exit::Bug, error))?;
    json_lines([text])
}

/// Write texts in JSON to stdout, one on each line.
pub(super) fn json_lines(texts: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let lines = texts.into_iter().map(|text| printable_json(&text) + "\n");
    data(lines.collect::<String>().as_bytes())
}

/// The same JSON without characters that act on a terminal. They stand in strings only, where JSON has
/// an escape for each.
fn printable_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if acts(c) {
            // None of them has more than four digits.
            safe.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Write a result to stdout: as JSON with `--json`, else as text.
pub(super) fn either<T: Serialize>(
    as_json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<Exit, Failure> {
    match as_json {
        true => json(value)?,
        false => line(&text(value))?,
    }
    Ok(Exit::Ok)
}

/// A table with a row of titles.
pub(super) fn titled<const N: usize>(
    titles: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    table(std::iter::once(titles.map(str::to_owned)).chain(rows))
}

/// Columns of text, as wide as they need to be, without lines between them. A cell is one line.
pub(super) fn table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for row in rows {
        table.add_row(row.map(|cell| one_line(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|l| l.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Print an error and its hints on stderr.
pub(super) fn failure(failure: &Failure) {
    let mut text = labelled("error", BOLD_RED, &printable(&failure.what));
    for (what, hint) in &failure.details {
        text.push_str(&format!("  {}\n", printable(what)));
        if let Some(hint) = hint {
            text.push_str(&format!("    {}", labelled("hint", BOLD_CYAN, hint)));
        }
    }
    if let Some(hint) = &failure.hint {
        text.push_str(&labelled("hint", BOLD_CYAN, hint));
    }
    write_stderr(&text);
}

/// Print a warning and its hint on stderr.
pub(super) fn warning(what: &str, hint: Option<&str>) {
    let mut text = labelled("warning", BOLD_YELLOW, what);
    if let Some(hint) = hint {
        text.push_str(&labelled("hint", BOLD_CYAN, hint));
    }
    write_stderr(&text);
}

/// Print text for people on stderr.
pub(super) fn people(text: &str) {
    write_stderr(&printable_lines(text));
}

/// Print what clap has to say about these arguments on stderr: in colours, unless the arguments, which
/// it repeats, could bring colours of their own.
pub(super) fn usage(plain: &str, coloured: &str, arguments: &[OsString]) {
    let acts_on_terminal = |argument: &OsString| argument.to_string_lossy().contains(acts);
    match is_terminal() && !arguments.iter().any(acts_on_terminal) {
        true => write_stderr(coloured),
        false => people(plain),
    }
}

/// Whether stderr is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

fn write_stderr(text: &str) {
    // If stderr cannot be written, there is no place for an error message either.
    let _unwritten = std::io::stderr().lock().write_all(text.as_bytes()).is_err();
}

/// A text behind its label, which alone may have a colour.
fn labelled(label: &str, colour: &str, text: &str) -> String {
    let text = printable_lines(text);
    if is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        format!("{colour}{label}{RESET}: {text}\n")
    } else {
        format!("{label}: {text}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that act on terminals, of each sort.
    const HOSTILE: &str =
        "a\u{1b}[31m\u{9b}0m\u{7f}\r\n\u{85}\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{61c}\0é";

    #[test]
    fn printed_json_means_the_same_and_acts_on_no_terminal() {
        let safe = printable_json(&serde_json::to_string(&[HOSTILE]).unwrap());
        assert!(!safe.contains(acts), "{safe}");
        let read: Vec<String> = serde_json::from_str(&safe).unwrap();
        assert_eq!(read, [HOSTILE]);
    }

    #[test]
    fn a_cell_of_a_table_stays_on_its_line() {
        let text = table([[HOSTILE.to_owned(), "b".to_owned()]]);
        assert!(!text.contains(acts) && text.ends_with("é  b"), "{text}");
    }
}
