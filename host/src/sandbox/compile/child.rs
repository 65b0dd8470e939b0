//! The compiler as a child process: both ends of its pipes.
//!
//! The parent writes a line of JSON, the [`Job`], then the component, and closes. The child binds
//! itself before it looks at the component: it loses its core dumps, its files, and whatever is
//! beyond its share of time and memory; it dies with its parent. It answers with one byte that
//! says what follows ([`Answer`]), eight that say how many bytes, and these. An answer that is not
//! all there is none, however the child ended.

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

/// Bytes of the job: a line of JSON.
const JOB_MAX: u64 = 4 << 10;

/// Bytes of a complaint, in an answer or on stderr.
const COMPLAINT_MAX: u64 = 64 << 10;

/// Bytes of a complaint that people get to see.
const COMPLAINT_SHOWN: usize = 1 << 10;

/// How often a child that has closed its pipes is asked whether it has ended.
const END_POLL: Duration = Duration::from_millis(2);

/// How much a compiler in the background leaves to others: of a core that both want, the kernel gives
/// it a quarter. So the version that runs keeps most of its pace, and where it takes all cores there
/// are, a large component still compiles within its time (at 19, a share of 1.5 %, none would).
const NICENESS: i32 = 5;

/// What Rust's standard library says before it gives up for want of memory.
const OUT_OF_MEMORY: &str = "memory allocation of ";

/// What is to be compiled, and within what.
#[derive(Debug, Deserialize, Serialize)]
struct Job {
    /// The parent, as a process id: the child does not outlive it.
    parent: i32,
    /// Bytes of address space.
    address_space: u64,
    /// Seconds of CPU time, all threads together.
    cpu_seconds: u64,
    on_demand: bool,
    memory: usize,
    stack: usize,
    /// Others come first.
    #[serde(default)]
    background: bool,
}

/// What a child has to say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    /// The code follows.
    Code = b'c' as isize,
    /// The component is at fault; what follows says why.
    Invalid = b'i' as isize,
    /// The memory did not suffice.
    Memory = b'm' as isize,
    /// The compiler could not be made; what follows says why.
    Engine = b'e' as isize,
}

impl Answer {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Code, Self::Invalid, Self::Memory, Self::Engine]
            .into_iter()
            .find(|answer| *answer as u8 == byte)
    }
}

/// Compile in a child.
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
        // The wall is what counts; this ends a child whose parent sleeps.
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
    let mut line = serde_json::to_vec(&job).map_err(|error| cannot(&error))?;
    line.push(b'\n');
    let deadline = Instant::now() + limits.compile_time;
    let mut child = Command::new(program)
        .arg0("hostler")
        .arg(COMMAND)
        // Nothing of ours is its business: variables hold passwords.
        .env_clear()
        // The memory limit is one of address space, of which glibc is wasteful.
        .env("MALLOC_ARENA_MAX", "2")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot(&format_args!("{}: {error}", program.display())))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
        unreachable!("all three were asked for");
    };
    thread::scope(|scope| {
        // A child that has ended reads no more: what it says, or that it says nothing, counts.
        scope.spawn(move || {
            drop(stdin.write_all(&line).and_then(|()| stdin.write_all(bytes)));
        });
        let complaint = scope.spawn(move || {
            let mut text = Vec::new();
            drop(stderr.take(COMPLAINT_MAX).read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        let (answered, answer) = mpsc::sync_channel(1);
        scope.spawn(move || {
            // Nobody listens any more: the time is over.
            drop(answered.send(read_answer(stdout, code_max)));
        });
        let answer = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let status = match &answer {
            // No whole answer: how it ended says why.
            Ok(Err(Unanswered::Cut)) => ended(&mut child, deadline),
            _ => None,
        };
        // It has nothing more to do, whatever it does. Fails if it has ended.
        drop(child.kill());
        drop(child.wait());
        let timeout = || LoadError::CompileTime {
            limit: limits.compile_time,
        };
        match answer {
            Err(_) => Err(timeout()),
            Ok(Ok(said)) => said.conclude(limits),
            Ok(Err(Unanswered::TooLarge)) => Err(LoadError::CodeTooLarge { limit: code_max }),
            Ok(Err(Unanswered::Cut)) => {
                let complaint = complaint.join().unwrap_or_default();
                match status {
                    None => Err(timeout()),
                    Some(status) => Err(died(status, &complaint, limits)),
                }
            }
        }
    })
}

fn cannot(error: &dyn std::fmt::Display) -> LoadError {
    LoadError::Engine {
        detail: format!("the compiler did not start: {error}"),
    }
}

/// Why there is no answer.
enum Unanswered {
    /// The child ended in the middle of it.
    Cut,
    /// It has more to say than there is room for.
    TooLarge,
}

/// A whole answer.
struct Said {
    answer: Answer,
    text: Vec<u8>,
}

fn read_answer(mut stdout: impl Read, code_max: u64) -> Result<Said, Unanswered> {
    let mut head = [0; 9];
    stdout.read_exact(&mut head).map_err(|_| Unanswered::Cut)?;
    let [tag, length @ ..] = head;
    let answer = Answer::from_byte(tag).ok_or(Unanswered::Cut)?;
    let length = u64::from_be_bytes(length);
    let max = match answer {
        Answer::Code => code_max,
        Answer::Invalid | Answer::Memory | Answer::Engine => COMPLAINT_MAX,
    };
    if length > max {
        return Err(Unanswered::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| Unanswered::TooLarge)?;
    let mut text = vec![0; length];
    stdout.read_exact(&mut text).map_err(|_| Unanswered::Cut)?;
    Ok(Said { answer, text })
}

impl Said {
    fn conclude(self, limits: &Limits) -> Result<Artifact, LoadError> {
        let detail = || {
            let mut detail = printable(&String::from_utf8_lossy(&self.text));
            truncate_utf8(&mut detail, COMPLAINT_SHOWN);
            detail
        };
        match self.answer {
            Answer::Code => {
                let all = 0..self.text.len();
                Ok(Artifact::new(self.text, all).expect("all of it is a part of it"))
            }
            Answer::Invalid => Err(LoadError::Invalid { detail: detail() }),
            Answer::Engine => Err(LoadError::Engine { detail: detail() }),
            Answer::Memory => Err(LoadError::CompileMemory {
                limit: limits.compile_memory,
            }),
        }
    }
}

/// Wait for the end of a child that has closed its pipes.
fn ended(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(END_POLL),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Why a child ended without an answer.
fn died(status: ExitStatus, complaint: &str, limits: &Limits) -> LoadError {
    const SIGXCPU: i32 = nix::libc::SIGXCPU;
    if status.signal() == Some(SIGXCPU) {
        return LoadError::CompileTime {
            limit: limits.compile_time,
        };
    }
    if complaint.contains(OUT_OF_MEMORY) {
        return LoadError::CompileMemory {
            limit: limits.compile_memory,
        };
    }
    let last = complaint.lines().rfind(|line| !line.trim().is_empty());
    let mut detail = printable(&format!("{status}: {}", last.unwrap_or("it said nothing")));
    truncate_utf8(&mut detail, COMPLAINT_SHOWN);
    LoadError::CompilerCrashed { detail }
}

/// The child's end: compile what `input` holds, and write the answer to `output`.
///
/// Binds this process for good: nothing else can be done in it.
///
/// # Errors
///
/// The pipes, or the limits that could not be set.
pub fn serve(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    input.by_ref().take(JOB_MAX).read_until(b'\n', &mut line)?;
    let job: Job = serde_json::from_slice(&line)?;
    bind(&job)?;
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
                    unreachable!("that is what it makes");
                };
                (Answer::Invalid, complaint(detail))
            }
        },
        Err(error) => (Answer::Engine, complaint(format!("{error:#}"))),
    };
    output.write_all(&[answer as u8])?;
    output.write_all(&(text.len() as u64).to_be_bytes())?;
    output.write_all(&text)?;
    output.flush()
}

fn complaint(mut text: String) -> Vec<u8> {
    truncate_utf8(&mut text, COMPLAINT_SHOWN);
    text.into_bytes()
}

/// Memory that wasmtime maps itself is refused with an error, not by ending the process.
fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory)
            || cause.to_string().contains("Cannot allocate memory")
    })
}

/// Give up what compiling does not need.
fn bind(job: &Job) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::prctl;
        prctl::set_no_new_privs()?;
        prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    }
    if getppid().as_raw() != job.parent {
        return Err(io::Error::other("the parent is gone"));
    }
    if job.background {
        // All threads that it starts are as nice.
        rustix::process::nice(NICENESS)?;
    }
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_FSIZE, 0)?;
    limit(Resource::RLIMIT_CPU, job.cpu_seconds)?;
    limit(Resource::RLIMIT_AS, job.address_space)
}

/// No more than this, and no more than there was before.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    let most = most.min(hard);
    // At the soft limit of CPU time comes a signal that can be told from others, at the hard one
    // a kill.
    let hard = match resource {
        Resource::RLIMIT_CPU => most.saturating_add(1).min(hard),
        _ => most,
    };
    Ok(setrlimit(resource, most, hard)?)
}
