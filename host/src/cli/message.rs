//! A message as flags describe it: for `invoke` and `publish`.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::cli::Failure;
use crate::workbench::message::{BODY_MAX, read};

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
            (None, Some(path)) => Ok(Some(read(path, BODY_MAX)?)),
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
