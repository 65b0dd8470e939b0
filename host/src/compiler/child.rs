//! The parent's side of the child process that compiles and tries components.
//!
//! An incomplete answer is discarded. A child that takes too long is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hostler_components::snapshot::{Snapshot, WithoutSnapshot};

use super::job::{Answer, ERROR_TEXT_MAX, ERROR_TEXT_SHOWN, Head, Job, Task, Verdict};
use super::{Artifact, COMMAND, Tried};
use crate::delivery::outcome::{Fault, FaultKind};
use crate::delivery::text::{printable, truncate_utf8};
use crate::sandbox::error::LoadError;
use crate::sandbox::settings::{Allocation, Settings};

/// The time between two checks whether a child with closed pipes has ended.
const END_POLL: Duration = Duration::from_millis(2);

/// The message of Rust's standard library before it aborts because memory is exhausted.
const OUT_OF_MEMORY: &str = "memory allocation of ";

/// The program and settings of the children.
#[derive(Clone, Copy)]
pub(super) struct Children<'a> {
    pub(super) program: &'a Path,
    pub(super) settings: &'a Settings,
    pub(super) allocation: Allocation,
}

impl Children<'_> {
    /// Compile in a child process.
    pub(super) fn compile(self, bytes: &[u8], code_max: u64) -> Result<Artifact, LoadError> {
        let (answer, code) = match self.ask(Task::Compile, bytes, code_max) {
            Ok(answered) => answered,
            Err(failed) => {
                let limits = &self.settings.limits;
                return Err(match failed {
                    Failed::Load(error) => error,
                    Failed::Late => LoadError::CompileTime(limits.compile_time),
                    Failed::TooLarge => LoadError::CodeTooLarge(code_max),
                    Failed::Memory => LoadError::CompileMemory(limits.compile_memory),
                    Failed::Crashed(detail) => LoadError::CompilerCrashed(detail),
                });
            }
        };
        Err(match answer {
            Answer::Code => return Ok(Artifact::whole(code)),
            Answer::Invalid(detail) => LoadError::Invalid(shown(&detail)),
            Answer::Engine(detail) => LoadError::Engine(shown(&detail)),
            Answer::Panicked(detail) => LoadError::CompilerPanicked(shown(&detail)),
            _ => unexpected(),
        })
    }

    /// Run the start of the component in a child process.
    ///
    /// # Errors
    /// The child made no snapshot. The error says why. The caller then compiles the component itself.
    pub(super) fn snapshot(self, component: &[u8]) -> Result<Snapshot, WithoutSnapshot> {
        let limits = &self.settings.limits;
        let max = (component.len() as u64).saturating_add(limits.memory as u64);
        let (time, memory) = (limits.compile_time, limits.compile_memory);
        let refused = match self.ask(Task::Snapshot, component, max) {
            Ok((Answer::Snapshot(instructions), component)) => {
                return Ok(Snapshot {
                    component,
                    instructions,
                });
            }
            Ok((Answer::WithoutSnapshot(WithoutSnapshot::Refused(reason)), _)) => shown(&reason),
            Ok((Answer::WithoutSnapshot(short), _)) => return Err(short),
            Ok(_) => unexpected().to_string(),
            Err(Failed::Load(error)) => error.to_string(),
            Err(Failed::Late) => format!("it takes longer than {time:?} (limit `compile_time`)"),
            Err(Failed::TooLarge) => format!("it has more than {max} bytes"),
            Err(Failed::Memory) => {
                format!("it takes more than {memory} bytes (limit `compile_memory`)")
            }
            Err(Failed::Crashed(detail)) => format!("its process ended: {detail}"),
        };
        Err(WithoutSnapshot::Refused(refused))
    }

    /// Make one instance of the code in a child process, and measure what it takes.
    pub(super) fn try_out(self, artifact: &Artifact) -> Result<Tried, LoadError> {
        let limits = &self.settings.limits;
        let fails = |kind, detail| LoadError::Start(Fault::new(kind, detail));
        let verdict = match self.ask(Task::Try, artifact.code(), 0) {
            Ok((Answer::Verdict(verdict), _)) => verdict,
            Ok((Answer::Engine(detail), _)) => return Err(LoadError::Engine(shown(&detail))),
            Ok(_) | Err(Failed::TooLarge) => return Err(unexpected()),
            Err(Failed::Load(error)) => return Err(error),
            Err(Failed::Memory) => {
                return Err(LoadError::InstanceTooLarge(format!(
                    "making one takes more than {} bytes of memory (limit `compile_memory`)",
                    limits.compile_memory
                )));
            }
            Err(Failed::Late) => {
                let limit = limits.compile_time;
                let detail = format!("no instance within {limit:?} (limit `compile_time`)");
                return Err(fails(FaultKind::Instantiation, detail));
            }
            Err(Failed::Crashed(detail)) => return Err(LoadError::TrialCrashed(detail)),
        };
        match verdict {
            Verdict::TooLarge(detail) => Err(LoadError::InstanceTooLarge(shown(&detail))),
            Verdict::Fails { panicked, detail } => {
                let kind = match panicked {
                    true => FaultKind::HostPanic,
                    false => FaultKind::Instantiation,
                };
                Err(fails(kind, printable(&detail)))
            }
            Verdict::Good(taken) => {
                tracing::debug!(?taken, "tried an instance");
                Ok(Tried::Good)
            }
            Verdict::NoPool(reason) => Ok(Tried::NoPool(shown(&reason))),
            Verdict::Untried(reason) => Ok(Tried::Untried(shown(&reason))),
        }
    }

    /// Give a child this task and input. At most `bytes_max` bytes follow the head of an answer.
    fn ask(self, task: Task, input: &[u8], bytes_max: u64) -> Result<(Answer, Vec<u8>), Failed> {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
        let job = Job::new(task, self.settings, self.allocation, cores);
        let mut line = serde_json::to_vec(&job).map_err(|error| start_error(&error))?;
        line.push(b'\n');
        let deadline = Instant::now() + self.settings.limits.compile_time;
        let mut command = Command::new(self.program);
        command
            .arg0("hostler")
            .arg(COMMAND)
            // Variables may hold passwords.
            .env_clear()
            // The child cannot read how many cores it may use.
            .env("RAYON_NUM_THREADS", cores.to_string());
        match task {
            // The limit counts address space, and each arena of glibc reserves much.
            Task::Compile | Task::Snapshot => command.env("MALLOC_ARENA_MAX", "2"),
            // Freed memory that a trial uses again would not be measured.
            _ => command
                .env("MALLOC_ARENA_MAX", "1")
                .env("MALLOC_MMAP_THRESHOLD_", "131072")
                .env("MALLOC_TRIM_THRESHOLD_", "131072"),
        };
        let mut child = command
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| start_error(&format_args!("{}: {error}", self.program.display())))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            unreachable!("all three were asked for");
        };
        thread::scope(|scope| {
            // A write error is ignored: the answer or the exit status of the child counts.
            scope.spawn(move || {
                drop(stdin.write_all(&line).and_then(|()| stdin.write_all(input)));
            });
            let stderr_text = scope.spawn(move || {
                let mut text = Vec::new();
                drop(stderr.take(ERROR_TEXT_MAX).read_to_end(&mut text));
                String::from_utf8_lossy(&text).into_owned()
            });
            let (answered, answer) = mpsc::sync_channel(1);
            scope.spawn(move || {
                // Fails after the deadline.
                drop(answered.send(read_answer(stdout, bytes_max)));
            });
            let answer = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let status = match &answer {
                // Without a whole answer, the exit status says why.
                Ok(Err(NoAnswer::Cut)) => wait_for_exit(&mut child, deadline),
                _ => None,
            };
            // The child is not needed any more. Fails if it has ended.
            drop(child.kill());
            drop(child.wait());
            match answer {
                Err(_) => Err(Failed::Late),
                Ok(Ok((head, bytes))) => {
                    if let Some(reason) = &head.unconfined {
                        tracing::warn!(
                            reason = shown(reason),
                            "the process that compiles keeps the rights of this user: it is not confined"
                        );
                    }
                    match head.answer {
                        Answer::Memory => Err(Failed::Memory),
                        answer => Ok((answer, bytes)),
                    }
                }
                Ok(Err(NoAnswer::TooLarge)) => Err(Failed::TooLarge),
                Ok(Err(NoAnswer::Cut)) => {
                    let stderr_text = stderr_text.join().unwrap_or_default();
                    Err(status.map_or(Failed::Late, |status| ended(status, &stderr_text)))
                }
            }
        })
    }
}

/// Why there is no answer of a child.
enum Failed {
    Load(LoadError),
    /// It took longer than `compile_time`.
    Late,
    /// The answer is longer than allowed.
    TooLarge,
    /// Its memory was exhausted.
    Memory,
    /// It ended; the text is the exit status and the last line of its stderr.
    Crashed(String),
}

fn start_error(error: &dyn std::fmt::Display) -> Failed {
    Failed::Load(LoadError::Engine(format!(
        "the compiler did not start: {error}"
    )))
}

fn unexpected() -> LoadError {
    LoadError::Engine("the compiler gave an answer that this program does not know".to_owned())
}

/// A missing answer.
enum NoAnswer {
    /// The child ended before the answer was complete.
    Cut,
    /// The answer is larger than allowed.
    TooLarge,
}

fn shown(text: &str) -> String {
    let mut detail = printable(text);
    truncate_utf8(&mut detail, ERROR_TEXT_SHOWN);
    detail
}

fn read_answer(stdout: impl Read, bytes_max: u64) -> Result<(Head, Vec<u8>), NoAnswer> {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    let mut first = stdout.by_ref().take(ERROR_TEXT_MAX);
    first
        .read_until(b'\n', &mut line)
        .map_err(|_| NoAnswer::Cut)?;
    let head: Head = serde_json::from_slice(&line).map_err(|_| NoAnswer::Cut)?;
    if head.bytes > bytes_max {
        return Err(NoAnswer::TooLarge);
    }
    let length = usize::try_from(head.bytes).map_err(|_| NoAnswer::TooLarge)?;
    let mut bytes = vec![0; length];
    stdout.read_exact(&mut bytes).map_err(|_| NoAnswer::Cut)?;
    Ok((head, bytes))
}

/// Wait until a child with closed pipes ends. `None` = not before the deadline.
fn wait_for_exit(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(END_POLL),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Why a child ended without an answer.
fn ended(status: ExitStatus, stderr_text: &str) -> Failed {
    const SIGXCPU: i32 = nix::libc::SIGXCPU;
    if status.signal() == Some(SIGXCPU) {
        return Failed::Late;
    }
    if stderr_text.contains(OUT_OF_MEMORY) {
        return Failed::Memory;
    }
    let last = stderr_text.lines().rfind(|line| !line.trim().is_empty());
    let detail = format!("{status}: {}", last.unwrap_or("no message"));
    Failed::Crashed(shown(&detail))
}
