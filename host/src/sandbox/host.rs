//! The data of a store: the attempt that a guest works on, its meters, and its WASI context.

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
use super::log::{Author, Journal, LogSink, Output, Rate, Stream};
use super::meter::Meter;
use crate::delivery::trace::Trace;

/// What all instances of a handler share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) digest: Arc<str>,
    pub(super) rate: Arc<Rate>,
    pub(super) pace: Arc<Pace>,
    pub(super) grants: Grants,
}

/// The attempt that a guest is working on.
pub(super) struct Attempt {
    pub(super) message_id: Arc<str>,
    pub(super) number: u32,
    /// How many messages the call has; `message_id` is the first one's.
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
    /// Made when the guest first asks for anything of WASI: many never do.
    wasi: Option<Box<Wasi>>,
}

struct Wasi {
    context: WasiCtx,
    journal: Arc<Mutex<Journal>>,
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

    /// What the operator grants.
    pub(super) fn grants(&self) -> &Grants {
        &self.shared.grants
    }

    /// A tick found it running. Returns whether it has held a core for as long as it may.
    pub(super) fn tick(&self) -> bool {
        self.shared.pace.found_running();
        self.meter.tick() >= self.shared.limits.cpu
    }

    /// The same instance gets another message.
    pub(super) fn begin(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.limiter.begin_call();
        if let Some(wasi) = &self.wasi {
            let author = author(&self.attempt, &self.shared);
            wasi.journal
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .begin(author, &self.shared.limits);
        }
    }

    /// The attempt is over: write what it has begun to write. Returns the bytes of its output
    /// that were dropped.
    pub(super) fn finish(&mut self) -> u64 {
        self.wasi.as_ref().map_or(0, |wasi| {
            wasi.journal
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .finish()
        })
    }
}

fn author(attempt: &Attempt, shared: &Shared) -> Author {
    // What a batch writes belongs to all of its messages, so to none of their traces.
    let trace = attempt
        .traceparent
        .as_ref()
        .filter(|_| attempt.messages == 1);
    Author {
        message_id: Arc::clone(&attempt.message_id),
        attempt: attempt.number,
        messages: attempt.messages,
        trace: trace.and_then(|traceparent| Trace::parse(traceparent)),
        handler: Arc::clone(&shared.digest),
        sink: attempt.sink.clone(),
    }
}

impl Wasi {
    /// No directory, argument, variable, input or network; real clocks and randomness.
    fn new(attempt: &Attempt, shared: &Shared) -> Self {
        let journal = Arc::new(Mutex::new(Journal::new(
            author(attempt, shared),
            &shared.limits,
            Arc::clone(&shared.rate),
        )));
        let output = |stream| Output {
            stream,
            journal: Arc::clone(&journal),
        };
        let context = WasiCtx::builder()
            .stdout(output(Stream::Stdout))
            .stderr(output(Stream::Stderr))
            .max_random_size(shared.limits.random)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .build();
        Self { context, journal }
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
