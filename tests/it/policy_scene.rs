//! What the tests of policies share: commands on a scene, and waiting for rules.

use std::path::{Path, PathBuf};

use hostler_tests::command::{Ended, run};
use hostler_tests::host::Host;
use hostler_tests::redis::eventually;

use crate::e2e_scene::Scene;

pub(crate) const HELD: &str = "other rules hold";
pub(crate) const IGNORED: &str = "wrong rules are ignored";

impl Scene {
    /// `hostler policy <command> ...` on this server.
    pub(crate) fn policy(&self, command: &str, more: &[&str]) -> Ended {
        let url = self.server.url();
        let first = ["policy", command, "--redis", &url];
        run(first.iter().chain(more))
    }

    /// Set rules of the queue `orders`.
    pub(crate) fn set(&self, settings: &[&str]) {
        self.policy("set", &[&["--queue", "orders"], settings].concat())
            .ok();
    }

    /// How many entries the stream of this key has.
    pub(crate) async fn length(&self, key: &str) -> i64 {
        self.raw.number(&format!("XLEN {key}")).await
    }

    /// Wait until the stream of this key has so many entries.
    pub(crate) async fn has(&self, key: &str, count: i64) {
        eventually(&format!("{key} has {count} entries"), async || {
            self.length(key).await == count
        })
        .await;
    }

    /// The header of the newest entry of a stream.
    pub(crate) async fn header(&self, key: &str, name: &str) -> Option<String> {
        let entries = self.raw.entries(key).await;
        let (_, fields) = entries.last()?;
        let field = format!("h:{name}");
        let value = crate::queue_scene::field(fields, &field)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

/// Wait until a host goes by other rules for the nth time: what it says that has changed.
pub(crate) async fn held(host: &Host, times: usize) -> String {
    host.logs_times(HELD, times).await;
    let log = host.log();
    let mut lines = log.iter().filter(|line| line.message() == HELD);
    let line = lines.next_back().and_then(|line| line.text("changed"));
    line.unwrap_or_default().to_owned()
}

/// A configuration file in a directory of its own.
pub(crate) struct File {
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl File {
    pub(crate) fn of(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders.toml");
        std::fs::write(&path, text).unwrap();
        Self { _dir: dir, path }
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.path.parent().map(|dir| dir.join(name)).unwrap()
    }

    /// In place.
    pub(crate) fn write(&self, text: &str) {
        std::fs::write(&self.path, text).unwrap();
    }

    /// By another file that takes its name.
    pub(crate) fn replace(&self, text: &str) {
        let other = self.beside("new");
        std::fs::write(&other, text).unwrap();
        std::fs::rename(&other, &self.path).unwrap();
    }
}

/// Make a link, in the place of one that is there.
pub(crate) fn link(to: &str, at: &Path) {
    let new = at.with_extension("new");
    std::os::unix::fs::symlink(to, &new).unwrap();
    std::fs::rename(&new, at).unwrap();
}
