//! A private Redis for `--redis embedded`: a server on a Unix socket, with its data beside it. It ends
//! with its last user.
//!
//! Processes with the same directory share one server. It ends even if its users are killed (a `SIGKILL`
//! runs no code): each user holds a lock on a file, which the kernel frees with the process, and a small
//! supervising shell waits for that lock (`supervise.sh`). The server has its own process group, so that
//! Ctrl-C drains hostler before Redis ends.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::redis::target::unix_url;

mod place;
mod probe;
mod programs;

use place::{Mode, Place, SOCKET_PATH_MAX};
use probe::{Health, probe, shut_down};
use programs::Programs;

const SUPERVISE: &str = include_str!("supervise.sh");

/// How long a server may stay silent at the start; while it answers that it is loading, it may take
/// longer.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// A little more than the longest time that the supervisor takes to end a server.
const END_DEADLINE: Duration = Duration::from_secs(15);
/// The pause between two probes.
const POLL: Duration = Duration::from_millis(10);

/// Why there is no embedded server. [`Error::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server program is installed.
    #[error("no redis-server and no valkey-server in PATH")]
    NoServer,
    /// A needed tool is not installed.
    #[error("no {tool} in PATH")]
    NoTool {
        /// The program.
        tool: &'static str,
        /// Its package in Debian.
        package: &'static str,
    },
    /// The directory, or something in it, cannot be used.
    #[error("the embedded redis cannot use {}: {source}", path.display())]
    Directory {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path of the socket would be too long for the system.
    #[error(
        "the embedded redis needs a socket at {}, which is {len} bytes long, and {SOCKET_PATH_MAX} is the most",
        path.display()
    )]
    SocketPath {
        /// Its path.
        path: PathBuf,
        /// The length of the path.
        len: usize,
    },
    /// The server could not be started.
    #[error("the embedded redis does not start: {0}")]
    Spawn(#[source] io::Error),
    /// The server ended before it answered.
    #[error("the embedded redis ended at once ({status}); its log {} ends with: {log}", path.display())]
    Ended {
        /// How.
        status: ExitStatus,
        /// Its log.
        path: PathBuf,
        /// The end of it.
        log: String,
    },
    /// The server, or another process that starts or ends it, took too long.
    #[error(
        "the embedded redis is not ready after {}: {what}; see its log {}",
        humantime::format_duration(*after),
        path.display()
    )]
    Deadline {
        /// The state that did not change.
        what: &'static str,
        /// How long.
        after: Duration,
        /// Its log.
        path: PathBuf,
    },
}

impl Error {
    /// What to do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoServer => Some(
                "install one (apt-get install redis-server, or pip install 'hostler[server]'), or name a \
                 running server with --redis URL"
                    .to_owned(),
            ),
            Self::NoTool { package, .. } => Some(format!("install it (apt-get install {package})")),
            Self::SocketPath { .. } => Some("work in a directory with a shorter path".to_owned()),
            _ => None,
        }
    }
}

/// Whether a server runs with its data in this directory. Starts and makes nothing.
pub fn is_running(dir: &Path) -> bool {
    let users = File::open(Place::data(dir).join(place::USERS));
    users.is_ok_and(|users| matches!(users.try_lock(), Err(TryLockError::WouldBlock)))
}

/// A running server, for as long as this lives.
#[derive(Debug)]
pub struct Embedded {
    place: Place,
    url: String,
    /// Held shared by every user; see `supervise.sh`.
    alive: File,
    /// The same, but no process waits for it: it shows whether there are other users.
    users: File,
    /// The supervisor, if this process started it: kept so that it is reaped.
    supervisor: Option<Child>,
}

impl Embedded {
    /// Start a server with its data under `dir` (a private directory, made if missing), or join the
    /// server of another process there. Returns when it answers and its data is loaded.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn start(dir: &Path) -> Result<Self, Error> {
        Self::start_with(dir, programs::search().as_deref()).await
    }

    async fn start_with(dir: &Path, search: Option<&OsStr>) -> Result<Self, Error> {
        let programs = Programs::find(search)?;
        let place = Place::make(dir)?;
        // No other process starts or leaves meanwhile.
        let _starting = place.lock(&place.start, Mode::Exclusive).await?;
        let mut embedded = Self {
            url: unix_url(&place.socket, 0),
            alive: place.lock(&place.alive, Mode::Shared).await?,
            users: place.lock(&place.users, Mode::Shared).await?,
            supervisor: None,
            place,
        };
        embedded.bring_up(&programs).await?;
        Ok(embedded)
    }

    /// Its URL: `unix:///...`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Leave it. If no other process uses it, wait until it has ended.
    ///
    /// Dropping leaves as well, without waiting.
    ///
    /// # Errors
    /// [`Error::Deadline`] if it does not end.
    pub async fn stop(mut self) -> Result<(), Error> {
        let _starting = self.place.lock(&self.place.start, Mode::Exclusive).await?;
        // Ours turns exclusive if no other process holds it.
        let alone = self.users.try_lock().is_ok();
        drop((self.alive, self.users));
        if !alone {
            return Ok(());
        }
        // Free again only when the supervisor has seen the end of the server.
        self.place.lock(&self.place.watch, Mode::Exclusive).await?;
        if let Some(supervisor) = &mut self.supervisor {
            let _status = supervisor.wait().await;
        }
        Ok(())
    }

    /// Probe, then start, wait or shut down, until a supervised server answers.
    async fn bring_up(&mut self, programs: &Programs) -> Result<(), Error> {
        let mut since = Instant::now();
        let mut what = "it does not answer";
        while since.elapsed() < START_DEADLINE {
            match probe(&self.place.socket).await {
                Health::Ready if self.supervised()? => return Ok(()),
                // Its supervisor was killed: it would never end.
                Health::Ready => {
                    what = "an abandoned one does not end";
                    shut_down(&self.place.socket).await;
                }
                Health::Loading => since = Instant::now(),
                // A server listens: a second one would write to the same files.
                Health::Silent => {}
                Health::Absent if self.supervised()? => {}
                Health::Absent => self.spawn(programs)?,
            }
            if let Some(supervisor) = &mut self.supervisor
                && let Some(status) = supervisor.try_wait().map_err(Error::Spawn)?
            {
                return Err(Error::Ended {
                    status,
                    log: self.place.end_of_log(),
                    path: self.place.log.clone(),
                });
            }
            sleep(POLL).await;
        }
        Err(self.place.late(what, START_DEADLINE))
    }

    /// Whether a supervisor will end the server after its last user.
    fn supervised(&self) -> Result<bool, Error> {
        // A supervisor that this process started may not hold its lock yet.
        Ok(self.supervisor.is_some() || self.place.is_held(&self.place.watch)?)
    }

    fn spawn(&mut self, programs: &Programs) -> Result<(), Error> {
        let place = &self.place;
        place.put_log_aside()?;
        let supervisor = Command::new(&programs.sh)
            .arg("-c")
            .arg(SUPERVISE)
            .arg("hostler-embedded-redis")
            .args([&place.alive, &place.watch])
            .arg(&programs.server)
            .args(["--port", "0", "--daemonize", "no"])
            .args(["--unixsocketperm", "700"])
            .args(["--appendonly", "yes", "--save", ""])
            .args(["--maxmemory-policy", "noeviction"])
            .arg("--unixsocket")
            .arg(&place.socket)
            .arg("--dir")
            .arg(&place.data)
            .arg("--logfile")
            .arg(&place.log)
            .current_dir(&place.data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(place.append_to_log()?)
            .process_group(0)
            .spawn()
            .map_err(Error::Spawn)?;
        self.supervisor = Some(supervisor);
        Ok(())
    }
}
