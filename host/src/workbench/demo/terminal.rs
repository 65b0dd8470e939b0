//! The commands of a demo: those that a user would type in its folder. Each is a process of this program.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::{Event, Show};
use crate::workbench::Error;

/// The longest time that a command may take.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// The server of the commands.
const SERVER: &str = "HOSTLER_REDIS";

/// Runs commands, and shows them.
pub(super) struct Terminal<'a> {
    /// Commands run in this folder,
    pub(super) folder: &'a Path,
    /// with this server, credentials included,
    pub(super) url: String,
    /// and with these variables.
    pub(super) variables: &'a [(OsString, OsString)],
    pub(super) show: Show<'a>,
}

impl Terminal<'_> {
    pub(super) fn say(&self, text: &str) {
        (self.show)(Event::Said(text));
    }

    /// Run a command whose words have no spaces in them.
    ///
    /// # Errors
    /// It fails, or takes too long.
    pub(super) async fn run(&self, line: &str) -> Result<(), Error> {
        // This very program, also if its file was replaced.
        let mut command = Command::new("/proc/self/exe");
        // Ctrl-C is for the demo; its end ends the command.
        command
            .arg0("hostler")
            .args(line.split(' ').skip(1))
            .env_clear()
            .envs(self.variables.iter().cloned())
            .env(SERVER, &self.url)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let failed = |why: &dyn std::fmt::Display| Error::Step(format!("`{line}` failed: {why}"));
        let ended = timeout(COMMAND_MAX, command.output()).await;
        let ended = ended.map_err(|_| failed(&"it takes too long"))?;
        let ended = ended.map_err(|error| failed(&error))?;
        let stderr = String::from_utf8_lossy(&ended.stderr);
        if !ended.status.success() {
            return Err(failed(&format!("{}: {}", ended.status, stderr.trim_end())));
        }
        let output = format!("{}{stderr}", String::from_utf8_lossy(&ended.stdout));
        (self.show)(Event::Ran {
            line,
            output: output.trim_end(),
        });
        Ok(())
    }
}
