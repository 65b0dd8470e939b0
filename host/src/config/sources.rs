//! The sources of a configuration, kept to be read again while a host runs.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::collect::{Collected, Input, PolicyValue};

/// Where the settings of a command come from.
pub struct Sources {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// The file was found, not named: [`Input::is_beside`].
    pub is_beside: bool,
    /// The text of the file, if it has been read. The file is not read again then.
    pub text: Option<String>,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The flags: the key of the setting and the text given.
    pub flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// Collect all sources; read the file, unless it has been read.
    pub fn collect(&self) -> Collected {
        self.collect_with(None, Vec::new())
    }

    /// Collect all sources and these policies. `text` is another text of the file.
    pub fn collect_with(&self, text: Option<&str>, policies: Vec<PolicyValue>) -> Collected {
        Collected::new(Input {
            file: self.file.as_deref(),
            is_beside: self.is_beside,
            file_text: text.or(self.text.as_deref()),
            variables: self.variables.clone(),
            flags: self.flags.clone(),
            policies,
        })
    }
}
