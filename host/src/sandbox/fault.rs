//! Turns an error of wasmtime into the fault of an attempt.

use std::any::Any;

use wasmtime::component::ResourceTableError;
use wasmtime::{FrameSymbol, PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::limiter::{Denied, TooManyDescriptors};
use super::limits::Limits;
use super::program::{Failed, Unpublished};
use super::supervise::End;
use crate::delivery::outcome::{Fault, FaultKind};
use crate::delivery::signature::{BELOW, NUMBERED, NUMBERED_MAX};
use crate::delivery::text::{format_up_to, printable, truncate_utf8};

/// Function names in a fault's detail, innermost first.
const FRAMES_NAMED: usize = 4;

/// Function names in a backtrace.
const FRAMES_MAX: usize = 32;

/// Bytes of a function's name.
const NAME_MAX: usize = 96;

/// Bytes of the path of a source: its end.
const PATH_MAX: usize = 256;

/// The line above the functions of a backtrace, in the log of an attempt.
pub const BACKTRACE: &str = "wasm backtrace:";

/// Parts of the names of functions that only carry out a panic, and of the adapter of preview1, through which a
/// guest exits. They say nothing about its place.
const MACHINERY: [&str; 16] = [
    "std::sys::",
    "std::process::",
    "panicking::",
    "rust_panic",
    "rust_begin_unwind",
    "__rust_start_panic",
    "panic_abort",
    "unwrap_failed",
    "expect_failed",
    "slice_index_fail",
    "slice_error_fail",
    "handle_alloc_error",
    "__rust_abort",
    "__rust_end_short_backtrace",
    "runtime.runtimePanic",
    "wasi_snapshot_preview1",
];

/// A message of wasmtime, whose error type is private.
const TRANSFER_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";

/// As above, for more handles than [`Limits::handles`].
const HANDLES_EXHAUSTED: &str = "store handle limit exceeded";

/// The guest used up its CPU time. The epoch callback ends a call with this error.
#[derive(Debug, thiserror::Error)]
#[error("out of CPU time")]
pub(super) struct OutOfCpu;

/// The state of the call in which an error occurred.
pub(super) struct ErrorContext<'a> {
    pub(super) limits: &'a Limits,
    /// The last request for memory that the limiter denied during the call.
    pub(super) denied: Option<Denied>,
    /// Whether the instance was made. Before that, a fault does not count as an attempt.
    pub(super) instantiated: bool,
    /// Whether the text that the guest wrote about its failure names functions.
    pub(super) names_functions: bool,
}

impl ErrorContext<'_> {
    /// The value or the fault of an attempt that has ended.
    pub(super) fn conclude<T>(&self, end: End<T>) -> Result<T, Fault> {
        match end {
            End::Returned(Ok(value)) => Ok(value),
            End::Returned(Err(error)) => {
                let (kind, detail) = self.classify(&error);
                let detail = self.with_trace(kind, printable(&detail), &error);
                Err(self.build(kind, detail))
            }
            End::TimedOut => Err(self.build(
                FaultKind::WallTimeout,
                format!("no answer within {:?} (limit `timeout`)", self.limits.wall),
            )),
            End::Panicked(payload) => Err(host_panic(&*payload)),
        }
    }

    /// A fault of this kind; before the instance is made, it is an instantiation fault.
    fn build(&self, kind: FaultKind, detail: String) -> Fault {
        if self.instantiated {
            Fault::new(kind, detail)
        } else {
            let detail = match kind {
                FaultKind::Instantiation => detail,
                _ => format!("{}: {detail}", kind.label()),
            };
            Fault::new(FaultKind::Instantiation, detail)
        }
    }

    fn classify(&self, error: &wasmtime::Error) -> (FaultKind, String) {
        let limits = self.limits;
        if error.downcast_ref::<OutOfCpu>().is_some() {
            let detail = format!("ran for more than {:?} (limit `cpu`)", limits.cpu);
            return (FaultKind::CpuTimeout, detail);
        }
        if let Some(exit) = error.downcast_ref::<I32Exit>() {
            let detail = format!("exited with status {} instead of answering", exit.0);
            return (FaultKind::GuestExit, detail);
        }
        if let Some(failed) = error.downcast_ref::<Failed>() {
            return (FaultKind::GuestExit, failed.to_string());
        }
        match error.downcast_ref() {
            Some(Unpublished::TooLong) => {
                let detail = format!(
                    "wrote more than {} bytes to stdout, which is published (limit `publish.max_bytes`)",
                    limits.effects.bytes
                );
                return (FaultKind::OutputLimit, detail);
            }
            Some(refused @ (Unpublished::Refused { .. } | Unpublished::Unanswered(_))) => {
                return (FaultKind::BadOutcome, refused.to_string());
            }
            None => {}
        }
        if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
            return (FaultKind::Instantiation, error.to_string());
        }
        if let Some(many) = error.downcast_ref::<TooManyDescriptors>() {
            return (FaultKind::MemoryLimit, many.to_string());
        }
        if let Some(ResourceTableError::Full) = error.downcast_ref() {
            return (FaultKind::MemoryLimit, self.too_many_handles());
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::StackOverflow) => {
                let detail = format!(
                    "call stack of {} bytes exhausted (limit `stack`)",
                    limits.stack
                );
                return (FaultKind::StackOverflow, detail);
            }
            Some(trap) => {
                return match self.denied {
                    Some(denied) => (FaultKind::MemoryLimit, denied.describe(limits)),
                    None => (FaultKind::Trap, trap.to_string()),
                };
            }
            None => {}
        }
        let root = error.root_cause().to_string();
        if root.contains(TRANSFER_EXHAUSTED) {
            let detail = format!(
                "more than {} bytes handed to the host in one call (limit `transfer`)",
                limits.transfer
            );
            return (FaultKind::OutputLimit, detail);
        }
        if root.contains(HANDLES_EXHAUSTED) {
            return (FaultKind::MemoryLimit, self.too_many_handles());
        }
        if let (false, Some(denied)) = (self.instantiated, self.denied) {
            return (FaultKind::MemoryLimit, denied.describe(limits));
        }
        if error.downcast_ref::<WasmBacktrace>().is_some() {
            // An import returned an error to the guest.
            return (FaultKind::Trap, root);
        }
        if !self.instantiated {
            // Something that is counted before guest code runs.
            return (FaultKind::Instantiation, root);
        }
        // No guest code was running: the result does not have the type of the interface.
        (FaultKind::BadOutcome, root)
    }

    /// Append the innermost guest functions: without those that only carry out a panic, unless there are no
    /// others. If the guest gave up and named no functions of its own, those without names have numbers: nothing
    /// else distinguishes causes. A limit ends a guest at any place, and needs none.
    fn with_trace(&self, kind: FaultKind, mut detail: String, error: &wasmtime::Error) -> String {
        let Some(trace) = error.downcast_ref::<WasmBacktrace>() else {
            return detail;
        };
        let mut names: Vec<String> = named(trace).map(|(_, name)| name).collect();
        let place = names.iter().position(|name| !is_machinery(name));
        let mut most = FRAMES_NAMED;
        let gave_up = matches!(kind, FaultKind::Trap | FaultKind::GuestExit);
        if place.is_none() && self.instantiated && gave_up && !self.names_functions {
            let frames = trace.frames().iter();
            let nameless = frames.filter(|frame| frame.func_name().is_none());
            let numbers = nameless.map(|frame| format!("{NUMBERED}{}", frame.func_index()));
            let numbers: Vec<String> = numbers.take(NUMBERED_MAX).collect();
            if !numbers.is_empty() {
                (names, most) = (numbers, NUMBERED_MAX);
            }
        }
        let names = names.iter().skip(place.unwrap_or_default());
        for (position, name) in names.take(most).enumerate() {
            detail.push_str(if position == 0 { ", in " } else { BELOW });
            detail.push_str(name);
        }
        detail
    }

    fn too_many_handles(&self) -> String {
        format!(
            "more than {} resource handles (limit `handles`)",
            self.limits.handles
        )
    }
}

/// A fault of a guest that gave up, with its text about that on stderr in front: a trap alone says no more than
/// that it gave up.
pub(super) fn quoting(fault: Fault, told: Option<&str>) -> Fault {
    use FaultKind::{GuestExit, Instantiation, Trap};
    match told {
        Some(line) if matches!(fault.kind, Trap | GuestExit | Instantiation) => {
            Fault::new(fault.kind, format!("stderr: {line}; {}", fault.detail))
        }
        _ => fault,
    }
}

/// The fault of a panic in the host. It counts as an attempt even before the instance is made, so
/// that a message that always causes a panic is not retried for ever.
pub(crate) fn host_panic(payload: &(dyn Any + Send)) -> Fault {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Fault::new(FaultKind::HostPanic, text)
}

impl Denied {
    fn describe(self, limits: &Limits) -> String {
        match self {
            Self::Memory(requested) => format!(
                "requested {requested} bytes of linear memory, the limit is {} (limit `memory`)",
                limits.memory
            ),
            Self::Table(requested) => format!(
                "requested {requested} table elements, the limit is {} (limit `table_elements`)",
                limits.table_elements
            ),
        }
    }
}

/// The guest functions in which an error occurred, innermost first, one line each; `None` if the component
/// has no names. With the setting `lines`, also inlined functions, and where each one is in its source.
pub(super) fn backtrace(error: &wasmtime::Error) -> Option<String> {
    let trace = error.downcast_ref::<WasmBacktrace>()?;
    let frames = trace.frames().iter().enumerate();
    let lines = frames.flat_map(|(position, frame)| {
        let functions: Vec<String> = match frame.symbols() {
            [] => frame.func_name().map(shown).into_iter().collect(),
            [inlined @ .., own] => {
                let inlined = inlined.iter().map(|symbol| placed(symbol.name(), symbol));
                // DWARF may leave out the modules that its name has.
                let name = frame.func_name().or_else(|| own.name());
                inlined.chain([placed(name, own)]).collect()
            }
        };
        let functions = functions.into_iter();
        functions.map(move |function| format!("{position:>4}: {function}"))
    });
    let lines: Vec<String> = lines.take(FRAMES_MAX).collect();
    (!lines.is_empty()).then(|| format!("{BACKTRACE}\n{}", lines.join("\n")))
}

/// The frames with names, and their positions.
fn named(trace: &WasmBacktrace) -> impl Iterator<Item = (usize, String)> {
    let frames = trace.frames().iter().enumerate();
    let named = frames.filter_map(|(position, frame)| Some((position, shown(frame.func_name()?))));
    named.take(FRAMES_MAX)
}

/// The name of a function, demangled. The component chooses its names: they are escaped and bounded. A mangled name can
/// stand for a text thousands of times as long.
fn shown(name: &str) -> String {
    let name = rustc_demangle::demangle(name);
    let mut name = printable(&format_up_to(NAME_MAX, format_args!("{name:#}")));
    truncate_utf8(&mut name, NAME_MAX);
    name
}

/// A function, and its place in its source: `orders::price at /orders/src/lib.rs:12:5`.
fn placed(name: Option<&str>, symbol: &FrameSymbol) -> String {
    let mut text = name.map_or_else(|| "?".to_owned(), shown);
    if let Some(file) = symbol.file() {
        let start = file.ceil_char_boundary(file.len().saturating_sub(PATH_MAX));
        text.push_str(&format!(" at {}", printable(&file[start..])));
        for number in [symbol.line(), symbol.column()].into_iter().flatten() {
            text.push_str(&format!(":{number}"));
        }
    }
    text
}

/// Whether a function only carries out a panic, or ends the process.
fn is_machinery(name: &str) -> bool {
    matches!(name, "abort" | "raise" | "proc_exit")
        || MACHINERY.iter().any(|part| name.contains(part))
}
