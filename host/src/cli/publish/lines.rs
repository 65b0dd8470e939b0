//! Reads lines of stdin, on a thread of its own.

use std::io::{BufRead, BufReader, Read};

use crate::cli::{Exit, Failure};
use bytes::Bytes;
use tokio::sync::mpsc;

/// The longest line.
const LINE_MAX: u64 = 64 << 20;
/// How much of stdin is read ahead.
const STDIN_BUFFER: usize = 1 << 20;

/// Send every line, until stdin or the receiver ends.
pub(super) fn read_lines(lines: &mpsc::Sender<Result<Bytes, Failure>>) {
    let mut stdin = BufReader::with_capacity(STDIN_BUFFER, std::io::stdin());
    loop {
        let line = match read_line(&mut stdin) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => return,
            Err(failure) => Err(failure),
        };
        let ended = line.is_err();
        if lines.blocking_send(line).is_err() || ended {
            return;
        }
    }
}

/// The next line without its end; `None` = the input has ended.
fn read_line(reader: &mut impl BufRead) -> Result<Option<Bytes>, Failure> {
    let mut line = Vec::new();
    let read = reader
        .take(LINE_MAX + 1)
        .read_until(b'\n', &mut line)
        .map_err(|error| Failure::io("cannot read stdin", &error))?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    } else if read as u64 > LINE_MAX {
        let what = format!("a line of stdin is longer than {LINE_MAX} bytes");
        return Err(Failure::new(Exit::Usage, what).hint("use `--body-file -` for one large body"));
    }
    Ok(Some(line.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_carriage_return() {
        let mut input = &b"one\n\ntwo\r\nthree"[..];
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "", "two", "three"]);
    }
}
