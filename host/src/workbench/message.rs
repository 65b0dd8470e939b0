//! A message as a file or a table describes it.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;

use crate::delivery::message::Headers;
use crate::workbench::Error;

/// The largest body that is read from a file or stdin: the largest value that Redis takes.
pub const BODY_MAX: u64 = 512 << 20;

/// Headers in this order.
pub fn headers(given: impl IntoIterator<Item = (String, String)>) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in given {
        headers.push(name, value);
    }
    headers
}

/// Read a file of at most `max` bytes; `-` = stdin.
///
/// # Errors
/// It cannot be read, or is larger.
pub fn read(path: &Path, max: u64) -> Result<Bytes, Error> {
    let cannot = Error::unread(path);
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).map_err(&cannot)?)
    };
    source
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > max {
        let what = format!("{} is larger than {max} bytes", path.display());
        return Err(Error::usage(what));
    }
    Ok(bytes.into())
}

/// The body that one of these fields of a table gives; `None` = none does. Paths are relative to this
/// folder.
///
/// # Errors
/// There are several, or the one cannot be read.
pub fn table_body(
    beside: &Path,
    text: Option<String>,
    base64: Option<String>,
    file: Option<PathBuf>,
) -> Result<Option<Bytes>, String> {
    let body = match (text, base64, file) {
        (None, None, None) => return Ok(None),
        (Some(text), None, None) => text.into(),
        (None, Some(text), None) => BASE64_STANDARD
            .decode(text)
            .map_err(|error| format!("`body_base64`: {error}"))?
            .into(),
        (None, None, Some(file)) => {
            read(&beside.join(file), BODY_MAX).map_err(|error| error.to_string())?
        }
        _ => return Err("more than one body".to_owned()),
    };
    Ok(Some(body))
}
