//! Shared by the tests of policies: commands, and waits for new rules.

use std::path::{Path, PathBuf};

use hostler_tests::command::{Ended, run};
use hostler_tests::host::Host;
use hostler_tests::redis::eventually;

use crate::runtime::e2e_scene::Scene;

pub(crate) const HELD: &str = "rules changed";
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

    /// Wait until the stream of this key has `count` entries.
    pub(crate) async fn has(&self, key: &str, count: i64) {
        eventually(&format!("{key} has {count} entries"), async || {
            self.length(key).await == count
        })
        .await;
    }

    /// Wait until there are this many dead letters; the newest has this `x-dead-letter-` header.
    pub(crate) async fn died(&self, count: i64, name: &str, value: &str) {
        self.has("orders:dead", count).await;
        let name = format!("x-dead-letter-{name}");
        let found = self.header("orders:dead", &name).await;
        assert_eq!(found.as_deref(), Some(value), "{name}");
    }

    /// A header of the newest entry of a stream.
    pub(crate) async fn header(&self, key: &str, name: &str) -> Option<String> {
        let entries = self.raw.entries(key).await;
        let (_, fields) = entries.last()?;
        let field = format!("h:{name}");
        let value = crate::queue::queue_scene::field(fields, &field)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

/// Wait until a host has changed its rules this many times; returns the changed rules.
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

    /// Write in place.
    pub(crate) fn write(&self, text: &str) {
        std::fs::write(&self.path, text).unwrap();
    }

    /// Write a new file, and rename it.
    pub(crate) fn replace(&self, text: &str) {
        let other = self.beside("new");
        std::fs::write(&other, text).unwrap();
        std::fs::rename(&other, &self.path).unwrap();
    }
}

/// Create a link; it replaces an existing one.
pub(crate) fn link(to: &str, at: &Path) {
    let new = at.with_extension("new");
    std::os::unix::fs::symlink(to, &new).unwrap();
    std::fs::rename(&new, at).unwrap();
}
