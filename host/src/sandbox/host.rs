//! The data of a store: the current attempt, the meters and the WASI context.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::engine::Pace;
use super::grants::Grants;
use super::limiter::Limiter;
use super::limits::Limits;
use super::log::{GuestLog, LogContext, LogSink, Output, Rate, Stream};
use super::meter::Meter;
use crate::delivery::trace::Trace;

/// Data that all instances of a handler share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) digest: Arc<str>,
    pub(super) rate: Arc<Rate>,
    pub(super) pace: Arc<Pace>,
    pub(super) grants: Grants,
}

/// The attempt that a guest works on.
pub(super) struct Attempt {
    pub(super) message_id: Arc<str>,
    pub(super) number: u32,
    /// The number of messages in the call; `message_id` and `number` belong to the first one.
    pub(super) messages: usize,
    pub(super) deadline: Instant,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) traceparent: Option<Bytes>,
    pub(super) tracestate: Option<Bytes>,
    pub(super) sink: LogSink,
}

/// The data of a store.
pub(super) struct Host {
    pub(super) limiter: Limiter,
    pub(super) meter: Arc<Meter>,
    shared: Arc<Shared>,
    pub(super) attempt: Attempt,
    table: ResourceTable,
    /// Made at the guest's first use of WASI; many guests never use it.
    wasi: Option<Box<Wasi>>,
}

struct Wasi {
    context: WasiCtx,
    log: Arc<Mutex<GuestLog>>,
}

impl Host {
    pub(super) fn new(shared: &Arc<Shared>, meter: &Arc<Meter>, attempt: Attempt) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(shared.limits.handles);
        Self {
            limiter: Limiter::new(&shared.limits),
            meter: Arc::clone(meter),
            shared: Arc::clone(shared),
            attempt,
            table,
            wasi: None,
        }
    }

    /// The operator's grants.
    pub(super) fn grants(&self) -> &Grants {
        &self.shared.grants
    }

    /// Count an epoch tick. Returns whether the CPU time is used up.
    pub(super) fn tick(&self) -> bool {
        self.shared.pace.found_running();
        self.meter.tick() >= self.shared.limits.cpu
    }

    /// Start the next attempt on the same instance.
    pub(super) fn begin(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.limiter.begin_call();
        if let Some(wasi) = &self.wasi {
            let context = log_context(&self.attempt, &self.shared);
            wasi.log
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .begin(context, &self.shared.limits);
        }
    }

    /// End the attempt: write its unfinished lines. Returns the bytes of output that were dropped.
    pub(super) fn finish(&mut self) -> u64 {
        self.wasi.as_ref().map_or(0, |wasi| {
            wasi.log
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .finish()
        })
    }

    /// The last line that the attempt wrote to stderr, bounded and printable.
    pub(super) fn last_line(&self) -> Option<String> {
        let log = self.wasi.as_ref()?.log.lock();
        log.unwrap_or_else(PoisonError::into_inner).last_line()
    }
}

fn log_context(attempt: &Attempt, shared: &Shared) -> LogContext {
    // The output of a batch belongs to all its messages, so it has no trace.
    let trace = attempt
        .traceparent
        .as_ref()
        .filter(|_| attempt.messages == 1);
    LogContext {
        message_id: Arc::clone(&attempt.message_id),
        attempt: attempt.number,
        messages: attempt.messages,
        trace: trace.and_then(|traceparent| Trace::parse(traceparent)),
        handler: Arc::clone(&shared.digest),
        sink: attempt.sink.clone(),
    }
}

impl Wasi {
    /// Without directories, arguments, variables, input and network; with real clocks and randomness.
    fn new(attempt: &Attempt, shared: &Shared) -> Self {
        let log = Arc::new(Mutex::new(GuestLog::new(
            log_context(attempt, shared),
            &shared.limits,
            Arc::clone(&shared.rate),
        )));
        let output = |stream| Output {
            stream,
            log: Arc::clone(&log),
        };
        let context = WasiCtx::builder()
            .stdout(output(Stream::Stdout))
            .stderr(output(Stream::Stderr))
            .max_random_size(shared.limits.random)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .build();
        Self { context, log }
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self
            .wasi
            .get_or_insert_with(|| Box::new(Wasi::new(&self.attempt, &self.shared)));
        WasiCtxView {
            ctx: &mut wasi.context,
            table: &mut self.table,
        }
    }
}
