//! The built binary as a process of its own: started, signalled, killed, waited for; everything
//! that it writes is kept.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::guests::guest;
use crate::redis::{PATIENCE, RedisServer, eventually, eventually_or};
use crate::witness::Witness;

/// The binary under test: hostler with its fault points, or the one that `HOSTLER_TEST_BINARY` names
/// (an older one, say, to see a test fail).
///
/// # Panics
///
/// If it has not been built.
pub fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("HOSTLER_TEST_BINARY") {
        return named.into();
    }
    // target/debug/deps/it-0123456789abcdef, or target/debug/chaos
    let test = std::env::current_exe().expect("a process knows its file");
    let dirs = test.ancestors().skip(1).take(2);
    let mut binaries = dirs.map(|dir| dir.join("hostler-under-test"));
    let binary = binaries.find(|binary| binary.is_file());
    binary.expect("hostler-under-test is missing: run `make test`")
}

/// The directory of the tests' compiled components, as `XDG_CACHE_HOME`. All tests and all runs share
/// it, so each component is compiled once. It never is the user's own.
pub fn cache_home() -> PathBuf {
    binary().with_file_name("test-cache")
}

/// A command of hostler that has nothing of this process's environment but its path.
fn hostler(binary: &Path, directory: Option<&Path>) -> Command {
    let mut command = Command::new(binary);
    command
        .arg0("hostler")
        .env_clear()
        .env("XDG_CACHE_HOME", cache_home());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command
}

/// The arguments and variables of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    flags: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    directory: Option<PathBuf>,
    binary: Option<PathBuf>,
}

impl HostOptions {
    /// The group `workers` of the stream `orders` on this server, with the guest `scripted`.
    pub fn new(server: &RedisServer) -> Self {
        // Files that a crash may leave behind go when the server goes.
        Self::at(&server.url()).directory(server.dir())
    }

    /// The same at this URL.
    pub fn at(url: &str) -> Self {
        Self {
            flags: BTreeMap::new(),
            variables: BTreeMap::new(),
            directory: None,
            binary: None,
        }
        .flag("redis", url)
        .flag("stream", "orders")
        .flag("group", "workers")
        .flag("handler", &guest("scripted").display().to_string())
        .flag("summary", "json")
    }

    /// With dead letters, and a cap.
    #[must_use]
    pub fn cap(self, max_deliveries: u32) -> Self {
        self.dead_letter()
            .flag("max-deliveries", &max_deliveries.to_string())
    }

    /// With dead letters, in the stream `orders:dead`.
    #[must_use]
    pub fn dead_letter(self) -> Self {
        self.flag("dead-letter", "orders:dead")
    }

    /// It ends when there is nothing to do.
    #[must_use]
    pub fn until_empty(self) -> Self {
        // One that hangs says so itself, with its log, before the test loses its patience.
        self.flag("until-empty", "true")
            .flag("until-empty-timeout", "100s")
    }

    /// With this flag, instead of the one of that name before.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With these flags: `flags("concurrency=4 min-idle=500ms")`.
    ///
    /// # Panics
    ///
    /// If one has no value.
    #[must_use]
    pub fn flags(self, flags: &str) -> Self {
        flags.split_whitespace().fold(self, |options, flag| {
            let (name, value) = flag.split_once('=').expect("a flag is `name=value`");
            options.flag(name, value)
        })
    }

    /// Without this flag.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.flags.remove(name);
        self
    }

    /// With this environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// It serves its metrics on a free port.
    #[must_use]
    pub fn admin(self) -> Self {
        self.flag("admin", "127.0.0.1:0")
    }

    /// In this working directory.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Another binary than the one under test.
    #[must_use]
    pub fn binary(mut self, binary: &Path) -> Self {
        self.binary = Some(binary.to_owned());
        self
    }

    fn command(&self) -> Command {
        let binary = self.binary.clone().unwrap_or_else(binary);
        let mut command = hostler(&binary, self.directory.as_deref());
        command.arg("run").envs(&self.variables);
        for (name, value) in &self.flags {
            command.arg(format!("--{name}={value}"));
        }
        command
    }

    /// Start it.
    pub fn start(&self) -> Host {
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("hostler can be started");
        let log = Arc::<Mutex<Vec<Line>>>::default();
        let kept = Arc::clone(&log);
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                locked(&kept).push(Line::new(&String::from_utf8_lossy(&line)));
            }
        });
        let mut stdout = child.stdout.take().expect("stdout is a pipe");
        let printer = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // The bytes before a failure are returned.
            drop(stdout.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Host {
            child,
            log,
            threads: Some((reader, printer)),
        }
    }

    /// Start it with a pipe as its stderr that no process reads, as long as the returned value is
    /// kept.
    pub fn start_unread(&self) -> Child {
        self.start_into(Stdio::piped())
    }

    /// Start it with this as its stderr.
    pub fn start_into(&self, stderr: impl Into<Stdio>) -> Child {
        self.start_with(Stdio::null(), stderr)
    }

    /// Start it with these as its stdout and stderr.
    pub fn start_with(&self, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Child {
        self.command()
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("hostler can be started")
    }

    /// Start it, and wait until it serves.
    pub async fn ready(&self) -> Host {
        let host = self.start();
        let what = || format!("a host is ready:\n{}", host.tail());
        let is_ready = async || host.count(|line| line.message() == "ready") > 0;
        eventually_or(what, is_ready).await;
        host
    }

    /// Start it, and wait until it ends by itself.
    pub async fn end(&self) -> Ended {
        self.start().ended().await
    }

    /// Start it, and wait until it ends with exit code 0 because its queue is empty.
    pub async fn finish(&self) -> Ended {
        let ended = self.clone().until_empty().end().await;
        ended.expect_code(0);
        ended
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running host; killed when dropped.
#[derive(Debug)]
pub struct Host {
    child: Child,
    log: Arc<Mutex<Vec<Line>>>,
    threads: Option<(JoinHandle<()>, JoinHandle<String>)>,
}

impl Host {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> Vec<Line> {
        locked(&self.log).clone()
    }

    /// How many of the lines so far are such.
    pub fn count(&self, such: impl FnMut(&&Line) -> bool) -> usize {
        locked(&self.log).iter().filter(such).count()
    }

    /// The name of its consumer, once it serves.
    pub fn consumer(&self) -> String {
        let log = locked(&self.log);
        let serving = log.iter().find(|line| line.message() == "serving");
        let name = serving.and_then(|line| line.text("consumer"));
        name.expect("a host that serves has said as whom")
            .to_owned()
    }

    /// Wait until it logs a message that begins so.
    pub async fn logs(&self, message: &str) {
        self.logs_times(message, 1).await;
    }

    /// Wait until it has logged it `times` times.
    pub async fn logs_times(&self, message: &str, times: usize) {
        let what = || format!("a host logs `{message}` {times} times:\n{}", self.tail());
        eventually_or(what, async || {
            self.count(|line| line.message().starts_with(message)) >= times
        })
        .await;
    }

    /// Wait until there were `times` starts.
    pub async fn starts(&self, times: usize) {
        let what = || format!("a host starts {times} handlers:\n{}", self.tail());
        eventually_or(what, async || {
            self.count(|line| line.start().is_some()) >= times
        })
        .await;
    }

    /// The starts so far.
    pub fn witness(&self) -> Witness {
        Witness::of([locked(&self.log).as_slice()])
    }

    /// What its admin server says to `GET <path>`: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        get(&self.admin_address(), path).expect("the admin server answers")
    }

    /// The address of its admin server.
    pub fn admin_address(&self) -> String {
        locked(&self.log)
            .iter()
            .find_map(|line| line.text("address").map(str::to_owned))
            .expect("the host has an admin server")
    }

    /// The series of `/metrics`, without the labels of the queue.
    pub fn metrics(&self) -> String {
        without_queue(&self.get("/metrics").1)
    }

    /// The value of a series, such as `hostler_steals_total`.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.metrics();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = value.and_then(|value| value.parse().ok());
        value.expect("the series is there")
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Send a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("process ids are small");
        // It is our child, and it was not waited for: no other process has the id.
        kill(Pid::from_raw(pid), signal).expect("a child can be signalled");
    }

    /// Stop it from running (`SIGSTOP`), and wait until it stands.
    pub async fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.pid());
        eventually("a process stops", || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            // The state is the first word behind the name, which may hold anything.
            let state = stat
                .rsplit_once(") ")
                .map(|(_, rest)| rest.starts_with('T'));
            std::future::ready(state == Some(true))
        })
        .await;
    }

    /// Let it run again.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kill it (`SIGKILL`).
    pub async fn kill(self) -> Ended {
        self.signal(Signal::SIGKILL);
        self.ended().await
    }

    /// Stop it (`SIGTERM`), and wait until it has stopped.
    pub async fn drain(self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// Stop it, and wait until it has stopped, with exit code 0.
    pub async fn drained(self) -> Ended {
        let ended = self.drain().await;
        ended.expect_code(0);
        ended
    }

    /// Wait until it ends.
    pub async fn ended(mut self) -> Ended {
        let mut status = None;
        let log = Arc::clone(&self.log);
        let child = &mut self.child;
        let what = || format!("a host ends:\n{}", tail(&locked(&log)));
        eventually_or(what, async || {
            status = child.try_wait().expect("a child can be waited for");
            status.is_some()
        })
        .await;
        let (reader, printer) = self.threads.take().expect("it ends once");
        reader.join().expect("the log can be read");
        let stdout = printer.join().expect("stdout can be read");
        Ended {
            status: status.expect("it has ended"),
            stdout,
            log: locked(&self.log).clone(),
        }
    }

    fn tail(&self) -> String {
        tail(&locked(&self.log))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What an admin server says to `GET <path>`: status and body.
///
/// # Errors
/// It does not answer.
pub fn get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::InvalidData)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// The last lines, for a test that fails.
fn tail(log: &[Line]) -> String {
    let last = log.iter().rev().take(40).rev();
    last.map(|line| format!("{}\n", line.raw)).collect()
}

/// What is left of a process.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it logged, or said on stderr.
    pub log: Vec<Line>,
}

impl Ended {
    /// Its exit code; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<Signal> {
        Signal::try_from(self.status.signal()?).ok()
    }

    /// The one line of JSON on stdout.
    ///
    /// # Panics
    ///
    /// If there is anything else.
    pub fn json(&self) -> Value {
        let mut lines = self.stdout.lines();
        let json = lines
            .next()
            .and_then(|line| serde_json::from_str(line).ok());
        match (json, lines.next()) {
            (Some(json), None) => json,
            _ => {
                assert!(
                    self.stdout.is_empty(),
                    "not one line of JSON: {}",
                    self.stdout
                );
                assert!(!self.stdout.is_empty(), "no JSON: {}", tail(&self.log));
                Value::Null
            }
        }
    }

    /// All that it said on stderr.
    pub fn stderr(&self) -> String {
        self.log
            .iter()
            .map(|line| format!("{}\n", line.raw))
            .collect()
    }

    /// Its starts.
    pub fn witness(&self) -> Witness {
        Witness::of([self.log.as_slice()])
    }

    /// How many of its lines are such.
    pub fn count(&self, such: impl FnMut(&&Line) -> bool) -> usize {
        self.log.iter().filter(such).count()
    }

    /// That it ended in peace: this exit code, nothing else.
    ///
    /// # Panics
    ///
    /// If not.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(
            self.code(),
            Some(code),
            "{:?}\n{}",
            self.status,
            tail(&self.log)
        );
        self
    }
}

/// A line of a host's log.
#[derive(Clone, Debug)]
pub struct Line {
    /// As it was written.
    pub raw: String,
    json: Option<Value>,
}

impl Line {
    fn new(raw: &str) -> Self {
        Self {
            raw: raw.to_owned(),
            json: serde_json::from_str(raw).ok(),
        }
    }

    /// One of its fields.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.json.as_ref()?.get(name)
    }

    /// One of its fields that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name)?.as_str()
    }

    /// One of its fields that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.as_u64()
    }

    /// What it says; of a line that is no JSON, all.
    pub fn message(&self) -> &str {
        if self.json.is_none() {
            return &self.raw;
        }
        self.text("message").unwrap_or_default()
    }

    /// The message and the attempt, if a guest says here that it starts.
    pub fn start(&self) -> Option<(&str, u32)> {
        let line = self
            .text("line")
            .filter(|_| self.text("target") == Some("guest"))?;
        let (id, attempt) = line.strip_prefix("start ")?.rsplit_once(' ')?;
        Some((id, attempt.parse().ok()?))
    }
}

/// A scrape without the labels that every series of a host carries.
pub fn without_queue(scrape: &str) -> String {
    let mut text = scrape.to_owned();
    for label in ["queue=\"", "group=\""] {
        while let Some(begin) = text.find(label) {
            let value = begin + label.len();
            let end = value + text[value..].find('"').expect("a label has an end") + 1;
            let end = end + usize::from(text[end..].starts_with(','));
            text.replace_range(begin..end, "");
        }
    }
    text.replace("{}", "")
}
