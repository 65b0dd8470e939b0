//! The built binary: commands that end, and hosts that run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::host::{binary, cache_home};
use crate::redis::{PATIENCE, pause_after};

/// The binary with these arguments, in an environment of its own: no variable of hostler's.
pub fn hostler<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(arguments: I) -> Command {
    let mut command = Command::new(binary());
    command.arg0("hostler").args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HOSTLER_") {
            command.env_remove(name);
        }
    }
    command
        .env("NO_COLOR", "1")
        .env_remove("RUST_BACKTRACE")
        .env("XDG_CACHE_HOME", cache_home());
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

/// Run a command line, whose words have no spaces in them, to its end.
pub fn run_line(line: &str) -> Ended {
    run(line.split_whitespace())
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

/// Run a prepared command to its end. Returns how it ended, and the peak of its resident memory in bytes.
pub fn measured(command: &mut Command) -> (ExitStatus, u64) {
    let mut child = command.spawn().expect("the binary can be started");
    let path = format!("/proc/{}/status", child.id());
    let began = Instant::now();
    let mut most = 0;
    loop {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) << 10);
        if let Some(ended) = child.try_wait().expect("it is a child") {
            return (ended, most);
        }
        assert!(began.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The same command where no network is, not even that of this machine; or why this process may not do that.
pub fn without_network(command: &Command) -> Result<Command, String> {
    let flags: &[&str] = match geteuid().is_root() {
        true => &["--net"],
        false => &["--net", "--map-root-user"],
    };
    let unshare = |program: &OsStr| {
        let mut command = Command::new("unshare");
        command.args(flags).arg(program).stdin(Stdio::null());
        command
    };
    let tried = unshare("true".as_ref()).output();
    let tried = tried.map_err(|error| format!("unshare: {error}"))?;
    if !tried.status.success() {
        return Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned());
    }
    let mut inside = unshare(command.get_program());
    inside.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    Ok(inside)
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

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        self.text("stdout")
    }

    /// Wait until its stderr holds this text `times` times.
    pub fn says(&mut self, text: &str, times: usize) {
        self.wait_for(text, |host| host.stderr().matches(text).count() >= times);
    }

    /// Wait until its stdout holds this text `times` times.
    pub fn prints(&mut self, text: &str, times: usize) {
        self.wait_for(text, |host| host.stdout().matches(text).count() >= times);
    }

    fn wait_for(&mut self, what: &str, is_there: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            // Before the look: then all that it wrote before its end is seen.
            let ended = self.child.try_wait().expect("it can be asked").is_some();
            if is_there(self) {
                return;
            }
            assert!(
                !ended && begun.elapsed() < PATIENCE,
                "`{what}` never came:\n{}\n{}",
                self.stdout(),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
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
            let look = Instant::now();
            let ended = self.child.try_wait().expect("it can be asked").is_some();
            if let Some(event) = self.events().into_iter().find(&is_it) {
                return event;
            }
            assert!(
                !ended && begun.elapsed() < PATIENCE,
                "`{what}` was not logged:\n{}",
                self.stderr()
            );
            std::thread::sleep(pause_after(look.elapsed()));
        }
    }

    /// Wait until it has read from its queue.
    pub fn until_ready(&mut self) {
        self.event("ready");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

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
            std::thread::sleep(Duration::from_millis(5));
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
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}
