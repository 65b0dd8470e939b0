//! The folder of a demo: a project whose handler is built already.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::delivery::text::hex;
use crate::workbench::Error;

/// The handler with the mistake.
const HANDLER: &[u8] = include_bytes!("billing.wasm");
const HANDLER_FILE: &str = "billing.wasm";
/// The corrected version.
pub(super) const CORRECTED_FILE: &str = "fixed.wasm";
/// The queue.
const PROJECT: &str = include_str!("project.toml");
const CONFIG_FILE: &str = "hostler.toml";
const TOKEN_FILE: &str = "token";

/// A private folder. It goes with all its files when this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    token: String,
}

impl Folder {
    /// Make it among the temporary files of the system, with the versions of the handler.
    pub(super) fn make() -> Result<Self, Error> {
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(Error::bug)?;
        // In full: commands run there, and it is shown.
        let temporary = std::env::temp_dir();
        let temporary = fs::canonicalize(&temporary).map_err(Error::unread(&temporary))?;
        let path = temporary.join(format!("hostler-demo-{:08x}", fastrand::u32(..)));
        let mut builder = DirBuilder::new();
        builder
            .mode(0o700)
            .create(&path)
            .map_err(Error::unwritten(&path))?;
        let folder = Self {
            path,
            token: hex(&token),
        };
        folder.write(TOKEN_FILE, folder.token.as_bytes())?;
        folder.write(HANDLER_FILE, HANDLER)?;
        folder.write(CORRECTED_FILE, &corrected())?;
        Ok(folder)
    }

    /// Write the configuration: this server, named without credentials, and the dashboard at this port.
    pub(super) fn write_project(&self, redis: &str, port: u16) -> Result<(), Error> {
        let redis = toml::Value::from(redis);
        let text = format!(
            "redis = {redis}\nadmin = \"127.0.0.1:{port}\"\nui = true\nui_token_file = \"{TOKEN_FILE}\"\n{PROJECT}"
        );
        self.write(CONFIG_FILE, text.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes))
            .map_err(Error::unwritten(&path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration of the project.
    pub(super) fn config(&self) -> PathBuf {
        self.path.join(CONFIG_FILE)
    }

    /// The token for the actions of the dashboard.
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::error!(%error, "the folder of the demo stays: {}", self.path.display());
        }
    }
}

/// The corrected version: its list of currencies has the one that is missing (`billing.wat`).
pub(super) fn corrected() -> Vec<u8> {
    const MISSING: &[u8] = b" --- ";
    const CORRECTED: &[u8] = b" JPY ";
    let mut bytes = HANDLER.to_vec();
    let place = bytes.windows(MISSING.len()).position(|at| at == MISSING);
    if let Some(place) = place {
        bytes[place..place + CORRECTED.len()].copy_from_slice(CORRECTED);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_differ_in_one_currency() {
        let corrected = corrected();
        assert_eq!(corrected.len(), HANDLER.len());
        let changed = HANDLER.iter().zip(&corrected).filter(|(a, b)| a != b);
        assert_eq!(changed.count(), 3);
    }
}
