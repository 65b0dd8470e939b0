//! What an error of wasmtime means: the fault of an attempt.

use std::any::Any;

use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::limiter::Denied;
use super::limits::Limits;
use crate::delivery::outcome::{Fault, FaultKind};
use crate::delivery::text::{printable, truncate_utf8};

/// Functions named in a fault's detail, innermost first.
const FRAMES_NAMED: usize = 4;

/// Bytes of a function's name in a fault's detail.
const NAME_MAX: usize = 96;

/// wasmtime says this with an error type that it does not export.
const TRANSFER_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";

/// As above: more live handles than [`Limits::handles`].
const HANDLES_EXHAUSTED: &str = "store handle limit exceeded";

/// The guest ran out of its CPU time: what our epoch callback ends a call with.
#[derive(Debug, thiserror::Error)]
#[error("out of CPU time")]
pub(super) struct OutOfCpu;

/// What happened around an error.
pub(super) struct Circumstances<'a> {
    pub(super) limits: &'a Limits,
    /// What the instance was denied during the call.
    pub(super) denied: Option<Denied>,
    /// Whether there was an instance yet. Without one nothing counts as an attempt.
    pub(super) instantiated: bool,
}

impl Circumstances<'_> {
    /// The fault that ended a call with this error.
    pub(super) fn fault(&self, error: &wasmtime::Error) -> Fault {
        let (kind, detail) = self.classify(error);
        self.placed(kind, with_trace(printable(&detail), error))
    }

    /// The fault of an attempt that took too long.
    pub(super) fn wall_timeout(&self) -> Fault {
        self.placed(
            FaultKind::WallTimeout,
            format!("no answer within {:?} (limit `timeout`)", self.limits.wall),
        )
    }

    /// What fails before there is an instance is no attempt, whatever it was.
    fn placed(&self, kind: FaultKind, detail: String) -> Fault {
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
        if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
            return (FaultKind::Instantiation, error.to_string());
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
            // An import refused what the guest asked for.
            return (FaultKind::Trap, root);
        }
        // No guest code was running: the call's values themselves were not what the type says.
        (FaultKind::BadOutcome, root)
    }

    fn too_many_handles(&self) -> String {
        format!(
            "more than {} resource handles (limit `handles`)",
            self.limits.handles
        )
    }
}

/// The fault of a panic of our own. Charged even while there is no instance: what panics must
/// not be tried for ever.
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
            Self::Memory { wanted } => format!(
                "wanted {wanted} bytes of linear memory, may have {} (limit `memory`)",
                limits.memory
            ),
            Self::Table { wanted } => format!(
                "wanted {wanted} table elements, may have {} (limit `table_elements`)",
                limits.table_elements
            ),
        }
    }
}

/// Say where in the guest it happened, if the component has names.
fn with_trace(mut detail: String, error: &wasmtime::Error) -> String {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else {
        return detail;
    };
    let names = trace
        .frames()
        .iter()
        .filter_map(|frame| frame.func_name())
        .take(FRAMES_NAMED);
    for (position, name) in names.enumerate() {
        // Names come from the component: no control characters, and bounded.
        let mut name = printable(&format!("{:#}", rustc_demangle::demangle(name)));
        truncate_utf8(&mut name, NAME_MAX);
        detail.push_str(if position == 0 { ", in " } else { " < " });
        detail.push_str(&name);
    }
    detail
}
