//! A message as flags or a table describe it: for `invoke`, `publish` and `test`.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;

use crate::cli::{Exit, Failure};
use crate::delivery::message::Headers;

/// The largest body that is read from a file or stdin: the largest value that Redis takes.
pub(super) const BODY_MAX: u64 = 512 << 20;

/// A header as a flag gives it: `name=value`.
pub(super) type Header = (String, String);

/// Parse a header.
pub(super) fn header(text: &str) -> Result<Header, &'static str> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name is empty"),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("write it as `name=value`"),
    }
}

/// Headers in this order.
pub(super) fn headers(given: impl IntoIterator<Item = Header>) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in given {
        headers.push(name, value);
    }
    headers
}

/// Where a body comes from.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct Body {
    /// The body, as text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) body: Option<String>,

    /// A file that holds the body, byte for byte; `-` = stdin
    #[arg(long, value_name = "FILE")]
    pub(super) body_file: Option<PathBuf>,
}

impl Body {
    /// The body; `None` = no flag names one.
    pub(super) fn read(&self) -> Result<Option<Bytes>, Failure> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(Some(Bytes::from(text.clone()))),
            (None, Some(path)) => read(path, BODY_MAX).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Whether this is a file that can be read.
pub(super) fn is_file(path: &Path) -> std::io::Result<()> {
    // A pipe is not opened: that would wait for its other end.
    match std::fs::metadata(path)?.is_file() {
        true => std::fs::File::open(path).map(drop),
        false => Err(std::io::Error::other("it is not a file")),
    }
}

/// Read a file of at most `max` bytes; `-` = stdin.
pub(super) fn read(path: &Path, max: u64) -> Result<Bytes, Failure> {
    let cannot = |error| Failure::io(format_args!("cannot read {}", path.display()), &error);
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).map_err(cannot)?)
    };
    source
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > max {
        let what = format!("{} is larger than {max} bytes", path.display());
        return Err(Failure::new(Exit::Usage, what));
    }
    Ok(bytes.into())
}

/// The body that one of these fields of a table gives; `None` = none does. Paths are relative to this
/// folder.
pub(super) fn table_body(
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
            read(&beside.join(file), BODY_MAX).map_err(|failure| failure.what)?
        }
        _ => return Err("more than one body".to_owned()),
    };
    Ok(Some(body))
}
