//! A private Redis for `--redis embedded`: a server of our own on a Unix socket, with its data
//! beside it, that ends with its last user.
//!
//! Processes that name the same directory share one server. How it ends does not depend on how its
//! users end (a `SIGKILL` runs no code): each user holds a lock on a file, which the kernel frees
//! with the process, and a small supervising shell waits for that lock (`supervise.sh`). The
//! server is in a process group of its own, so that Ctrl-C drains hostler before Redis is gone.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// The servers that we can run, the first that is there.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];
const SUPERVISE: &str = include_str!("embedded/supervise.sh");

/// The longest path of a Unix socket, in bytes.
const SOCKET_PATH_MAX: usize = 107;
/// How long a server may stay silent at start; while it says that it is loading, it may take longer.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long the supervisor takes at most to end a server, and a bit.
const END_DEADLINE: Duration = Duration::from_secs(15);
/// How often we look.
const POLL: Duration = Duration::from_millis(10);
/// How long a server may take to answer a `PING` before it counts as silent.
const PING_DEADLINE: Duration = Duration::from_secs(2);
/// When the log is put aside at a start, in bytes.
const LOG_MAX: u64 = 1024 * 1024;
/// How much of the log an error shows, in bytes.
const LOG_SHOWN: u64 = 1024;

/// Why there is no embedded server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server program is installed.
    #[error(
        "no redis-server and no valkey-server in PATH: install one (apt-get install redis-server), or name a running server with --redis URL"
    )]
    NoServer,
    /// A tool that we need is not installed.
    #[error("no {tool} in PATH: install it (apt-get install {package})")]
    NoTool {
        /// The program.
        tool: &'static str,
        /// What Debian calls its package.
        package: &'static str,
    },
    /// The directory, or something in it, cannot be used.
    #[error("the embedded redis cannot use {}: {source}", path.display())]
    Directory {
        /// What cannot be used.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path of the socket would be too long for the system.
    #[error(
        "the embedded redis needs a socket at {}, which is {len} bytes long, and {SOCKET_PATH_MAX} is the most: work in a directory with a shorter path",
        path.display()
    )]
    SocketPath {
        /// Where it would be.
        path: PathBuf,
        /// How long that is.
        len: usize,
    },
    /// The server could not be started at all.
    #[error("the embedded redis does not start: {source}")]
    Spawn {
        /// Why.
        source: io::Error,
    },
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
    /// The server, or another process that starts or ends it, did not get anywhere.
    #[error(
        "the embedded redis is not ready after {}: {what}; see its log {}",
        humantime::format_duration(*after),
        path.display()
    )]
    Deadline {
        /// What we waited for.
        what: &'static str,
        /// How long.
        after: Duration,
        /// Its log.
        path: PathBuf,
    },
}

/// A running server, for as long as this lives.
#[derive(Debug)]
pub struct Embedded {
    place: Place,
    url: String,
    /// Held shared by every user; see `supervise.sh`.
    alive: File,
    /// The same, but nobody waits for it: it tells whether there are other users.
    users: File,
    /// The supervisor, if we have started it: kept so that it is reaped.
    supervisor: Option<Child>,
}

impl Embedded {
    /// Start a server with its data under `dir` (which is made, and private), or join the one that
    /// another process runs there. Returns when it answers and its data is loaded.
    ///
    /// # Errors
    /// Each says what is missing or where to look; see [`Error`].
    pub async fn start(dir: &Path) -> Result<Self, Error> {
        Self::start_with(dir, std::env::var_os("PATH").as_deref()).await
    }

    async fn start_with(dir: &Path, search: Option<&OsStr>) -> Result<Self, Error> {
        let programs = Programs::find(search)?;
        let place = Place::make(dir)?;
        // One at a time: nobody else starts or leaves while we look around.
        let _starting = place.lock(&place.start, Mode::Exclusive).await?;
        let mut embedded = Self {
            url: url_of(&place.socket),
            alive: place.lock(&place.alive, Mode::Shared).await?,
            users: place.lock(&place.users, Mode::Shared).await?,
            supervisor: None,
            place,
        };
        embedded.bring_up(&programs).await?;
        Ok(embedded)
    }

    /// Where it is: `unix:///...`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Leave it, and wait until it is gone if nobody else uses it.
    ///
    /// Dropping leaves as well, without waiting.
    ///
    /// # Errors
    /// [`Error::Deadline`] if it does not end.
    pub async fn stop(mut self) -> Result<(), Error> {
        let _starting = self.place.lock(&self.place.start, Mode::Exclusive).await?;
        // Ours turns exclusive if nobody else holds it.
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

    /// Look, and start or wait or clear away, until a supervised server answers.
    async fn bring_up(&mut self, programs: &Programs) -> Result<(), Error> {
        let mut since = Instant::now();
        let mut what = "it does not answer";
        while since.elapsed() < START_DEADLINE {
            match probe(&self.place.socket).await {
                Health::Ready if self.supervised()? => return Ok(()),
                // Its supervisor was killed: nobody would end it.
                Health::Ready => {
                    what = "an abandoned one does not end";
                    shut_down(&self.place.socket).await;
                }
                Health::Loading => since = Instant::now(),
                // Somebody listens: a second server would write to the same files.
                Health::Silent => {}
                Health::Absent if self.supervised()? => {}
                Health::Absent => self.spawn(programs)?,
            }
            if let Some(supervisor) = &mut self.supervisor
                && let Some(status) = supervisor
                    .try_wait()
                    .map_err(|source| Error::Spawn { source })?
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

    /// Whether somebody will end the server when its last user is gone.
    fn supervised(&self) -> Result<bool, Error> {
        // Once we have started one, we ask the process: it may not hold its lock yet.
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
            .args([
                "--port",
                "0",
                "--daemonize",
                "no",
                "--unixsocketperm",
                "700",
            ])
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
            .map_err(|source| Error::Spawn { source })?;
        self.supervisor = Some(supervisor);
        Ok(())
    }
}

/// The programs that we run.
struct Programs {
    server: PathBuf,
    sh: PathBuf,
}

impl Programs {
    fn find(search: Option<&OsStr>) -> Result<Self, Error> {
        let find = |name: &str| find_program(name, search);
        let tool = |tool, package| find(tool).ok_or(Error::NoTool { tool, package });
        let server = SERVERS
            .iter()
            .find_map(|name| find(name))
            .ok_or(Error::NoServer)?;
        tool("flock", "util-linux")?;
        Ok(Self {
            server,
            sh: tool("sh", "dash")?,
        })
    }
}

fn find_program(name: &str, search: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(search?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}

/// What is where.
#[derive(Debug)]
struct Place {
    data: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    start: PathBuf,
    alive: PathBuf,
    users: PathBuf,
    watch: PathBuf,
}

#[derive(Clone, Copy)]
enum Mode {
    Shared,
    Exclusive,
}

impl Place {
    fn make(dir: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Directory {
            path: dir.to_owned(),
            source,
        };
        let dir = make_private(dir)
            .and_then(|()| fs::canonicalize(dir))
            .map_err(failed)?;
        let data = dir.join("redis");
        make_private(&data).map_err(|source| Error::Directory {
            path: data.clone(),
            source,
        })?;
        let socket = dir.join("redis.sock");
        let len = socket.as_os_str().len();
        if len > SOCKET_PATH_MAX {
            return Err(Error::SocketPath { path: socket, len });
        }
        Ok(Self {
            log: dir.join("redis.log"),
            start: data.join("start.lock"),
            alive: data.join("alive.lock"),
            users: data.join("users.lock"),
            watch: data.join("watch.lock"),
            socket,
            data,
        })
    }

    /// Wait for a lock; the one who holds it is starting or ending the server.
    async fn lock(&self, path: &Path, mode: Mode) -> Result<File, Error> {
        let failed = |source| Error::Directory {
            path: path.to_owned(),
            source,
        };
        let file = open_private(path).map_err(failed)?;
        let since = Instant::now();
        // Starting includes loading, which has no deadline of its own: the process that holds the
        // lock is alive, and says itself when it gives up.
        while since.elapsed() < START_DEADLINE + END_DEADLINE {
            let locked = match mode {
                Mode::Shared => file.try_lock_shared(),
                Mode::Exclusive => file.try_lock(),
            };
            match locked {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => sleep(POLL).await,
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        let what = "another process is starting or ending it";
        Err(self.late(what, START_DEADLINE + END_DEADLINE))
    }

    fn is_held(&self, path: &Path) -> Result<bool, Error> {
        let failed = |source| Error::Directory {
            path: path.to_owned(),
            source,
        };
        match open_private(path).map_err(failed)?.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    fn append_to_log(&self) -> Result<File, Error> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.log)
            .map_err(|source| self.log_failed(source))
    }

    /// Keep the log bounded: the one before stays as `redis.log.old`.
    fn put_log_aside(&self) -> Result<(), Error> {
        match fs::metadata(&self.log) {
            Ok(log) if log.len() > LOG_MAX => {
                fs::rename(&self.log, self.log.with_extension("log.old"))
                    .map_err(|source| self.log_failed(source))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn end_of_log(&self) -> String {
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

    fn log_failed(&self, source: io::Error) -> Error {
        Error::Directory {
            path: self.log.clone(),
            source,
        }
    }

    fn late(&self, what: &'static str, after: Duration) -> Error {
        Error::Deadline {
            what,
            after,
            path: self.log.clone(),
        }
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

/// `unix://` and the path, percent-encoded where a URL needs it.
fn url_of(socket: &Path) -> String {
    let mut url = String::from("unix://");
    for &byte in socket.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Health {
    /// It answers.
    Ready,
    /// It answers, and reads its data.
    Loading,
    /// Somebody listens and says nothing.
    Silent,
    /// Nobody listens.
    Absent,
}

async fn probe(socket: &Path) -> Health {
    match timeout(PING_DEADLINE, ask(socket, b"PING\r\n")).await {
        Ok(Ok(reply)) if reply.starts_with("-LOADING") => Health::Loading,
        // Any other answer comes from a server that is up, even if it is not well.
        Ok(Ok(reply)) if reply.starts_with(['+', '-']) => Health::Ready,
        Ok(Err(error)) if is_absence(&error) => Health::Absent,
        Ok(Ok(_) | Err(_)) | Err(_) => Health::Silent,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Ask the server to end. It closes the connection when it has written everything and removed
/// its socket.
async fn shut_down(socket: &Path) {
    let _reply = timeout(END_DEADLINE, ask(socket, b"SHUTDOWN\r\n")).await;
}

async fn ask(socket: &Path, command: &[u8]) -> io::Result<String> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await?);
    stream.write_all(command).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn programs(names: &[&str]) -> (tempfile::TempDir, OsString) {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        }
        let search = dir.path().as_os_str().to_owned();
        (dir, search)
    }

    #[tokio::test]
    async fn missing_programs_are_named_with_their_remedy() {
        let place = tempfile::tempdir().unwrap();
        for (installed, remedy) in [
            (&["sh", "flock"][..], "apt-get install redis-server"),
            (&["sh", "redis-server"], "apt-get install util-linux"),
            (&["flock", "valkey-server"], "apt-get install dash"),
        ] {
            let (_dir, search) = programs(installed);
            let error = Embedded::start_with(place.path(), Some(&search))
                .await
                .unwrap_err();
            assert!(error.to_string().contains(remedy), "{error}");
        }
        assert!(matches!(Programs::find(None), Err(Error::NoServer)));
    }

    #[test]
    fn what_is_no_program_is_passed_over() {
        let (dir, search) = programs(&["flock", "sh", "valkey-server"]);
        fs::create_dir(dir.path().join("redis-server")).unwrap();
        let found = Programs::find(Some(&search)).unwrap();
        assert_eq!(found.server, dir.path().join("valkey-server"));
        fs::set_permissions(&found.server, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(
            Programs::find(Some(&search)),
            Err(Error::NoServer)
        ));
    }

    #[test]
    fn any_path_fits_into_a_url() {
        assert_eq!(url_of(Path::new("/a/b-c_d.sock")), "unix:///a/b-c_d.sock");
        let odd = OsStr::from_bytes(b"/a b/#?%\xff");
        assert_eq!(url_of(Path::new(odd)), "unix:///a%20b/%23%3F%25%FF");
    }

    #[test]
    fn a_long_path_is_refused_with_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(120));
        let error = Place::make(&deep).unwrap_err();
        assert!(matches!(error, Error::SocketPath { len, .. } if len > 120));
    }
}
