//! The compiler as a child process: both ends of its pipes.
//!
//! The parent writes a line of JSON, the [`Job`], then the component, and closes the pipe. Before the
//! child reads the component, it disables core dumps and writing files, limits its CPU time and
//! memory, and makes the kernel end it with its parent. The answer is one byte for its kind
//! ([`Answer`]), eight bytes for its length, and the text. An incomplete answer is discarded.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};

use super::{Artifact, COMMAND, compiler, invalid};
use crate::delivery::text::{printable, truncate_utf8};
use crate::sandbox::error::LoadError;
use crate::sandbox::limits::Limits;
use crate::sandbox::settings::{Allocation, Settings};

/// Bytes of the job.
const JOB_MAX: u64 = 4 << 10;

/// Bytes of an error text, in an answer or on stderr.
const ERROR_TEXT_MAX: u64 = 64 << 10;

/// Bytes of an error text that are shown.
const ERROR_TEXT_SHOWN: usize = 1 << 10;

/// The time between two checks whether a child with closed pipes has ended.
const END_POLL: Duration = Duration::from_millis(2);

/// The priority of a compiler in the background. It gets a quarter of a busy core: the running version
/// keeps most of its speed, and a large component still compiles within its time on busy cores (at
/// 19, a share of 1.5 %, none would).
const NICENESS: i32 = 5;

/// The message of Rust's standard library before it aborts because memory is exhausted.
const OUT_OF_MEMORY: &str = "memory allocation of ";

/// The settings and limits of a compilation.
#[derive(Debug, Deserialize, Serialize)]
struct Job {
    /// The process id of the parent.
    parent: i32,
    /// Bytes of address space.
    address_space: u64,
    /// Seconds of CPU time of all threads.
    cpu_seconds: u64,
    on_demand: bool,
    memory: usize,
    stack: usize,
    /// Compile at a low priority.
    #[serde(default)]
    background: bool,
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    /// The text is the code.
    Code = b'c' as isize,
    /// The component is invalid; the text is the reason.
    Invalid = b'i' as isize,
    /// The memory limit was reached; the text is empty.
    Memory = b'm' as isize,
    /// The compiler could not be made; the text is the reason.
    Engine = b'e' as isize,
}

impl Answer {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Code, Self::Invalid, Self::Memory, Self::Engine]
            .into_iter()
            .find(|answer| *answer as u8 == byte)
    }
}

/// Compile in a child process.
pub(super) fn compile(
    program: &Path,
    bytes: &[u8],
    settings: &Settings,
    allocation: Allocation,
    code_max: u64,
) -> Result<Artifact, LoadError> {
    let limits = &settings.limits;
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let job = Job {
        parent: nix::unistd::getpid().as_raw(),
        address_space: limits.compile_memory,
        // The deadline below comes first; this ends a child whose parent is stopped.
        cpu_seconds: limits
            .compile_time
            .as_secs()
            .saturating_add(1)
            .saturating_mul(cores),
        on_demand: allocation == Allocation::OnDemand,
        memory: limits.memory,
        stack: limits.stack,
        background: settings.background,
    };
    let mut line = serde_json::to_vec(&job).map_err(|error| start_error(&error))?;
    line.push(b'\n');
    let deadline = Instant::now() + limits.compile_time;
    let mut child = Command::new(program)
        .arg0("hostler")
        .arg(COMMAND)
        // Variables may hold passwords.
        .env_clear()
        // The limit counts address space, and each arena of glibc reserves much.
        .env("MALLOC_ARENA_MAX", "2")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| start_error(&format_args!("{}: {error}", program.display())))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
        unreachable!("all three were asked for");
    };
    thread::scope(|scope| {
        // A write error is ignored: the answer or the exit status of the child counts.
        scope.spawn(move || {
            drop(stdin.write_all(&line).and_then(|()| stdin.write_all(bytes)));
        });
        let stderr_text = scope.spawn(move || {
            let mut text = Vec::new();
            drop(stderr.take(ERROR_TEXT_MAX).read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        let (answered, answer) = mpsc::sync_channel(1);
        scope.spawn(move || {
            // Fails after the deadline.
            drop(answered.send(read_answer(stdout, code_max)));
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
        let timeout = || LoadError::CompileTime {
            limit: limits.compile_time,
        };
        match answer {
            Err(_) => Err(timeout()),
            Ok(Ok(full)) => full.conclude(limits),
            Ok(Err(NoAnswer::TooLarge)) => Err(LoadError::CodeTooLarge { limit: code_max }),
            Ok(Err(NoAnswer::Cut)) => {
                let stderr_text = stderr_text.join().unwrap_or_default();
                match status {
                    None => Err(timeout()),
                    Some(status) => Err(exit_error(status, &stderr_text, limits)),
                }
            }
        }
    })
}

fn start_error(error: &dyn std::fmt::Display) -> LoadError {
    LoadError::Engine {
        detail: format!("the compiler did not start: {error}"),
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
}

fn read_answer(mut stdout: impl Read, code_max: u64) -> Result<FullAnswer, NoAnswer> {
    let mut head = [0; 9];
    stdout.read_exact(&mut head).map_err(|_| NoAnswer::Cut)?;
    let [tag, length @ ..] = head;
    let answer = Answer::from_byte(tag).ok_or(NoAnswer::Cut)?;
    let length = u64::from_be_bytes(length);
    let max = match answer {
        Answer::Code => code_max,
        Answer::Invalid | Answer::Memory | Answer::Engine => ERROR_TEXT_MAX,
    };
    if length > max {
        return Err(NoAnswer::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| NoAnswer::TooLarge)?;
    let mut text = vec![0; length];
    stdout.read_exact(&mut text).map_err(|_| NoAnswer::Cut)?;
    Ok(FullAnswer { answer, text })
}

impl FullAnswer {
    fn conclude(self, limits: &Limits) -> Result<Artifact, LoadError> {
        let detail = || {
            let mut detail = printable(&String::from_utf8_lossy(&self.text));
            truncate_utf8(&mut detail, ERROR_TEXT_SHOWN);
            detail
        };
        match self.answer {
            Answer::Code => Ok(Artifact::whole(self.text)),
            Answer::Invalid => Err(LoadError::Invalid { detail: detail() }),
            Answer::Engine => Err(LoadError::Engine { detail: detail() }),
            Answer::Memory => Err(LoadError::CompileMemory {
                limit: limits.compile_memory,
            }),
        }
    }
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

/// The error of a child that ended without an answer.
fn exit_error(status: ExitStatus, stderr_text: &str, limits: &Limits) -> LoadError {
    const SIGXCPU: i32 = nix::libc::SIGXCPU;
    if status.signal() == Some(SIGXCPU) {
        return LoadError::CompileTime {
            limit: limits.compile_time,
        };
    }
    if stderr_text.contains(OUT_OF_MEMORY) {
        return LoadError::CompileMemory {
            limit: limits.compile_memory,
        };
    }
    let last = stderr_text.lines().rfind(|line| !line.trim().is_empty());
    let mut detail = printable(&format!("{status}: {}", last.unwrap_or("no message")));
    truncate_utf8(&mut detail, ERROR_TEXT_SHOWN);
    LoadError::CompilerCrashed { detail }
}

/// The child's side: compile the job from `input` and write the answer to `output`. The limits that
/// this sets remain until the process ends.
///
/// # Errors
/// A pipe failed, or a limit could not be set.
pub fn serve(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    input.by_ref().take(JOB_MAX).read_until(b'\n', &mut line)?;
    let job: Job = serde_json::from_slice(&line)?;
    restrict_self(&job)?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let allocation = match job.on_demand {
        true => Allocation::OnDemand,
        false => Allocation::Auto,
    };
    let (answer, text) = match compiler(job.memory, job.stack, allocation) {
        Ok(engine) => match engine.precompile_component(&bytes) {
            Ok(code) => (Answer::Code, code),
            Err(error) if is_out_of_memory(&error) => (Answer::Memory, Vec::new()),
            Err(error) => {
                let LoadError::Invalid { detail } = invalid(error) else {
                    unreachable!("`invalid` makes only this error");
                };
                (Answer::Invalid, bounded(detail))
            }
        },
        Err(error) => (Answer::Engine, bounded(format!("{error:#}"))),
    };
    output.write_all(&[answer as u8])?;
    output.write_all(&(text.len() as u64).to_be_bytes())?;
    output.write_all(&text)?;
    output.flush()
}

fn bounded(mut text: String) -> Vec<u8> {
    truncate_utf8(&mut text, ERROR_TEXT_SHOWN);
    text.into_bytes()
}

/// Whether wasmtime could not map memory. Unlike an allocation, this does not abort the process.
fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory)
            || cause.to_string().contains("Cannot allocate memory")
    })
}

/// Set the limits of this process and drop rights that compiling does not need.
fn restrict_self(job: &Job) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::prctl;
        prctl::set_no_new_privs()?;
        prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    }
    if getppid().as_raw() != job.parent {
        return Err(io::Error::other("the parent has ended"));
    }
    if job.background {
        // Threads inherit the priority.
        rustix::process::nice(NICENESS)?;
    }
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_FSIZE, 0)?;
    limit(Resource::RLIMIT_CPU, job.cpu_seconds)?;
    limit(Resource::RLIMIT_AS, job.address_space)
}

/// Set a limit to `most`, or to the current hard limit if that is lower.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    let most = most.min(hard);
    // The kernel sends SIGXCPU at the soft limit of CPU time, and SIGKILL at the hard limit.
    let hard = match resource {
        Resource::RLIMIT_CPU => most.saturating_add(1).min(hard),
        _ => most,
    };
    Ok(setrlimit(resource, most, hard)?)
}
