//! What a start may call while a snapshot is made.
//!
//! It may read its environment, which is empty, and a clock that stands still. It may open the standard
//! streams, but not use or close them. If its component resumes, it may also read random bytes and the time of
//! day. Any other call ends the start: its result could differ in each instance, or be a secret.

use std::sync::Arc;
use std::time::SystemTime;

use hostler_core::delivery::text::printable;
use wasmtime::component::{
    Component, ComponentNamedList, ComponentType, Linker, LinkerInstance, Lower, Resource,
    ResourceType,
};
use wasmtime::{ResourceLimiter, StoreContextMut, bail};

/// How the reason of a refusal begins.
const REFUSED: &str = "its start";

/// The most random bytes of one call.
const RANDOM_MAX: u64 = 64 << 10;

/// The most standard streams that a start opens.
const STREAMS_MAX: usize = 16;

/// The data of a store.
pub(super) struct Start {
    pub(super) limiter: Box<dyn ResourceLimiter + Send + Sync>,
    streams: Vec<Opened>,
}

/// A standard stream that the start has opened.
pub(super) struct Opened {
    /// The interface, as the component imports it.
    pub(super) interface: Arc<str>,
    pub(super) function: &'static str,
}

impl Start {
    pub(super) fn new(limiter: Box<dyn ResourceLimiter + Send + Sync>) -> Self {
        Self {
            limiter,
            streams: Vec::new(),
        }
    }

    /// The standard streams that the start has opened, in this order.
    pub(super) fn streams(&self) -> &[Opened] {
        &self.streams
    }
}

/// Define what a start may call. Any other call ends it.
pub(super) fn link(
    linker: &mut Linker<Start>,
    component: &Component,
    resumes: bool,
) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    for (name, _) in component.component_type().imports(&engine) {
        let interface = name
            .split_once('@')
            .map_or(name, |(interface, _)| interface);
        let define: Define = match interface {
            "wasi:cli/environment" => |i| {
                constant(i, "get-environment", Vec::<(String, String)>::new)?;
                constant(i, "get-arguments", Vec::<String>::new)?;
                constant(i, "initial-cwd", || None::<String>)
            },
            "wasi:filesystem/preopens" => {
                |i| constant(i, "get-directories", Vec::<(Resource<()>, String)>::new)
            }
            "wasi:cli/stdin" => |i| stream(i, "get-stdin"),
            "wasi:cli/stdout" => |i| stream(i, "get-stdout"),
            "wasi:cli/stderr" => |i| stream(i, "get-stderr"),
            "wasi:cli/terminal-stdin" => |i| terminal(i, "get-terminal-stdin"),
            "wasi:cli/terminal-stdout" => |i| terminal(i, "get-terminal-stdout"),
            "wasi:cli/terminal-stderr" => |i| terminal(i, "get-terminal-stderr"),
            "wasi:io/streams" => |i| {
                handle(i, "input-stream")?;
                handle(i, "output-stream")
            },
            // The clock of an instance begins with it, so an instance reads a later time.
            "wasi:clocks/monotonic-clock" => |i| {
                constant(i, "now", || 1_u64)?;
                constant(i, "resolution", || 1_u64)
            },
            "wasi:clocks/wall-clock" if resumes => |i| {
                constant(i, "now", Datetime::now)?;
                constant(i, "resolution", || Datetime {
                    seconds: 0,
                    nanoseconds: 1,
                })
            },
            "wasi:random/random" if resumes => |i| {
                i.linked.func_wrap("get-random-bytes", random_bytes)?;
                i.linked.func_wrap("get-random-u64", random_u64)
            },
            "wasi:random/insecure" if resumes => |i| {
                (i.linked).func_wrap("get-insecure-random-bytes", random_bytes)?;
                i.linked.func_wrap("get-insecure-random-u64", random_u64)
            },
            "wasi:random/insecure-seed" if resumes => |i| {
                let seed = |_: StoreContextMut<'_, Start>, ()| Ok(((random()?, random()?),));
                i.linked.func_wrap("insecure-seed", seed)
            },
            _ => continue,
        };
        define(&mut Interface {
            name,
            linked: linker.instance(name)?,
        })?;
    }
    linker.define_unknown_imports_as_traps(component)
}

/// An interface that the component imports.
struct Interface<'a> {
    name: &'a str,
    linked: LinkerInstance<'a, Start>,
}

/// Defines the items of an interface.
type Define = fn(&mut Interface<'_>) -> wasmtime::Result<()>;

/// A function that gives a stream, in the same way in each instance.
fn stream(interface: &mut Interface<'_>, function: &'static str) -> wasmtime::Result<()> {
    let name: Arc<str> = interface.name.into();
    interface.linked.func_wrap(
        function,
        move |mut store: StoreContextMut<'_, Start>, ()| {
            let streams = &mut store.data_mut().streams;
            if streams.len() == STREAMS_MAX {
                bail!("{REFUSED} opens more than {STREAMS_MAX} streams");
            }
            streams.push(Opened {
                interface: Arc::clone(&name),
                function,
            });
            Ok((Resource::<()>::new_own(0),))
        },
    )
}

/// A function that says whether a stream is a terminal: none is.
fn terminal(interface: &mut Interface<'_>, function: &str) -> wasmtime::Result<()> {
    constant(interface, function, || None::<Resource<()>>)
}

/// A resource of which no handle may be closed: the next handle would have its number.
fn handle(interface: &mut Interface<'_>, name: &str) -> wasmtime::Result<()> {
    let ty = ResourceType::host::<()>();
    interface
        .linked
        .resource(name, ty, |_, _| bail!("{REFUSED} closes a stream"))
}

fn constant<T>(
    interface: &mut Interface<'_>,
    function: &str,
    value: fn() -> T,
) -> wasmtime::Result<()>
where
    T: Lower + 'static,
    (T,): ComponentNamedList + Lower,
{
    interface
        .linked
        .func_wrap(function, move |_: StoreContextMut<'_, Start>, ()| {
            Ok((value(),))
        })
}

fn random_bytes(_: StoreContextMut<'_, Start>, (length,): (u64,)) -> wasmtime::Result<(Vec<u8>,)> {
    if length > RANDOM_MAX {
        bail!("{REFUSED} asks for {length} random bytes");
    }
    let mut bytes = vec![0; usize::try_from(length)?];
    getrandom::fill(&mut bytes).map_err(wasmtime::Error::msg)?;
    Ok((bytes,))
}

fn random_u64(_: StoreContextMut<'_, Start>, (): ()) -> wasmtime::Result<(u64,)> {
    Ok((random()?,))
}

fn random() -> wasmtime::Result<u64> {
    getrandom::u64().map_err(wasmtime::Error::msg)
}

/// `wall-clock.datetime`.
#[derive(ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl Datetime {
    fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let since = since.unwrap_or_default();
        Self {
            seconds: since.as_secs(),
            nanoseconds: since.subsec_nanos(),
        }
    }
}

/// Why a start was ended.
pub(super) fn refusal(error: &wasmtime::Error) -> String {
    let cause = printable(&error.root_cause().to_string());
    // From `define_unknown_imports_as_traps`.
    let call = cause
        .strip_prefix("unknown import: `")
        .and_then(|rest| rest.split_once('`'));
    match call {
        Some((function, _)) => format!("its start calls {function}"),
        None if cause.starts_with(REFUSED) => cause,
        None => format!("its start failed: {cause}"),
    }
}
