//! The hosts of a run: started, killed, stopped, drained and replaced; their logs are read as they grow.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};

use anyhow::{Context, Result};
use hostler_tests::host::{HostOptions, get};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::history::{Drain, Exit, Fault, FaultKind};
use crate::witness::{Log, Witness};

/// A host.
#[derive(Debug)]
pub struct Process {
    /// Its number: no two hosts of a run have the same.
    pub number: u16,
    /// Whether it runs the other version.
    pub is_old: bool,
    child: Child,
    log: Log,
    stdout: PathBuf,
    stderr: PathBuf,
    told_ms: Option<u64>,
}

impl Process {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.pid()) {
            // It is our child, and it was not waited for: no other process has the id.
            kill(Pid::from_raw(pid), signal).unwrap_or_default();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// All hosts of a run.
#[derive(Debug)]
pub struct Fleet {
    /// Those that serve.
    pub hosts: Vec<Process>,
    leaving: Vec<Process>,
    /// What guests have said.
    pub witness: Witness,
    /// The hosts that got a signal to stop, and have stopped.
    pub drains: Vec<Drain>,
    /// The hosts that ended by themselves.
    pub exits: Vec<Exit>,
    /// Messages that hosts acknowledged, as those said that ended in peace.
    pub acked: u64,
    /// Whether all hosts so far ended in peace.
    pub in_peace: bool,
    started: u16,
    dir: PathBuf,
    begun_ms: i64,
    skew_ms: i64,
    secret: String,
    keep_logs: bool,
}

impl Fleet {
    /// No host yet. Logs are in that directory; those of hosts that are gone are removed, unless they are kept.
    #[must_use]
    pub fn new(dir: &Path, begun_ms: i64, skew_ms: i64, secret: &str, keep_logs: bool) -> Self {
        Self {
            hosts: Vec::new(),
            leaving: Vec::new(),
            witness: Witness::default(),
            drains: Vec::new(),
            exits: Vec::new(),
            acked: 0,
            in_peace: true,
            started: 0,
            dir: dir.to_owned(),
            begun_ms,
            skew_ms,
            secret: secret.to_owned(),
            keep_logs,
        }
    }

    /// How many hosts there have been.
    #[must_use]
    pub fn started(&self) -> u16 {
        self.started
    }

    /// Start a host.
    ///
    /// # Errors
    /// Its log cannot be written.
    pub fn start(&mut self, options: &HostOptions, is_old: bool) -> Result<()> {
        let number = self.started;
        self.started += 1;
        let stdout = self.dir.join(format!("host-{number}.json"));
        let stderr = self.dir.join(format!("host-{number}.log"));
        let (out, err) = (File::create(&stdout)?, File::create(&stderr)?);
        let log = Log::new(&stderr, number, -self.skew_ms)?;
        let child = options.start_with(out, err);
        self.hosts.push(Process {
            number,
            is_old,
            child,
            log,
            stdout,
            stderr,
            told_ms: None,
        });
        Ok(())
    }

    /// Whether all hosts that serve have said that they are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.hosts.iter().all(|host| host.log.is_ready)
    }

    /// Whether work goes on if one of them is killed: enough others are ready.
    #[must_use]
    pub fn can_lose_one(&self) -> bool {
        let ready = self.hosts.iter().filter(|host| host.log.is_ready).count();
        ready >= self.hosts.len().min(2)
    }

    /// Kill a host. Returns its number.
    ///
    /// # Errors
    /// Its log cannot be read.
    pub fn kill(&mut self, place: usize) -> Result<u16> {
        let mut host = self.hosts.swap_remove(place);
        host.child.kill().context("a host can be killed")?;
        host.child.wait()?;
        self.in_peace = false;
        self.bury(host)
    }

    /// Signal a host to stop. Returns its number.
    pub fn drain(&mut self, place: usize, now_ms: u64) -> u16 {
        let mut host = self.hosts.swap_remove(place);
        host.signal(Signal::SIGTERM);
        host.told_ms = Some(now_ms);
        let number = host.number;
        self.leaving.push(host);
        number
    }

    /// Whether a host that got a signal to stop still runs.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Those that serve, and those that got a signal to stop and have not stopped yet.
    pub fn all(&self) -> impl Iterator<Item = &Process> {
        self.hosts.iter().chain(&self.leaving)
    }

    /// Stop a host from running, or let it run again.
    pub fn stand_still(&self, number: u16, stands: bool) {
        let signal = if stands {
            Signal::SIGSTOP
        } else {
            Signal::SIGCONT
        };
        for host in self.all().filter(|host| host.number == number) {
            host.signal(signal);
        }
    }

    /// Read what is new, and see who has ended. Returns how many hosts ended by themselves, with their faults.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn look(&mut self, now_ms: u64, longest_ms: u64) -> Result<Vec<Fault>> {
        let mut died = Vec::new();
        for host in self.hosts.iter_mut().chain(&mut self.leaving) {
            host.log
                .read(&mut self.witness, self.begun_ms, &self.secret)?;
        }
        let mut place = 0;
        while let Some(host) = self.hosts.get_mut(place) {
            let Some(status) = host.child.try_wait()? else {
                place += 1;
                continue;
            };
            let host = self.hosts.swap_remove(place);
            let number = self.bury(host)?;
            died.push(self.exited(number, &status, now_ms));
        }
        let mut place = 0;
        while let Some(host) = self.leaving.get_mut(place) {
            let at_ms = host.told_ms.unwrap_or(now_ms);
            let mut status = host.child.try_wait()?;
            if status.is_none() && now_ms > at_ms + longest_ms {
                host.child.kill()?;
                status = Some(host.child.wait()?);
            }
            let Some(status) = status else {
                place += 1;
                continue;
            };
            let host = self.leaving.swap_remove(place);
            if status.signal() == Some(Signal::SIGABRT as i32) {
                // A message has killed it while it stopped.
                let number = self.bury(host)?;
                died.push(self.exited(number, &status, now_ms));
                continue;
            }
            match status.code() {
                Some(0) => self.acked += acked(&host.stdout).unwrap_or(0),
                _ => self.in_peace = false,
            }
            let code = status.code();
            let unstarted = status.signal() == Some(Signal::SIGTERM as i32)
                && std::fs::metadata(&host.stderr)?.len() == 0;
            let host = self.bury(host)?;
            self.drains.push(Drain {
                host,
                at_ms,
                ended_ms: now_ms,
                code,
                unstarted,
            });
            if code != Some(0) {
                died.push(Fault {
                    at_ms,
                    until_ms: now_ms,
                    kind: FaultKind::DrainTimeout,
                    host: Some(host),
                    forgets_ms: 0,
                });
            }
        }
        Ok(died)
    }

    /// Note that a host has ended by itself.
    fn exited(&mut self, number: u16, status: &ExitStatus, now_ms: u64) -> Fault {
        self.in_peace = false;
        self.exits.push(Exit {
            host: number,
            at_ms: now_ms,
            how: status.to_string(),
            aborted: status.signal() == Some(Signal::SIGABRT as i32),
            code: status.code(),
        });
        Fault {
            at_ms: now_ms.saturating_sub(200),
            until_ms: now_ms,
            kind: FaultKind::HostDies,
            host: Some(number),
            forgets_ms: 0,
        }
    }

    /// What there is to read of a host that has ended.
    fn bury(&mut self, mut host: Process) -> Result<u16> {
        host.log
            .read(&mut self.witness, self.begun_ms, &self.secret)?;
        if std::fs::read_to_string(&host.stdout)?.contains(&self.secret) {
            self.witness
                .leaks
                .push(format!("the summary of host {}", host.number));
        }
        if !self.keep_logs {
            std::fs::remove_file(&host.stderr)?;
        }
        Ok(host.number)
    }

    /// The memory of each host that serves, in KiB, and its file descriptors. Looks for the secret in its command
    /// line as well.
    pub fn sample(&mut self) -> Vec<(u16, u64, u64)> {
        let mut found = Vec::new();
        for host in &self.hosts {
            let proc = PathBuf::from(format!("/proc/{}", host.pid()));
            let Some(rss) = rss_kib(host.pid()) else {
                continue;
            };
            let fds =
                std::fs::read_dir(proc.join("fd")).map_or(0, |entries| entries.count() as u64);
            found.push((host.number, rss, fds));
            let line = std::fs::read(proc.join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains(&self.secret) {
                let place = format!("the command line of host {}", host.number);
                self.witness.leaks.push(place);
            }
        }
        found
    }

    /// Look for the secret in what admin servers say.
    pub fn ask_admin(&mut self) {
        for host in &self.hosts {
            let Some(address) = &host.log.admin else {
                continue;
            };
            for path in ["/metrics", "/status", "/ready"] {
                let said = get(address, path).map(|(_, body)| body).unwrap_or_default();
                if said.contains(&self.secret) {
                    let place = format!("{path} of host {}", host.number);
                    self.witness.leaks.push(place);
                }
            }
        }
    }
}

/// The memory of a process, in KiB.
#[must_use]
pub fn rss_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How long the threads of processes have waited for a CPU.
#[derive(Debug, Default)]
pub struct Waits {
    /// By thread: the nanoseconds in all.
    threads: HashMap<u32, u64>,
}

impl Waits {
    /// The longest time that a thread of this process has waited since it was looked at last, in milliseconds.
    pub fn longest_ms(&mut self, pid: u32) -> u64 {
        let mut longest = 0;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            return 0;
        };
        for thread in threads.flatten() {
            let path = thread.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let id = name.and_then(|name| name.parse::<u32>().ok());
            // The second number: nanoseconds in a queue of the scheduler.
            let stat = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            let waited = stat.split_whitespace().nth(1);
            let waited = waited.and_then(|waited| waited.parse::<u64>().ok());
            if let (Some(id), Some(waited)) = (id, waited) {
                let before = self.threads.insert(id, waited).unwrap_or(waited);
                longest = longest.max(waited.saturating_sub(before) / 1_000_000);
            }
        }
        longest
    }
}

fn acked(summary: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(summary).ok()?;
    let json: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
    json.get("acked")?.as_u64()
}
