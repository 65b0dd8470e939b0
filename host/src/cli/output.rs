//! The only place that prints. stdout is data, stderr is for people.

use std::io::{IsTerminal, Write};

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};

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

/// Write a line of data to stdout.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    data(format!("{text}\n").as_bytes())
}

/// Write one line of JSON to stdout.
pub(super) fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(Exit::Bug, error))?;
    line(&text)
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

/// Columns of text, as wide as they need to be, without lines between them.
pub(super) fn table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|l| l.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Print an error and its hints on stderr.
pub(super) fn failure(failure: &Failure) {
    let mut text = labelled("error", BOLD_RED, &failure.what);
    for (what, hint) in &failure.details {
        text.push_str(&format!("  {what}\n"));
        if let Some(hint) = hint {
            text.push_str(&format!("    {}", labelled("hint", BOLD_CYAN, hint)));
        }
    }
    if let Some(hint) = &failure.hint {
        text.push_str(&labelled("hint", BOLD_CYAN, hint));
    }
    people(&text);
}

/// Print a warning and its hint on stderr.
pub(super) fn warning(what: &str, hint: Option<&str>) {
    let mut text = labelled("warning", BOLD_YELLOW, what);
    if let Some(hint) = hint {
        text.push_str(&labelled("hint", BOLD_CYAN, hint));
    }
    people(&text);
}

/// Print text for people on stderr.
pub(super) fn people(text: &str) {
    // If stderr cannot be written, there is no place for an error message either.
    let _unwritten = std::io::stderr().lock().write_all(text.as_bytes()).is_err();
}

/// Whether stderr is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

fn labelled(label: &str, colour: &str, text: &str) -> String {
    if is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        format!("{colour}{label}{RESET}: {text}\n")
    } else {
        format!("{label}: {text}\n")
    }
}
