//! The child's side: compiles or tries what its parent sends.
//!
//! Before it reads any byte of a component, it limits its time and memory, gives up its rights
//! ([`confine`]), and makes the kernel end it with its parent.

use std::any::Any;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hostler_components::describe;
use hostler_components::snapshot::{Snapshot, WithoutSnapshot, take};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{close, getppid};

use super::job::{Answer, ERROR_TEXT_SHOWN, Head, JOB_MAX, Job, Task};
use super::measure::Meters;
use super::{Artifact, compilable, confine, settings_for, trial};
use crate::delivery::text::truncate_utf8;
use crate::sandbox::engine;
use crate::sandbox::fault::host_panic;
use crate::sandbox::first_instance::required;
use crate::sandbox::limiter::Limiter;
use crate::sandbox::world;

/// The priority of a compiler in the background. It gets a quarter of a busy core: the running version
/// keeps most of its speed, and a large component still compiles within its time on busy cores (at
/// 19, a share of 1.5 %, none would).
const NICENESS: i32 = 5;

/// Do the job from `input` and write the answer to `output`. The limits that this sets remain until the
/// process ends.
///
/// # Errors
/// A pipe failed, or a limit could not be set.
pub fn serve(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    input.by_ref().take(JOB_MAX).read_until(b'\n', &mut line)?;
    let job: Job = serde_json::from_slice(&line)?;
    close_inherited()?;
    // No file can be opened later.
    let meters = Meters::open()?;
    restrict_self(&job)?;
    let unconfined = confine::confine().err().map(bounded);
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let (answer, bytes) = match job.task {
        Task::Compile => compile(&job, &bytes),
        Task::Snapshot => snapshot(&job, &bytes),
        Task::Try => (try_out(&job, bytes, meters), Vec::new()),
        #[cfg(feature = "fault-points")]
        Task::Probe => (Answer::Report(super::probe::report(job.parent)), Vec::new()),
    };
    let head = Head {
        answer,
        bytes: bytes.len() as u64,
        unconfined,
    };
    serde_json::to_writer(&mut output, &head)?;
    output.write_all(b"\n")?;
    output.write_all(&bytes)?;
    output.flush()
}

fn compile(job: &Job, bytes: &[u8]) -> (Answer, Vec<u8>) {
    let engine = match engine::compiler(&settings_for(job), job.allocation()) {
        Ok(engine) => engine,
        Err(error) => return (Answer::Engine(bounded(format!("{error:#}"))), Vec::new()),
    };
    let compile = || {
        let component = compilable(bytes, job.lines)?;
        Ok(engine.precompile_component(&component))
    };
    let answer = match catch_unwind(AssertUnwindSafe(compile)) {
        Ok(Err::<_, String>(detail)) => Answer::Invalid(bounded(detail)),
        Ok(Ok(Ok(code))) => return (Answer::Code, code),
        Ok(Ok(Err(error))) if is_out_of_memory(&error) => Answer::Memory,
        Ok(Ok(Err(error))) => Answer::Invalid(bounded(describe(&error))),
        Err(payload) => Answer::Panicked(bounded(message(&*payload))),
    };
    (answer, Vec::new())
}

fn snapshot(job: &Job, component: &[u8]) -> (Answer, Vec<u8>) {
    let without = match catch_unwind(AssertUnwindSafe(|| taken(job, component))) {
        Ok(Ok(snapshot)) => return (Answer::Snapshot(snapshot.instructions), snapshot.component),
        Ok(Err(WithoutSnapshot::Short)) => WithoutSnapshot::Short,
        Ok(Err(WithoutSnapshot::Refused(reason))) => WithoutSnapshot::Refused(bounded(reason)),
        Err(payload) => WithoutSnapshot::Refused(bounded(message(&*payload))),
    };
    (Answer::WithoutSnapshot(without), Vec::new())
}

fn taken(job: &Job, component: &[u8]) -> Result<Snapshot, WithoutSnapshot> {
    let limits = &job.limits;
    let config = engine::base(&settings_for(job), job.allocation())?;
    take(
        component,
        config,
        Limiter::new(limits),
        |engine, component| {
            if world::probe(engine, component).is_ok_and(|export| export.is_program()) {
                return Err("a program runs once in an instance".to_owned());
            }
            required(component, limits)
                .map(drop)
                .map_err(|error| error.to_string())
        },
    )
}

fn try_out(job: &Job, bytes: Vec<u8>, meters: Meters) -> Answer {
    match trial::run(job, &Artifact::whole(bytes), meters) {
        Ok(verdict) => Answer::Verdict(verdict),
        Err(error) if is_out_of_memory(&error) => Answer::Memory,
        Err(error) => Answer::Engine(bounded(format!("{error:#}"))),
    }
}

/// The message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    host_panic(payload).detail
}

fn bounded(mut text: String) -> String {
    truncate_utf8(&mut text, ERROR_TEXT_SHOWN);
    text
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

/// Close what an ancestor of the host left open, such as a lock of a shell. Only the pipes stay.
fn close_inherited() -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    for name in names.collect::<io::Result<Vec<_>>>()? {
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(number @ 3..) = number {
            match close::<RawFd>(number) {
                // It was that of the directory.
                Ok(()) | Err(Errno::EBADF) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Set the limits of this process and drop rights that it does not need.
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
    // A trial takes no longer than an attempt may, and its time counts against `timeout`.
    if job.background && matches!(job.task, Task::Compile | Task::Snapshot) {
        // Threads inherit the priority.
        rustix::process::nice(NICENESS)?;
    }
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_CPU, job.cpu_seconds)?;
    let memory = job.limits.compile_memory;
    match job.task {
        // An instance needs address space that it does not use, and files in memory for its images.
        Task::Try | Task::Snapshot => {
            let published = trial::published_max(&job.limits);
            limit(Resource::RLIMIT_FSIZE, published)?;
            limit(Resource::RLIMIT_DATA, memory.saturating_add(published))
        }
        _ => {
            limit(Resource::RLIMIT_FSIZE, 0)?;
            limit(Resource::RLIMIT_AS, memory)
        }
    }
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
