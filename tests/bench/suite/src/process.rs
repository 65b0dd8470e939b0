//! A child process: it ends with the suite, and the kernel counts what it costs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Outcome, fail};

/// How long a process may take to end after it was asked to.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(2);

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    cpus: Option<String>,
}

impl Program {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            arguments: Vec::new(),
            cpus: None,
        }
    }

    /// Arguments in one text, separated by blanks.
    pub fn words(mut self, words: &str) -> Self {
        self.arguments
            .extend(words.split_whitespace().map(str::to_owned));
        self
    }

    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub fn path(self, path: &Path) -> Self {
        self.arg(path.display().to_string())
    }

    /// Run it on these cores only, in the words of `taskset`.
    pub fn on(mut self, cpus: &str) -> Self {
        self.cpus = Some(cpus.to_owned());
        self
    }

    /// Start it. It writes into files of this folder.
    ///
    /// The kernel kills it when the thread that started it ends, so nothing stays behind if the suite is killed.
    pub fn start(&self, folder: &Path) -> Outcome<Process> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(cpus) = &self.cpus {
            command.args(["taskset", "--cpu-list", cpus]);
        }
        let folder = tempfile::Builder::new().tempdir_in(folder)?.keep();
        command.arg(&self.path).args(&self.arguments);
        command.stdin(Stdio::null());
        command.stdout(File::create(folder.join("stdout"))?);
        command.stderr(File::create(folder.join("stderr"))?);
        let child = command.spawn()?;
        Ok(Process {
            name: self.path.display().to_string(),
            child,
            folder,
        })
    }

    /// Run it to its end, and return what it printed.
    pub fn run(&self, folder: &Path, within: Duration) -> Outcome<String> {
        self.start(folder)?.end(within)
    }
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    folder: PathBuf,
}

impl Process {
    /// Ask it to end (SIGTERM), and return what it printed.
    pub fn stop(self) -> Outcome<String> {
        kill_process(self.pid()?, Signal::TERM)?;
        self.end(ENDS_WITHIN)
    }

    /// Wait for its end, and return what it printed.
    pub fn end(mut self, within: Duration) -> Outcome<String> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(fs::read_to_string(self.folder.join("stdout"))?);
                }
                return fail(format!("{}: {status}\n{}", self.name, self.complaint()));
            }
            if began.elapsed() > within {
                return fail(format!(
                    "{} takes too long\n{}",
                    self.name,
                    self.complaint()
                ));
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Fail if it has ended already.
    pub fn check(&mut self) -> Outcome<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => fail(format!("{}: {status}\n{}", self.name, self.complaint())),
        }
    }

    /// Seconds of CPU time of each kind of thread, by the names of the threads.
    pub fn cpu_by_thread(&self) -> Outcome<BTreeMap<String, f64>> {
        let mut found = BTreeMap::new();
        for task in fs::read_dir(self.proc("task"))? {
            let task = task?.path();
            // A thread that has ended meanwhile has no files.
            let read = |file| fs::read_to_string(task.join(file)).ok();
            let (Some(name), Some(ran)) = (read("comm"), read("schedstat")) else {
                continue;
            };
            let ran: f64 = ran.split(' ').next().unwrap_or_default().parse()?;
            *found.entry(name.trim().to_owned()).or_default() += ran / 1e9;
        }
        Ok(found)
    }

    /// Seconds of CPU time of the threads that run now.
    pub fn cpu(&self) -> Outcome<f64> {
        Ok(self.cpu_by_thread()?.values().sum())
    }

    /// The memory that it has now (`VmRSS`), or at its peak (`VmHWM`), in bytes.
    pub fn memory(&self, field: &str) -> Outcome<f64> {
        let status = fs::read_to_string(self.proc("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|rest| rest.split_whitespace().next());
        Ok(kib.ok_or("no memory in its status")?.parse::<f64>()? * 1024.0)
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.child.id()))
    }

    fn pid(&self) -> Outcome<Pid> {
        Ok(i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or("no process id")?)
    }

    /// The end of what it wrote to stderr.
    fn complaint(&self) -> String {
        let text = fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has ended.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}
