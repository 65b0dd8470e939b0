//! The files in an embedded server's directory, and the locks on them.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::embedded::{END_DEADLINE, Error, POLL, START_DEADLINE};

/// The longest path of a Unix socket, in bytes.
pub(super) const SOCKET_PATH_MAX: usize = 107;
/// The file whose lock every user holds, shared.
pub(super) const USERS: &str = "users.lock";
/// When the log is put aside at a start, in bytes.
const LOG_MAX: u64 = 1024 * 1024;
/// How much of the log an error shows, in bytes.
const LOG_SHOWN: u64 = 1024;

/// The paths.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) data: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) log: PathBuf,
    pub(super) start: PathBuf,
    pub(super) alive: PathBuf,
    pub(super) users: PathBuf,
    pub(super) watch: PathBuf,
}

#[derive(Clone, Copy)]
pub(super) enum Mode {
    Shared,
    Exclusive,
}

impl Place {
    /// Where the data is.
    pub(super) fn data(dir: &Path) -> PathBuf {
        dir.join("redis")
    }

    pub(super) fn make(dir: &Path) -> Result<Self, Error> {
        let dir = make_private(dir)
            .and_then(|()| fs::canonicalize(dir))
            .map_err(failed(dir))?;
        let data = Self::data(&dir);
        make_private(&data).map_err(failed(&data))?;
        let socket = dir.join("redis.sock");
        let len = socket.as_os_str().len();
        if len > SOCKET_PATH_MAX {
            return Err(Error::SocketPath { path: socket, len });
        }
        Ok(Self {
            log: dir.join("redis.log"),
            start: data.join("start.lock"),
            alive: data.join("alive.lock"),
            users: data.join(USERS),
            watch: data.join("watch.lock"),
            socket,
            data,
        })
    }

    /// Wait for a lock; the process that holds it is starting or ending the server.
    pub(super) async fn lock(&self, path: &Path, mode: Mode) -> Result<File, Error> {
        let file = open_private(path).map_err(failed(path))?;
        let since = Instant::now();
        // Starting includes loading, which has no deadline: the process that holds the lock is alive, and
        // reports its own failure.
        while since.elapsed() < START_DEADLINE + END_DEADLINE {
            let locked = match mode {
                Mode::Shared => file.try_lock_shared(),
                Mode::Exclusive => file.try_lock(),
            };
            match locked {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => sleep(POLL).await,
                Err(TryLockError::Error(source)) => return Err(failed(path)(source)),
            }
        }
        let what = "another process is starting or ending it";
        Err(self.late(what, START_DEADLINE + END_DEADLINE))
    }

    pub(super) fn is_held(&self, path: &Path) -> Result<bool, Error> {
        match open_private(path).map_err(failed(path))?.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(failed(path)(source)),
        }
    }

    pub(super) fn append_to_log(&self) -> Result<File, Error> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.log)
            .map_err(failed(&self.log))
    }

    /// Keep the log bounded: the one before stays as `redis.log.old`.
    pub(super) fn put_log_aside(&self) -> Result<(), Error> {
        match fs::metadata(&self.log) {
            Ok(log) if log.len() > LOG_MAX => {
                fs::rename(&self.log, self.log.with_extension("log.old")).map_err(failed(&self.log))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn end_of_log(&self) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.log)?;
            let len = file.metadata()?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(LOG_SHOWN)))?;
            let mut end = Vec::new();
            file.take(LOG_SHOWN).read_to_end(&mut end)?;
            Ok(end)
        };
        let end = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&end);
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    pub(super) fn late(&self, what: &'static str, after: Duration) -> Error {
        Error::Deadline {
            what,
            after,
            path: self.log.clone(),
        }
    }
}

/// This path cannot be used.
fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    |source| {
        let path = path.to_owned();
        Error::Directory { path, source }
    }
}

fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_refused_with_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(120));
        let error = Place::make(&deep).unwrap_err();
        assert!(matches!(error, Error::SocketPath { len, .. } if len > 120));
    }
}
