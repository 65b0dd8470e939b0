//! The parent's side of the child process that compiles and tries components.
//!
//! An incomplete answer is discarded. A child that takes too long is killed.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::job::{Answer, ERROR_TEXT_MAX, ERROR_TEXT_SHOWN, Job, Task, Verdict, WithoutSnapshot};
use super::snapshot::Snapshot;
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
        let full = match self.ask(Task::Compile, bytes, code_max) {
            Ok(full) => full,
            Err(Failed::Load(error)) => return Err(error),
            Err(Failed::Late) => {
                return Err(LoadError::CompileTime {
                    limit: self.settings.limits.compile_time,
                });
            }
            Err(Failed::TooLarge) => return Err(LoadError::CodeTooLarge { limit: code_max }),
            Err(Failed::Memory) => return Err(self.compile_memory()),
            Err(Failed::Crashed(detail)) => return Err(LoadError::CompilerCrashed { detail }),
        };
        let detail = full.shown();
        match full.answer {
            Answer::Code => Ok(Artifact::whole(full.text)),
            Answer::Invalid => Err(LoadError::Invalid { detail }),
            Answer::Engine => Err(LoadError::Engine { detail }),
            Answer::Memory => Err(self.compile_memory()),
            Answer::Panicked => Err(LoadError::CompilerPanicked { detail }),
            Answer::Verdict | Answer::Snapshot | Answer::WithoutSnapshot | Answer::Unconfined => {
                Err(unexpected())
            }
        }
    }

    /// Run the start of the component in a child process.
    ///
    /// # Errors
    /// The child made no snapshot. The error says why. The caller then compiles the component itself.
    pub(super) fn snapshot(self, component: &[u8]) -> Result<Snapshot, WithoutSnapshot> {
        let limits = &self.settings.limits;
        let max = (component.len() as u64).saturating_add(limits.memory as u64);
        let refused = |reason: String| Err(WithoutSnapshot::Refused(reason));
        let full = match self.ask(Task::Snapshot, component, max) {
            Ok(full) => full,
            Err(Failed::Load(error)) => return refused(error.to_string()),
            Err(Failed::Late) => {
                let limit = limits.compile_time;
                return refused(format!(
                    "it takes longer than {limit:?} (limit `compile_time`)"
                ));
            }
            Err(Failed::TooLarge) => return refused(format!("it has more than {max} bytes")),
            Err(Failed::Memory) => {
                let limit = limits.compile_memory;
                return refused(format!(
                    "it takes more than {limit} bytes (limit `compile_memory`)"
                ));
            }
            Err(Failed::Crashed(detail)) => return refused(format!("its process ended: {detail}")),
        };
        let unknown = || refused(unexpected().to_string());
        match full.answer {
            Answer::Snapshot => {
                let Some((instructions, _)) = full.text.split_first_chunk() else {
                    return unknown();
                };
                let instructions = u64::from_be_bytes(*instructions);
                let mut component = full.text;
                component.drain(..size_of::<u64>());
                Ok(Snapshot {
                    component,
                    instructions,
                })
            }
            Answer::WithoutSnapshot => match serde_json::from_slice(&full.text) {
                Ok(WithoutSnapshot::Refused(reason)) => refused(shown(&reason)),
                Ok(short) => Err(short),
                Err(_) => unknown(),
            },
            _ => unknown(),
        }
    }

    fn compile_memory(self) -> LoadError {
        LoadError::CompileMemory {
            limit: self.settings.limits.compile_memory,
        }
    }

    /// Make one instance of the code in a child process, and measure what it takes.
    pub(super) fn try_out(self, artifact: &Artifact) -> Result<Tried, LoadError> {
        let limits = &self.settings.limits;
        let too_much = || LoadError::InstanceTooLarge {
            detail: format!(
                "making one takes more than {} bytes of memory (limit `compile_memory`)",
                limits.compile_memory
            ),
        };
        let fails = |kind, detail| LoadError::Start(Fault::new(kind, detail));
        let full = match self.ask(Task::Try, artifact.code(), ERROR_TEXT_MAX) {
            Ok(full) => full,
            Err(Failed::Load(error)) => return Err(error),
            Err(Failed::Memory) => return Err(too_much()),
            Err(Failed::Late) => {
                let limit = limits.compile_time;
                let detail = format!("no instance within {limit:?} (limit `compile_time`)");
                return Err(fails(FaultKind::Instantiation, detail));
            }
            Err(Failed::TooLarge) => return Err(unexpected()),
            Err(Failed::Crashed(detail)) => return Err(LoadError::TrialCrashed { detail }),
        };
        match full.answer {
            Answer::Memory => Err(too_much()),
            Answer::Engine => Err(LoadError::Engine {
                detail: full.shown(),
            }),
            Answer::Verdict => match serde_json::from_slice(&full.text) {
                Ok(Verdict::TooLarge(detail)) => Err(LoadError::InstanceTooLarge {
                    detail: shown(&detail),
                }),
                Ok(Verdict::Fails { panicked, detail }) => {
                    let kind = match panicked {
                        true => FaultKind::HostPanic,
                        false => FaultKind::Instantiation,
                    };
                    Err(fails(kind, printable(&detail)))
                }
                Ok(Verdict::Good(taken)) => {
                    tracing::debug!(?taken, "tried an instance");
                    Ok(Tried::Good)
                }
                Ok(Verdict::NoPool(reason)) => Ok(Tried::NoPool(shown(&reason))),
                Ok(Verdict::Untried(reason)) => Ok(Tried::Untried(shown(&reason))),
                Err(_) => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    /// Give a child this task and input. An answer has at most `answer_max` bytes.
    fn ask(self, task: Task, input: &[u8], answer_max: u64) -> Result<FullAnswer, Failed> {
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
                drop(answered.send(read_answer(stdout, answer_max)));
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
                Ok(Ok(full)) => {
                    if let Some(reason) = &full.note {
                        tracing::warn!(
                            reason,
                            "the process that compiles keeps the rights of this user: it is not confined"
                        );
                    }
                    Ok(full)
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
    Failed::Load(LoadError::Engine {
        detail: format!("the compiler did not start: {error}"),
    })
}

fn unexpected() -> LoadError {
    LoadError::Engine {
        detail: "the compiler gave an answer that this program does not know".to_owned(),
    }
}

/// A missing answer.
enum NoAnswer {
    /// The child ended before the answer was complete.
    Cut,
    /// The answer is larger than allowed.
    TooLarge,
}

/// A complete answer.
struct FullAnswer {
    answer: Answer,
    text: Vec<u8>,
    /// Why the child could not be confined.
    note: Option<String>,
}

impl FullAnswer {
    /// The text, for people; empty if it is code.
    fn shown(&self) -> String {
        match self.answer {
            Answer::Code | Answer::Snapshot => String::new(),
            _ => shown(&String::from_utf8_lossy(&self.text)),
        }
    }
}

fn shown(text: &str) -> String {
    let mut detail = printable(text);
    truncate_utf8(&mut detail, ERROR_TEXT_SHOWN);
    detail
}

fn read_answer(mut stdout: impl Read, code_max: u64) -> Result<FullAnswer, NoAnswer> {
    let first = read_part(&mut stdout, code_max)?;
    if first.answer != Answer::Unconfined {
        return Ok(first);
    }
    let note = Some(first.shown());
    Ok(FullAnswer {
        note,
        ..read_part(&mut stdout, code_max)?
    })
}

fn read_part(stdout: &mut impl Read, code_max: u64) -> Result<FullAnswer, NoAnswer> {
    let mut head = [0; 9];
    stdout.read_exact(&mut head).map_err(|_| NoAnswer::Cut)?;
    let [tag, length @ ..] = head;
    let answer = Answer::from_byte(tag).ok_or(NoAnswer::Cut)?;
    let length = u64::from_be_bytes(length);
    let max = match answer {
        Answer::Code | Answer::Snapshot => code_max,
        _ => ERROR_TEXT_MAX,
    };
    if length > max {
        return Err(NoAnswer::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| NoAnswer::TooLarge)?;
    let mut text = vec![0; length];
    stdout.read_exact(&mut text).map_err(|_| NoAnswer::Cut)?;
    Ok(FullAnswer {
        answer,
        text,
        note: None,
    })
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
