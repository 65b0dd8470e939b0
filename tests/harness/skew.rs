//! Clocks that are wrong: a library that is preloaded into a server or a host.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::host::HostOptions;
use crate::redis::RedisOptions;

/// A library of the harness that can be preloaded, built anew, and its directory.
pub(crate) fn library(name: &str) -> (PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let library = dir.path().join(format!("{name}.so"));
    let source = format!("{}/harness/{name}.c", env!("CARGO_MANIFEST_DIR"));
    // Rust links with a C compiler, so there is one.
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .args([&source, "-ldl", "-lresolv"])
        .status()
        .expect("there is a C compiler");
    assert!(built.success());
    (library, dir)
}

/// A library that shifts the clock of a process.
#[derive(Debug)]
pub struct Skewed {
    library: PathBuf,
    _dir: tempfile::TempDir,
}

impl Skewed {
    /// Built anew.
    ///
    /// # Panics
    ///
    /// If there is no C compiler.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it builds a library")]
    pub fn new() -> Self {
        let (library, dir) = library("skew");
        Self { library, _dir: dir }
    }

    /// A server whose clock is wrong by as many seconds as [`Skewed::set`] says, at any time.
    #[must_use]
    pub fn server(&self) -> RedisOptions {
        self.write([0, 0]);
        let library = self.library.display().to_string();
        RedisOptions::default()
            .variable("LD_PRELOAD", &library)
            .variable("TEST_CLOCK_FILE", &self.clock().display().to_string())
    }

    /// This host, on a machine that has been suspended for as long as [`Skewed::suspended`] says.
    #[must_use]
    pub fn suspendable(&self, host: HostOptions) -> HostOptions {
        self.write([0, 0]);
        let library = self.library.display().to_string();
        host.variable("LD_PRELOAD", &library)
            .variable("TEST_CLOCK_FILE", &self.clock().display().to_string())
    }

    /// The machine of that host was suspended for this long, all in all: its monotonic clock stood still.
    pub fn suspended(&self, time: Duration) {
        let ns = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        self.write([0, ns]);
    }

    /// Let the clock of that server be wrong by `seconds` seconds.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn set(&self, seconds: i64) {
        self.write([seconds, 0]);
    }

    fn write(&self, words: [i64; 2]) {
        let clock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.clock());
        // In place: the server has mapped this very file.
        clock
            .and_then(|mut clock| clock.write_all(words.map(i64::to_ne_bytes).as_flattened()))
            .expect("the clock can be set");
    }

    fn clock(&self) -> PathBuf {
        self.library.with_file_name("clock")
    }

    /// This host, with a clock that is wrong by `hours` hours.
    #[must_use]
    pub fn turn(&self, host: HostOptions, hours: i64) -> HostOptions {
        self.turn_by(host, hours * 3600)
    }

    /// This host, with a clock that is wrong by `seconds` seconds.
    #[must_use]
    pub fn turn_by(&self, host: HostOptions, seconds: i64) -> HostOptions {
        let library = self.library.display().to_string();
        host.variable("LD_PRELOAD", &library)
            .variable("TEST_CLOCK_SKEW", &seconds.to_string())
    }
}
