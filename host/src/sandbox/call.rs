//! One attempt: a message goes in, an outcome comes out, within the limits.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep, sleep_until};
use wasmtime::{PoolConcurrencyLimitError, Store, StoreContextMut, UpdateDeadline};

use super::Loaded;
use super::error::LoadError;
use super::fault::{Circumstances, OutOfCpu, host_panic};
use super::host::{Attempt, Host};
use super::log::LogSink;
use super::meter::Meter;
use super::world::{Handle, Headers, MessageParam};
use crate::delivery::message::{Message, TRACEPARENT, TRACESTATE};
use crate::delivery::outcome::{Fault, Outcome};

/// How long to wait for room in the pool before looking again. Only more slots than
/// `Settings::concurrency` make anybody wait.
const POOL_RETRY: Duration = Duration::from_millis(1);

/// How long the calls of a slot may keep a thread from other slots, one call after the other.
const TURN: Duration = Duration::from_millis(1);

/// What an attempt is about.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The message.
    pub message: &'a Message,
    /// Which start this is, 1-based.
    pub attempt: u32,
    /// After how many starts the message is given up; 0 = never.
    pub max_attempts: u32,
    /// Set when the host stops and would like an answer soon: what `delivery.is-cancelled` says.
    pub cancelled: &'a Arc<AtomicBool>,
    /// Where the lines go that the guest writes.
    pub logs: &'a LogSink,
}

/// What became of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// What it produced.
    pub outcome: Outcome,
    /// How long it took, making the instance included.
    pub duration: Duration,
    /// Bytes of linear memory that the instance had in the end, which is the most it ever had.
    pub memory_bytes: usize,
    /// Whether an instance was made for it (else one was reused).
    pub fresh: bool,
    /// Bytes of its stdout and stderr that were dropped, as over the limits.
    pub log_bytes_dropped: u64,
}

/// One executor slot's part of the sandbox: runs one call at a time, and keeps the instance that
/// the next call reuses.
#[derive(Default)]
pub struct Slot {
    live: Option<Live>,
    meter: Arc<Meter>,
    /// How long it may have kept its thread from other slots.
    kept: Duration,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("served", &self.live.as_ref().map_or(0, |live| live.served))
            .finish_non_exhaustive()
    }
}

/// An instance, being made or made.
struct Live {
    store: Store<Host>,
    handle: Option<Handle>,
    /// Messages it has answered.
    served: u32,
    /// Which handler it is an instance of: a swap must not reuse the old one's.
    generation: u64,
}

impl Live {
    fn new(loaded: &Loaded, meter: &Arc<Meter>, attempt: Attempt) -> Self {
        let limits = &loaded.shared.limits;
        let mut store = Store::new(&loaded.engine, Host::new(&loaded.shared, meter, attempt));
        store.limiter(|host| &mut host.limiter);
        store.epoch_deadline_callback(on_tick);
        store.set_hostcall_fuel(limits.transfer);
        store.set_max_component_handles(limits.handles);
        Self {
            store,
            handle: None,
            served: 0,
            generation: loaded.generation,
        }
    }

    /// The handler's function, of an instance that is made now if there is none yet.
    async fn handle(&mut self, loaded: &Loaded) -> wasmtime::Result<Handle> {
        if let Some(handle) = self.handle {
            return Ok(handle);
        }
        let instance = loop {
            match loaded.pre.instantiate_async(&mut self.store).await {
                Err(error) if error.is::<PoolConcurrencyLimitError>() => sleep(POOL_RETRY).await,
                made => break made?,
            }
        };
        let handle = loaded.export.function(&mut self.store, &instance)?;
        self.handle = Some(handle);
        Ok(handle)
    }
}

/// A tick found the guest running: end it if it is out of CPU time, else let others run.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of an epoch callback"
)]
fn on_tick(store: StoreContextMut<'_, Host>) -> wasmtime::Result<UpdateDeadline> {
    let host = store.data();
    if host.meter.tick() >= host.cpu_limit() {
        return Err(OutOfCpu.into());
    }
    // tokio's own yield lets the runtime look at timers and sockets before it polls us again.
    Ok(UpdateDeadline::YieldCustom(
        1,
        Box::pin(tokio::task::yield_now()),
    ))
}

/// How an attempt's future ended.
enum End<T> {
    Returned(wasmtime::Result<T>),
    TimedOut,
    Panicked(Box<dyn Any + Send>),
}

impl Loaded {
    /// Make one instance and throw it away: what can't start is found before the first message.
    pub(super) async fn trial(&self) -> Result<(), LoadError> {
        let meter = Arc::new(Meter::default());
        let deadline = Instant::now() + self.shared.limits.wall;
        let mut live = Live::new(self, &meter, Attempt::trial(deadline));
        live.store.set_epoch_deadline(1);
        let making = self.pre.instantiate_async(&mut live.store);
        let end = supervise(making, &meter, deadline).await;
        live.store.data_mut().finish();
        let instance = self.conclude(end, &live).map_err(LoadError::Start)?;
        self.export
            .function(&mut live.store, &instance)
            .map_err(|error| LoadError::WrongType {
                export: self.export.name(),
                detail: format!("{error:#}"),
            })?;
        drop_caught(live).map_err(|payload| LoadError::Start(host_panic(&*payload)))
    }

    pub(super) async fn call(&self, slot: &mut Slot, call: Call<'_>) -> Report {
        // Calls that never wait would keep their thread for as long as there are messages.
        if slot.kept >= TURN {
            slot.kept = Duration::ZERO;
            tokio::task::yield_now().await;
        }
        let started = Instant::now();
        let deadline = started + self.shared.limits.wall;
        let attempt = Attempt::new(&call, deadline);
        let headers = Headers::new(call.message);
        let headers = headers.borrowed();
        let message = MessageParam::new(call.message, &headers, call.attempt, call.max_attempts);

        // Out of the slot for the time of the call: if the call's future is dropped, so is it.
        let reusable = slot
            .live
            .take()
            .filter(|live| live.generation == self.generation);
        let fresh = reusable.is_none();
        let mut live = match reusable {
            Some(mut live) => {
                live.store.data_mut().begin(attempt);
                live
            }
            None => Live::new(self, &slot.meter, attempt),
        };
        live.store.set_epoch_deadline(1);
        slot.meter.begin();
        let running = async {
            let handle = live.handle(self).await?;
            let (answer,) = handle.call_async(&mut live.store, (message,)).await?;
            Ok(answer)
        };
        let end = supervise(running, &slot.meter, deadline).await;
        let log_bytes_dropped = live.store.data_mut().finish();
        let memory_bytes = live.store.data().limiter.memory_bytes();
        let answered = self.conclude(end, &live);
        live.served += 1;
        // After a fault nothing of the instance is used again.
        let closed = if answered.is_ok() && live.served < self.reuse {
            slot.live = Some(live);
            Ok(())
        } else {
            drop_caught(live)
        };
        let outcome = match (answered, closed) {
            (_, Err(payload)) => Outcome::Fault(host_panic(&*payload)),
            (Err(fault), Ok(())) => Outcome::Fault(fault),
            (Ok(answer), Ok(())) => answer.into_outcome(self.shared.limits.outcome_text),
        };
        let duration = started.elapsed();
        slot.kept += duration;
        Report {
            outcome,
            duration,
            memory_bytes,
            fresh,
            log_bytes_dropped,
        }
    }

    /// What an end means.
    fn conclude<T>(&self, end: End<T>, live: &Live) -> Result<T, Fault> {
        let circumstances = Circumstances {
            limits: &self.shared.limits,
            denied: live.store.data().limiter.denied(),
            instantiated: live.handle.is_some(),
        };
        match end {
            End::Returned(Ok(value)) => Ok(value),
            End::Returned(Err(error)) => Err(circumstances.fault(&error)),
            End::TimedOut => Err(circumstances.wall_timeout()),
            End::Panicked(payload) => Err(host_panic(&*payload)),
        }
    }
}

/// Run an attempt's future to its end: its result, the deadline, or a panic of the host.
async fn supervise<T>(
    attempt: impl Future<Output = wasmtime::Result<T>>,
    meter: &Meter,
    deadline: Instant,
) -> End<T> {
    let mut attempt = pin!(Some(attempt));
    // Made when the attempt first waits: most never do.
    let mut timer = pin!(None::<Sleep>);
    let mut first = true;
    let end = poll_fn(|cx| {
        if !std::mem::take(&mut first) {
            meter.resume();
        }
        let polled = poll_caught(attempt.as_mut(), cx);
        meter.pause();
        match polled {
            Ok(Poll::Ready(result)) => return Poll::Ready(End::Returned(result)),
            Ok(Poll::Pending) => {}
            Err(payload) => return Poll::Ready(End::Panicked(payload)),
        }
        if timer.is_none() {
            timer.set(Some(sleep_until(deadline.into())));
        }
        match timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(End::TimedOut),
            _ => Poll::Pending,
        }
    })
    .await;
    // What is dropped here unwinds the guest, which may panic as well.
    match catch_unwind(AssertUnwindSafe(|| attempt.set(None))) {
        Ok(()) => end,
        Err(payload) => End::Panicked(payload),
    }
}

fn drop_caught<T>(value: T) -> Result<(), Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(|| drop(value)))
}

fn poll_caught<F: Future>(
    future: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Result<Poll<F::Output>, Box<dyn Any + Send>> {
    let Some(future) = future.as_pin_mut() else {
        return Ok(Poll::Pending);
    };
    // Whatever a panic leaves half-done is dropped with the store and never looked at again.
    catch_unwind(AssertUnwindSafe(|| future.poll(cx)))
}

impl Attempt {
    fn new(call: &Call<'_>, deadline: Instant) -> Self {
        let headers = &call.message.headers;
        Self {
            message_id: Arc::clone(&call.message.id),
            number: call.attempt,
            deadline,
            cancelled: Arc::clone(call.cancelled),
            traceparent: headers.find(TRACEPARENT).cloned(),
            tracestate: headers.find(TRACESTATE).cloned(),
            sink: call.logs.clone(),
        }
    }

    /// No message at all: an instance is made, and nothing else.
    fn trial(deadline: Instant) -> Self {
        Self {
            message_id: Arc::from(""),
            number: 0,
            deadline,
            cancelled: Arc::default(),
            traceparent: None,
            tracestate: None,
            sink: LogSink::Tracing,
        }
    }
}

// Named here, so that a change that makes the future unsendable fails where it is made.
#[expect(dead_code, reason = "checked by the compiler alone")]
fn call_is_send(loaded: &Loaded, slot: &mut Slot, call: Call<'_>) -> impl Send {
    loaded.call(slot, call)
}
