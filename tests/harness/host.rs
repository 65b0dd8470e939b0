<<<<<<< HEAD
//! The built binary: commands that end, and hosts that run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::redis::PATIENCE;

/// The binary, beside the tests in the target directory.
=======
//! The built binary as a process of its own: started, signalled, killed, waited for; everything
//! that it writes is kept.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::guests::guest;
use crate::redis::{PATIENCE, RedisServer, eventually};
use crate::witness::Witness;

/// The binary under test: hostler with its fault points.
>>>>>>> e2e
///
/// # Panics
///
/// If it has not been built.
pub fn binary() -> PathBuf {
<<<<<<< HEAD
    let tests = std::env::current_exe().expect("the test knows its own file");
    let binary = tests
        .ancestors()
        .nth(2)
        .map(|dir| dir.join("hostler"))
        .expect("tests are in `deps`, below the binary");
    assert!(
        binary.is_file(),
        "the binary is not built ({} is missing): run `cargo build -p hostler`, or `make test`",
=======
    // target/debug/deps/it-0123456789abcdef
    let test = std::env::current_exe().expect("a process knows its file");
    let dir = test.ancestors().nth(2).expect("tests are built in `deps`");
    let binary = dir.join("hostler-under-test");
    assert!(
        binary.is_file(),
        "{} is missing: run `make test`",
>>>>>>> e2e
        binary.display()
    );
    binary
}

<<<<<<< HEAD
/// The binary with these arguments, in an environment of its own: no variable of hostler's.
pub fn hostler<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(arguments: I) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HOSTLER_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
    command
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Its data.
    pub stdout: String,
    /// What it said to people.
    pub stderr: String,
}

impl Ended {
    /// Its data as JSON: one line.
    pub fn json(&self) -> Json {
        assert_eq!(self.stdout.lines().count(), 1, "one line: {self:?}");
        serde_json::from_str(&self.stdout).expect("stdout is JSON")
    }

    /// It ended with exit code 0.
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// Run a command to its end.
pub fn run<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(arguments: I) -> Ended {
    end(&mut hostler(arguments))
}

/// Run a prepared command to its end.
pub fn end(command: &mut Command) -> Ended {
    let output = command.output().expect("the binary can be started");
    Ended {
        code: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

/// Run a command to its end, with this on its stdin.
pub fn fed<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(arguments: I, stdin: &[u8]) -> Ended {
    let mut file = tempfile::tempfile().expect("a temporary file can be made");
    file.write_all(stdin).expect("it can be written");
    std::io::Seek::rewind(&mut file).expect("it can be read again");
    end(hostler(arguments).stdin(file))
}

/// A host that runs as a process of its own; killed when dropped.
#[derive(Debug)]
pub struct Host {
    child: Child,
    dir: TempDir,
}

impl Host {
    /// Start `hostler run` with these arguments; its logs are JSON.
    pub fn start<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(arguments: I) -> Self {
        let mut command = hostler(["run", "--log-format", "json"]);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Start a prepared command.
    pub fn spawn(mut command: Command) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let file = |name| File::create(dir.path().join(name)).expect("a log can be written");
        command.stdout(file("stdout")).stderr(file("stderr"));
        let child = command.spawn().expect("the binary can be started");
        Self { child, dir }
    }

    /// What it has logged so far.
    pub fn stderr(&self) -> String {
        self.text("stderr")
    }

    /// Its log events so far.
    pub fn events(&self) -> Vec<Json> {
        let stderr = self.stderr();
        let lines = stderr.lines();
        lines.filter_map(|l| serde_json::from_str(l).ok()).collect()
    }

    /// The first log event with this message, once it is there.
    pub fn event(&mut self, message: &str) -> Json {
        self.find(message, |event| event["message"] == message)
    }

    /// The first line of a guest that begins like this, once it is there.
    pub fn guest_line(&mut self, begin: &str) -> Json {
        let is_it = |event: &Json| event["line"].as_str().is_some_and(|l| l.starts_with(begin));
        self.find(begin, is_it)
    }

    fn find(&mut self, what: &str, is_it: impl Fn(&Json) -> bool) -> Json {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.events().into_iter().find(&is_it) {
                return event;
            }
            let ended = self.child.try_wait().expect("it can be asked").is_some();
            assert!(
                !ended && begun.elapsed() < PATIENCE,
                "`{what}` was not logged:\n{}",
                self.stderr()
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Wait until it has read from its queue.
    pub fn until_ready(&mut self) {
        self.event("ready");
    }

=======
/// A command of hostler that has nothing of this process's environment but its path.
fn hostler(directory: Option<&Path>) -> Command {
    let mut command = Command::new(binary());
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command
}

/// Run a command of hostler to its end.
pub fn run(arguments: &[&str], stdin: &[u8]) -> Ended {
    let mut command = hostler(None);
    command.args(arguments);
    finish(command, stdin)
}

fn finish(mut command: Command, stdin: &[u8]) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("hostler can be started");
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(stdin));
    let output = child.wait_with_output().expect("a child can be waited for");
    // One that does not want its input may have ended before.
    drop(written);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ended {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        log: stderr.lines().map(Line::new).collect(),
    }
}

/// The arguments and variables of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    flags: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    directory: Option<PathBuf>,
}

impl HostOptions {
    /// The group `workers` of the stream `orders` on this server, with the guest `scripted`.
    pub fn new(server: &RedisServer) -> Self {
        // What a crash may leave behind goes when the server goes.
        Self::at(&server.url()).directory(server.dir())
    }

    /// The same at this URL.
    pub fn at(url: &str) -> Self {
        Self {
            flags: BTreeMap::new(),
            variables: BTreeMap::new(),
            directory: None,
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
            .flag("until-empty-timeout", "50s")
    }

    /// With this flag, instead of the one of that name before.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.insert(name.to_owned(), value.to_owned());
        self
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

    fn command(&self) -> Command {
        let mut command = hostler(self.directory.as_deref());
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
            // What came before a failure is what there is.
            drop(stdout.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Host {
            child,
            log,
            threads: Some((reader, printer)),
        }
    }

    /// Start it, and wait until it serves.
    pub async fn ready(&self) -> Host {
        let host = self.start();
        host.logs("ready").await;
        host
    }

    /// Start it, and wait until it ends by itself.
    pub async fn end(&self) -> Ended {
        self.start().ended().await
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
>>>>>>> e2e
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

<<<<<<< HEAD
    /// Send it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        kill(Pid::from_raw(pid), signal).expect("it still runs");
    }

    /// Wait for its end.
    pub fn end(&mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it runs on:\n{}", self.stderr());
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        Ended {
            code: status.code().unwrap_or(-1),
            stdout: self.text("stdout"),
            stderr: self.stderr(),
        }
    }

    /// Ask it to stop, and wait for its end.
    pub fn stop(&mut self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.end()
    }

    /// End it at once (`SIGKILL`).
    pub fn kill(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("the log can be read")
    }

    fn path(&self) -> &Path {
        self.dir.path()
=======
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

    /// Wait until it logs this message.
    pub async fn logs(&self, message: &str) {
        self.logs_times(message, 1).await;
    }

    /// Wait until it has logged this message so often.
    pub async fn logs_times(&self, message: &str, times: usize) {
        let what = || format!("a host logs `{message}` {times} times:\n{}", self.tail());
        eventually_or(what, async || {
            self.count(|line| line.message().contains(message)) >= times
        })
        .await;
    }

    /// Wait until there were so many starts.
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
        let address = locked(&self.log)
            .iter()
            .find_map(|line| line.text("address").map(str::to_owned))
            .expect("the host has an admin server");
        let mut stream = TcpStream::connect(address).expect("the admin server listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: host\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.write_all(request.as_bytes()))
            .and_then(|()| stream.read_to_string(&mut answer))
            .expect("the admin server answers");
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status.expect("HTTP has a status"), body.to_owned())
    }

    /// The value of a series, as it stands in `/metrics`: `hostler_steals_total`.
    pub fn metric(&self, series: &str) -> u64 {
        let (_, text) = self.get("/metrics");
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
        // It is our child and nobody has waited for it: the id is not somebody else's.
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

    /// Tell it to stop (`SIGTERM`), and wait until it has.
    pub async fn drain(self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.ended().await
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
>>>>>>> e2e
    }
}

impl Drop for Host {
    fn drop(&mut self) {
<<<<<<< HEAD
        self.kill();
=======
        // It may have ended by itself; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Wait as [`eventually`] does; what to say of a failure is made when it is needed.
pub async fn eventually_or(what: impl Fn() -> String, mut condition: impl AsyncFnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !condition().await {
        let patient = begun.elapsed() < PATIENCE;
        assert!(patient, "never happened: {}", what());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
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
>>>>>>> e2e
    }
}
