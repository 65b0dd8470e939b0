//! The data of a store: the current attempt, the meters and the WASI context.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store, StoreContextMut, UpdateDeadline};
use wasmtime_wasi::p2::TcpSocket;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::types::HostFutureIncomingResponse;

use super::cancelled::Cancelled;
use super::engine::Pace;
use super::fault::OutOfCpu;
use super::limiter::{Limiter, TooManyDescriptors};
use super::limits::Limits;
use super::log::{GuestLog, Level, LogContext, LogSink, Output, Rate, Stream};
use super::meter::Meter;
use super::program::{self, ExitCodes, Program, Stdout, Unpublished};
use super::recorded;
use crate::delivery::effect::{Budget, Effects, Publication};
use crate::delivery::hold::HoldRoom;
use crate::delivery::message::{Headers, Message};
use crate::delivery::recording::{Reading, Track};
use crate::delivery::reply::REPLY_MAX;
use crate::delivery::trace::{Recorder, StepKind, Trace};
use crate::grants::Grants;
use crate::grants::configuration::rules::Values;
use crate::grants::context::{AskedHold, Context, NO_MESSAGE, Origin};
use crate::grants::files::rules::Directory;
use crate::grants::journal::session::Session;
use crate::grants::recorded as recorded_answers;
use crate::grants::scope::Scope;
use crate::grants::steps::Recording;

/// The first argument of a program.
const PROGRAM_NAME: &str = "handler";

/// The most descriptors of this process that an instance holds: files, directories, sockets, and streams of files.
pub const DESCRIPTORS: usize = 64;

/// Data that all instances of a handler share. Each runner has a copy.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) digest: Arc<str>,
    pub(crate) rate: Arc<Rate>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) grants: Grants,
    /// Counts the unconfirmed effects of all instances.
    pub(crate) budget: Budget,
    /// Whether it may hold messages or answer to their producers: it imports what that takes, or is a program.
    pub(crate) acts: bool,
    /// For a program: how it is called, and which exit codes it can have.
    pub(crate) program: Option<(Program, ExitCodes)>,
    /// Whether the calls of an attempt are noted for its dead letter: they are wanted, and it may make some.
    pub(crate) records_calls: bool,
    /// Counts the recordings of all instances; `None` = the answers to an attempt are not recorded.
    pub(crate) recordings: Option<Budget>,
    /// The digest of the settings.
    pub(crate) settings: Arc<str>,
}

/// The attempt that a guest works on.
pub(crate) struct Attempt {
    pub(crate) message_id: Arc<str>,
    pub(crate) queue: Arc<str>,
    pub(crate) number: u32,
    /// The number of messages in the call; `message_id` and `number` belong to the first one.
    pub(crate) messages: usize,
    pub(crate) deadline: Instant,
    pub(crate) cancelled: Arc<Cancelled>,
    /// The span of the call; `None` = it has none of its own.
    pub(crate) trace: Option<Trace>,
    /// Where its steps are noted, if they are.
    pub(crate) recorder: Option<Recorder>,
    /// `traceparent` of the message, or of the first one.
    pub(crate) traceparent: Option<Bytes>,
    /// `tracestate` of the same.
    pub(crate) tracestate: Option<Bytes>,
    pub(crate) sink: LogSink,
    /// The messages with their effects so far, in the order of the call; empty = no messages, or they may have no
    /// effects.
    pub(crate) acting: Vec<Acting>,
    /// What a program gets by stdin and variables: the message, and its delivery limit.
    pub(crate) input: Option<(Message, u32)>,
    /// The journal of its one message, if it has one.
    pub(crate) journal: Option<Arc<Session>>,
    /// Where a grant asks that its messages are held; `None` = none does.
    pub(crate) hold: Option<Arc<AskedHold>>,
    /// Where its answers are recorded, or come from.
    pub(crate) track: Option<Arc<Track>>,
}

/// A message of an attempt, which may have effects.
pub(crate) struct Acting {
    pub(crate) message: Message,
    pub(crate) effects: Effects,
    /// How long it may be held.
    pub(crate) room: HoldRoom,
}

impl Attempt {
    /// The span of the messages and requests that the call sends, as `traceparent`: its own, or that of its one
    /// message.
    pub(crate) fn traceparent(&self) -> Option<Bytes> {
        match &self.trace {
            Some(trace) => Some(Bytes::from(trace.to_string())),
            None => self.traceparent.clone().filter(|_| self.messages == 1),
        }
    }

    /// `tracestate` of its one message.
    pub(crate) fn tracestate(&self) -> Option<Bytes> {
        self.tracestate.clone().filter(|_| self.messages == 1)
    }

    fn origin(&self, handler: &Arc<str>) -> Origin {
        Origin {
            message_id: Arc::clone(&self.message_id),
            queue: Arc::clone(&self.queue),
            attempt: self.number,
            messages: self.messages,
            deadline: self.deadline,
            traceparent: self.traceparent(),
            tracestate: self.tracestate(),
            handler: Arc::clone(handler),
            journal: self.journal.clone(),
            hold: self.hold.clone(),
        }
    }

    /// The message at this place of the call, and its effects so far. The error is for the guest.
    fn acting(&mut self, index: u32) -> Result<&mut Acting, String> {
        let messages = self.acting.len();
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        self.acting.get_mut(place).ok_or_else(|| match messages {
            0 => NO_MESSAGE.to_owned(),
            _ => format!("the call has {messages} messages, from 0: none has the index {index}"),
        })
    }
}

/// The data of a store.
pub(crate) struct Host {
    pub(crate) limiter: Limiter,
    pub(crate) meter: Arc<Meter>,
    shared: Arc<Shared>,
    pub(crate) attempt: Attempt,
    pub(crate) table: ResourceTable,
    /// The files, directories and streams of files that are open, also on threads that still use them.
    open: Vec<Weak<dyn Any + Send + Sync>>,
    /// Made at the guest's first use of WASI; many guests never use it.
    wasi: Option<Box<Wasi>>,
    /// What the attempt does outside; made when it first does something.
    /// `None` = nothing is granted.
    scope: Option<CurrentScope>,
    /// What links keep until the attempt ends.
    states: Vec<Box<dyn Any + Send>>,
}

/// The scope of the attempt that runs now. The checks of sockets live as long as the instance.
type CurrentScope = Arc<Mutex<Option<Arc<Scope>>>>;

struct Wasi {
    context: WasiCtx,
    log: Arc<Mutex<GuestLog>>,
    /// The track of the attempt, if attempts have one.
    track: Option<recorded::Current>,
}

/// A store for an attempt.
pub(crate) fn store(
    engine: &Engine,
    shared: &Arc<Shared>,
    meter: &Arc<Meter>,
    attempt: Attempt,
) -> Store<Host> {
    let limits = &shared.limits;
    let mut store = Store::new(engine, Host::new(shared, meter, attempt));
    store.limiter(|host| &mut host.limiter);
    store.epoch_deadline_callback(on_tick);
    store.set_hostcall_fuel(limits.transfer);
    store.set_max_component_handles(limits.handles);
    store
}

/// Epoch callback: end a guest that has used up its CPU time, else yield to other tasks.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of an epoch callback"
)]
fn on_tick(store: StoreContextMut<'_, Host>) -> wasmtime::Result<UpdateDeadline> {
    if store.data().tick() {
        return Err(OutOfCpu.into());
    }
    // tokio's own yield lets the runtime poll timers and sockets first.
    Ok(UpdateDeadline::YieldCustom(
        1,
        Box::pin(tokio::task::yield_now()),
    ))
}

impl Attempt {
    /// An attempt without a message: it only makes an instance.
    pub(crate) fn trial(deadline: Instant) -> Self {
        Self {
            message_id: Arc::from(""),
            queue: Arc::from(""),
            number: 0,
            messages: 0,
            deadline,
            cancelled: Arc::default(),
            trace: None,
            recorder: None,
            traceparent: None,
            tracestate: None,
            sink: LogSink::Tracing,
            acting: Vec::new(),
            input: None,
            journal: None,
            hold: None,
            track: None,
        }
    }
}

impl Host {
    fn new(shared: &Arc<Shared>, meter: &Arc<Meter>, attempt: Attempt) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(shared.limits.handles);
        Self {
            limiter: Limiter::new(&shared.limits),
            meter: Arc::clone(meter),
            shared: Arc::clone(shared),
            attempt,
            table,
            open: Vec::new(),
            wasi: None,
            scope: shared.grants.has_scope().then(Arc::default),
            states: Vec::new(),
        }
    }

    /// What the attempt does outside. Interfaces are linked where they are granted, and in a trial.
    ///
    /// # Errors
    /// This is a trial: nothing is granted. The text is for the guest.
    pub(crate) fn scope(&self) -> Result<Arc<Scope>, String> {
        let mut scope = self.scope.as_ref().ok_or(NO_MESSAGE)?.lock();
        let scope = scope.get_or_insert_with(|| {
            let origin = self.attempt.origin(&self.shared.digest);
            let recorder = self.attempt.recorder.clone();
            let shared = &self.shared;
            let context = Context::new(origin, recorder, shared.limits.requests);
            let track = self.attempt.track.clone();
            Scope::new(&shared.grants.provided, context.with(track))
        });
        Ok(Arc::clone(scope))
    }

    /// What a link keeps until the attempt ends, and the table of resources. `made` makes it.
    pub(crate) fn state<T: Any + Send>(
        &mut self,
        made: impl FnOnce(&Self) -> T,
    ) -> (&mut T, &mut ResourceTable) {
        let found = self.states.iter().position(|state| state.is::<T>());
        let place = found.unwrap_or_else(|| {
            let made = made(self);
            self.states.push(Box::new(made));
            self.states.len() - 1
        });
        let state = self.states[place].downcast_mut();
        (state.expect("it has this type"), &mut self.table)
    }

    /// Whether the guest may open another descriptor.
    ///
    /// # Errors
    /// It may not: its attempt ends.
    pub(crate) fn room_for_descriptor(&mut self) -> wasmtime::Result<()> {
        let is_socket = |entry: &&mut (dyn Any + Send)| entry.is::<TcpSocket>();
        let sockets = self.table.iter_mut().filter(is_socket).count();
        self.open.retain(|open| open.strong_count() > 0);
        let most = DESCRIPTORS.min(self.shared.limits.handles);
        match self.open.len() + sockets < most {
            true => Ok(()),
            false => Err(TooManyDescriptors(most).into()),
        }
    }

    /// Whether the guest has sent a request over `wasi:http`, and has neither taken its response nor dropped it.
    pub(crate) fn leaves_request(&mut self) -> bool {
        self.table.iter_mut().any(|entry| {
            let response = entry.downcast_ref::<HostFutureIncomingResponse>();
            response.is_some_and(|it| !matches!(it, HostFutureIncomingResponse::Consumed))
        })
    }

    /// The guest has opened this.
    pub(crate) fn holds<T: Send + Sync + 'static>(&mut self, opened: &Arc<T>) {
        let opened: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(opened);
        self.open.push(Arc::downgrade(&opened));
    }

    /// Log an event of the guest.
    pub(crate) fn log_event(&mut self, level: Level, context: &str, text: &str) {
        let log = Arc::clone(&self.wasi().log);
        log.lock().event(level, context, text);
    }

    fn wasi(&mut self) -> &mut Wasi {
        if self.wasi.is_none() {
            let has_tcp = self.shared.grants.provided.tcp.is_some();
            if has_tcp {
                // Made now: the check of an address cannot make it.
                drop(self.scope());
            }
            let scope = self.scope.clone().filter(|_| has_tcp);
            self.wasi = Some(Box::new(Wasi::new(&self.attempt, &self.shared, scope)));
        }
        self.wasi.as_mut().expect("it was made")
    }

    /// The operator's grants.
    pub(crate) fn grants(&self) -> &Grants {
        &self.shared.grants
    }

    /// Publish a message with the acknowledgement of the one at this place of the call.
    pub(crate) fn publish(&mut self, index: u32, publication: Publication) -> Result<(), String> {
        let shared = &self.shared;
        let Some(outlets) = &shared.grants.publish else {
            return Err("nothing may be published".to_owned());
        };
        let recording = self.attempt.recorder.as_ref().map(|recorder| {
            let (to, bytes) = (Arc::clone(&publication.to), publication.body.len());
            Recording::begin(recorder, StepKind::Publish { to, bytes })
        });
        let publication = Publication {
            trace: recording
                .as_ref()
                .and_then(Recording::trace)
                .or(self.attempt.trace),
            ..publication
        };
        let Acting {
            message, effects, ..
        } = self.attempt.acting(index)?;
        let published = effects.publish(outlets, &shared.limits.effects, message, publication);
        if let Some(recording) = recording {
            recording.end(published.as_ref().err().map(|_| "refused"));
        }
        published
    }

    /// Hold the message at this place of the call, if its attempt wants it again.
    pub(crate) fn hold(&mut self, index: u32, ms: u64) -> Result<(), String> {
        let acting = self.attempt.acting(index)?;
        acting.effects.hold(acting.room, ms)
    }

    /// Answer to the producer of the message at this place of the call, with its acknowledgement.
    pub(crate) fn reply(&mut self, index: u32, value: Bytes) -> Result<(), String> {
        let limits = self.shared.limits.effects;
        self.effects(index)?.answer(&limits, value)
    }

    /// The effects so far of the message at this place of the call.
    pub(crate) fn effects(&mut self, index: u32) -> Result<&mut Effects, String> {
        Ok(&mut self.attempt.acting(index)?.effects)
    }

    /// A value that the operator configured; `None` = there is none.
    pub(crate) fn configured(&self, name: &str) -> Option<String> {
        let live = || self.configuration().get(name).cloned();
        let asked = || recorded_answers::ask("config", name);
        recorded_answers::at_once(self.attempt.track.as_ref(), asked, live).flatten()
    }

    /// All values that the operator configured.
    pub(crate) fn all_configured(&self) -> BTreeMap<String, String> {
        let live = || (*self.configuration()).clone();
        let asked = || recorded_answers::ask("config", "");
        let all = recorded_answers::at_once(self.attempt.track.as_ref(), asked, live);
        all.unwrap_or_default()
    }

    fn configuration(&self) -> Arc<BTreeMap<String, String>> {
        let values = self.grants().config.as_ref();
        values.map(Values::now).unwrap_or_default()
    }

    /// A number that the guest reads.
    pub(crate) fn reading(&self, kind: Reading, live: impl FnOnce() -> u64) -> u64 {
        match &self.attempt.track {
            Some(track) => track.reading(kind, live),
            None => live(),
        }
    }

    /// The limits of the handler.
    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Count an epoch tick. Returns whether the CPU time is used up.
    fn tick(&self) -> bool {
        self.shared.pace.found_running();
        self.meter.tick() >= self.shared.limits.cpu
    }

    /// Start the next attempt on the same instance.
    pub(crate) fn begin(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.limiter.begin_call();
        if let Some(current) = self.wasi.as_ref().and_then(|wasi| wasi.track.as_ref())
            && let Some(track) = &self.attempt.track
        {
            *current.lock() = Arc::clone(track);
        }
        if let Some(mut log) = self.log() {
            log.begin(
                log_context(&self.attempt, &self.shared),
                &self.shared.limits,
            );
            if self.shared.grants.provided.tcp.is_some() {
                drop(self.scope());
            }
        }
    }

    /// End the attempt and what it does outside: write its unfinished lines. Returns the bytes of
    /// output that were dropped.
    pub(crate) fn finish(&mut self) -> u64 {
        self.states.clear();
        let scope = self.scope.as_ref().and_then(|scope| scope.lock().take());
        if let Some(scope) = scope {
            scope.end();
        }
        self.log().map_or(0, |mut log| log.finish())
    }

    /// What the guest has written, if it has used WASI.
    fn log(&self) -> Option<MutexGuard<'_, GuestLog>> {
        self.wasi.as_ref().map(|wasi| wasi.log.lock())
    }

    /// How a program is called, and its exit codes.
    pub(crate) fn program(&self) -> (&Program, ExitCodes) {
        let program = self.shared.program.as_ref();
        let (program, codes) = program.expect("only a program asks for this");
        (program, *codes)
    }

    /// A program has ended: the last line that it wrote to stderr, unfinished ones included.
    pub(crate) fn end_output(&mut self) -> Option<String> {
        let mut log = self.log()?;
        log.end_lines();
        log.last_line()
    }

    /// Publish or answer what a program has written to stdout, if that is asked for and not empty.
    pub(crate) fn publish_stdout(&mut self) -> Result<(), Unpublished> {
        let written = self.log().and_then(|mut log| log.take_stdout());
        let to = self.program().0.stdout.clone();
        let Some(written) = written.filter(|written| !written.bytes.is_empty()) else {
            return Ok(());
        };
        let to = match to {
            Stdout::Log => return Ok(()),
            // One that is cut is too long.
            Stdout::Reply => {
                let replied = self.reply(0, written.bytes.into());
                return replied.map_err(Unpublished::Unanswered);
            }
            Stdout::Publish(_) if written.is_cut => return Err(Unpublished::TooLong),
            Stdout::Publish(to) => to,
        };
        let publication = Publication {
            to: Arc::from(to.as_str()),
            body: written.bytes.into(),
            headers: Headers::default(),
            delay: None,
            trace: None,
        };
        let published = self.publish(0, publication);
        published.map_err(|why| Unpublished::Refused { to, why })
    }

    /// The last lines that the attempt wrote, of at most `max` bytes.
    pub(crate) fn log_tail(&self, max: usize) -> String {
        self.log().map(|log| log.tail(max)).unwrap_or_default()
    }

    /// What the attempt wrote about its failure on stderr, bounded and printable, and whether that names
    /// functions.
    pub(crate) fn failure(&self) -> Option<(String, bool)> {
        self.log()?.failure()
    }
}

fn log_context(attempt: &Attempt, shared: &Shared) -> LogContext {
    // The output of a batch belongs to all its messages, so it has no trace.
    // It has one if the call is recorded.
    let of_message = || {
        let traceparent = attempt.traceparent.as_ref();
        let traceparent = traceparent.filter(|_| attempt.messages == 1)?;
        Trace::parse(traceparent)
    };
    LogContext {
        message_id: Arc::clone(&attempt.message_id),
        attempt: attempt.number,
        messages: attempt.messages,
        trace: attempt.trace.or_else(of_message),
        handler: Arc::clone(&shared.digest),
        sink: attempt.sink.clone(),
    }
}

impl Wasi {
    /// With real clocks and randomness, or those of its track, and the directories that are granted. Only a program has arguments,
    /// variables and input. `scope` says which connections are granted.
    fn new(attempt: &Attempt, shared: &Shared, scope: Option<CurrentScope>) -> Self {
        let log = Arc::new(Mutex::new(GuestLog::new(
            log_context(attempt, shared),
            &shared.limits,
            Arc::clone(&shared.rate),
        )));
        let output = |stream| Output {
            stream,
            log: Arc::clone(&log),
        };
        let mut context = WasiCtx::builder();
        context
            .stdout(output(Stream::Stdout))
            .stderr(output(Stream::Stderr))
            .max_random_size(shared.limits.random)
            .allow_tcp(scope.is_some())
            .allow_udp(false)
            // Work on files has threads of its own: `grants::files`.
            .allow_blocking_current_thread(!shared.grants.files.is_empty())
            // Names are answered by `grants::tcp`.
            .allow_ip_name_lookup(false);
        let track = attempt.track.as_ref();
        let track = track.map(|track| Arc::new(Mutex::new(Arc::clone(track))));
        if let Some(track) = &track {
            recorded::provide(&mut context, track);
        }
        if let Some(scope) = scope {
            context.socket_addr_check(move |address, used| {
                let scope = scope.lock();
                let allowed = scope.as_ref().is_some_and(|s| may_use(s, address, used));
                Box::pin(std::future::ready(allowed))
            });
        }
        for Directory { path, at } in &shared.grants.files {
            // It was there when the handler was loaded.
            if let Err(error) = context.preopened_dir(path, at, FsPerms::ReadOnly) {
                let path = path.display();
                tracing::warn!(%path, reason = %error, "a directory of `grant.files` cannot be read");
            }
        }
        if let (Some((program, _)), Some(input)) = (&shared.program, &attempt.input) {
            let (message, max_attempts) = input;
            context
                .stdin(MemoryInputPipe::new(message.body.clone()))
                .arg(PROGRAM_NAME)
                .args(&program.args)
                .envs(&program::variables(message, attempt.number, *max_attempts));
            match program.stdout {
                Stdout::Log => {}
                Stdout::Publish(_) => log.lock().keep_stdout(shared.limits.effects.bytes),
                Stdout::Reply => log.lock().keep_stdout(REPLY_MAX + 1),
            }
        }
        Self {
            context: context.build(),
            log,
            track,
        }
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi();
        let wasi = self.wasi.as_mut().expect("it was made");
        WasiCtxView {
            ctx: &mut wasi.context,
            table: &mut self.table,
        }
    }
}

/// A guest may connect to what the scope knows, from any port. Connecting asks for the wildcard
/// address first.
fn may_use(scope: &Scope, address: SocketAddr, used: SocketAddrUse) -> bool {
    match used {
        SocketAddrUse::TcpBind => address.ip().is_unspecified() && address.port() == 0,
        SocketAddrUse::TcpConnect => scope.tcp().is_ok_and(|tcp| tcp.may_connect(address)),
        _ => false,
    }
}
