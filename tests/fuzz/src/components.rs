//! What each target for the sandbox does with arbitrary bytes: take them as a component, as
//! the code of a handler, or as what one answers. Whatever it is, it is refused or runs within its
//! limits, and the host decides about what it said. A panic is a finding; so is a fault of the host.

#[cfg(not(test))]
use crate::{guests, hostler};
#[cfg(test)]
use hostler_tests::guests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arbitrary::Unstructured;
use bytes::Bytes;
use guests::{Export, HANDLE, HANDLE_BATCH};
use hostler::delivery::attempt::{Accounting, DeliveryLimit};
use hostler::delivery::backoff::Backoff;
use hostler::delivery::batch::{Pieces, starts_max};
use hostler::delivery::hold::{HoldLimits, HoldRoom};
use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::{Fault, FaultKind, Outcome};
use hostler::delivery::policy::{
    DELAY_MAX, DeadLetterRules, Disposition, OnCap, OnFault, Policy, Rejection, decide,
};
use hostler::delivery::text::DETAIL_MAX;
use hostler::delivery::trace::Traced;
use hostler::sandbox::{
    Call, Cancelled, Capture, Limits, LoadError, LogSink, Sandbox, Settings, Slot,
};
use hostler::wire::dead_letter::{self, Context};
use hostler::wire::stream;
use wasm_encoder::Encode;
use wasm_smith::{Config, Module};

/// Longer than any limit: a call that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of what is said about a component that is refused.
const REFUSAL_MAX: usize = 8 << 10;

/// The number of a section that holds a core module.
const CORE_MODULE: u8 = 1;

/// Limits that random code reaches soon.
fn settings() -> Settings {
    Settings {
        concurrency: 1,
        reuse: 2,
        limits: Limits {
            wall: Duration::from_millis(300),
            cpu: Duration::from_millis(40),
            memory: 4 << 20,
            table_elements: 10_000,
            handles: 100,
            transfer: 64 << 10,
            outcome_text: 256,
            log_attempt: 8 << 10,
            log_line: 256,
            ..Limits::default()
        },
        ..Settings::default()
    }
}

/// Bytes as the file of a handler: as they are, behind the right beginning, as
/// changes to a handler, or as the choices of a generator of components. Returns whether it ran.
pub fn component(data: &[u8]) -> bool {
    let Some((choice, data)) = data.split_first() else {
        return survives(&[]);
    };
    match choice % 4 {
        0 => survives(data),
        1 => survives(&[b"\0asm\x0d\0\x01\0", data].concat()),
        2 => survives(&mutant(data)),
        _ => {
            let mut entropy = Unstructured::new(data);
            wasm_smith::Component::new(Config::default(), &mut entropy)
                .is_ok_and(|component| survives(&component.to_bytes()))
        }
    }
}

/// Bytes as the code of a handler of the right type. Returns whether it ran.
pub fn handler(data: &[u8]) -> bool {
    let mut entropy = Unstructured::new(data);
    random_handler(&mut entropy).is_ok_and(|component| survives(&component))
}

/// Bytes as what a handler leaves in its memory: its answer, wherever the first four bytes say that
/// it is. The host must read them as the canonical ABI does. Returns whether
/// they are an answer.
pub fn answer(data: &[u8]) -> bool {
    static HANDLERS: OnceLock<[Sandbox; 2]> = OnceLock::new();
    let [one, batch] = HANDLERS.get_or_init(answering);
    let Some((choice, body)) = data.split_first() else {
        return false;
    };
    // More does not fit into the memory, twice.
    let body = &body[..body.len().min(ANSWER_MAX)];
    let messages = usize::from(choice % 8);
    let expected = expected(body, messages);
    let rig = Rig::default();
    let slot = &mut Slot::default();
    let outcomes = match messages {
        0 => vec![rig.call(one, slot, body, 1)],
        messages => rig.batch(batch, slot, body, messages),
    };
    for outcome in &outcomes {
        match (&expected, outcome) {
            (Expected::Any, _) => {}
            (Expected::None, Outcome::Fault(fault)) => {
                assert_eq!(fault.kind, FaultKind::BadOutcome, "{fault}");
            }
            (Expected::None, outcome) => panic!("{outcome:?} was never said"),
            (Expected::Outcomes(said), _) => assert!(
                said.len() != messages.max(1)
                    || said
                        .iter()
                        .zip(&outcomes)
                        .all(|(said, outcome)| became(said, outcome)),
                "{said:?} became {outcomes:?}"
            ),
        }
    }
    outcomes
        .iter()
        .all(|outcome| !matches!(outcome, Outcome::Fault(_)))
}

/// Whether the host may make `outcome` of what a handler said: the same, unless the delay is too long.
fn became(said: &Outcome, outcome: &Outcome) -> bool {
    match (said, outcome) {
        (Outcome::NackRequeue(Some(delay)), Outcome::Fault(fault)) => {
            *delay > DELAY_MAX && fault.kind == FaultKind::BadOutcome
        }
        _ => said == outcome,
    }
}

/// Load it, and if it loads, call it: whatever it is, that is all that happens.
fn survives(component: &[u8]) -> bool {
    let sandbox = match Sandbox::load_bytes(component, &settings()) {
        Ok(sandbox) => sandbox,
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() <= REFUSAL_MAX, "{} bytes", text.len());
            assert!(!text.chars().any(acts), "{text:?}");
            if let LoadError::Start(fault) = &error {
                assert_ne!(fault.kind, FaultKind::HostPanic, "{fault}");
            }
            return false;
        }
    };
    let rig = Rig::default();
    let mut slot = sandbox.slot();
    // The second one may reuse what the first one left.
    for attempt in 1..=3 {
        let outcome = rig.call(&sandbox, &mut slot, b"a body", attempt);
        if let Outcome::Fault(fault) = outcome
            && matches!(fault.kind, FaultKind::CpuTimeout | FaultKind::WallTimeout)
        {
            // The next one would take as long.
            return true;
        }
    }
    rig.batch(&sandbox, &mut slot, b"a body", 3);
    true
}

/// Whether it could act on a terminal, begin another line of a log, or turn the direction of writing.
fn acts(c: char) -> bool {
    (c.is_control() && c != '\t') || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A runtime, and what guests write.
struct Rig {
    runtime: tokio::runtime::Runtime,
    capture: Capture,
    logs: LogSink,
    cancelled: Arc<Cancelled>,
    limits: Limits,
}

impl Default for Rig {
    fn default() -> Self {
        let capture = Capture::default();
        Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime"),
            logs: LogSink::Capture(capture.clone()),
            capture,
            cancelled: Arc::default(),
            limits: settings().limits,
        }
    }
}

impl Rig {
    fn run<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, call).await })
            .expect("the call ends")
    }

    /// One message.
    fn call(&self, sandbox: &Sandbox, slot: &mut Slot, body: &[u8], attempt: u32) -> Outcome {
        let message = message(body);
        let report = self.run(sandbox.call(slot, self.about(&message, attempt)));
        assert!(report.memory_bytes <= self.limits.memory);
        self.written();
        self.decided(&report.outcome);
        report.outcome
    }

    /// `messages` messages, run in ever smaller pieces until each has its outcome.
    fn batch(
        &self,
        sandbox: &Sandbox,
        slot: &mut Slot,
        body: &[u8],
        messages: usize,
    ) -> Vec<Outcome> {
        let message = message(body);
        let mut pieces = Pieces::of(messages);
        let mut outcomes = Vec::new();
        let mut starts = vec![0; messages];
        while let Some(piece) = pieces.next_piece() {
            starts[piece.clone()].iter_mut().for_each(|n| *n += 1);
            let calls = vec![self.about(&message, 1); piece.len()];
            let report = self.run(sandbox.call_batch(slot, &calls));
            assert!(report.memory_bytes() <= self.limits.memory);
            self.written();
            outcomes.extend(pieces.judge(piece, report.answer).into_iter().flatten());
        }
        assert_eq!(outcomes.len(), messages, "one outcome for each");
        assert!(starts.iter().all(|n| *n <= starts_max(messages)));
        outcomes.iter().for_each(|outcome| self.decided(outcome));
        outcomes
    }

    fn about<'a>(&'a self, message: &'a Message, attempt: u32) -> Call<'a> {
        Call {
            message,
            attempt,
            max_attempts: 3,
            cancelled: &self.cancelled,
            logs: &self.logs,
            trace: Traced::default(),
            began: std::time::Instant::now(),
            journal: None,
            room: HoldRoom::default(),
        }
    }

    /// The text that it wrote is bounded, and harmless.
    fn written(&self) {
        let lines = self.capture.take();
        let mut bytes = 0;
        for line in &lines {
            assert!(!line.text.chars().any(acts), "{:?}", line.text);
            bytes += line.text.len();
        }
        // Escapes make more of a byte than it was.
        assert!(bytes <= 16 * self.limits.log_attempt, "{bytes} bytes");
    }

    /// Its answer is bounded, and the host can handle it.
    fn decided(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Fault(Fault { kind, detail }) => {
                assert_ne!(*kind, FaultKind::HostPanic, "{detail}");
                assert!(
                    detail.len() <= DETAIL_MAX && !detail.chars().any(acts),
                    "{detail:?}"
                );
            }
            Outcome::Drop(Some(reason)) => {
                assert!(reason.len() <= self.limits.outcome_text);
                assert!(!reason.chars().any(acts), "{reason:?}");
            }
            Outcome::Ack | Outcome::NackRequeue(_) | Outcome::Drop(None) => {}
        }
        for cap in [None, Some(1), Some(2)] {
            for on_fault in [OnFault::Requeue, OnFault::DeadLetter] {
                let policy = Policy {
                    limit: DeliveryLimit {
                        cap,
                        accounting: Accounting::Lazy,
                        at_most_once: false,
                        holds: HoldLimits::default(),
                    },
                    on_cap: OnCap::DeadLetter,
                    on_fault,
                    has_dead_letter: true,
                    dead_letters: DeadLetterRules::default(),
                    backoff: Backoff::default(),
                };
                match decide(outcome, None, 1, &policy, 0.5) {
                    Disposition::Acknowledge => assert_eq!(*outcome, Outcome::Ack),
                    Disposition::Requeue { delay } => {
                        assert!(delay <= DELAY_MAX && cap != Some(1));
                    }
                    Disposition::DeadLetter(rejection) => dead_lettered(&rejection),
                    Disposition::Discard(_) => panic!("there is a dead-letter queue"),
                }
            }
        }
    }
}

/// Why it died is read from its dead letter as it was written.
fn dead_lettered(rejection: &Rejection) {
    assert!(rejection.detail.len() <= DETAIL_MAX);
    let context = Context {
        source: "orders",
        source_id: "1-1",
        group: Some("workers"),
        rejection,
        handler: "sha256:0",
        evidence: None,
        now_ms: 1,
        expires_at_ms: None,
    };
    let fields = [(Bytes::from_static(b"_payload"), Bytes::from_static(b"x"))];
    let (copy, _) = dead_letter::stream_fields(&fields, &Headers::default(), &context);
    let headers = stream::headers(&copy);
    let header = |name| {
        headers
            .find(name)
            .map(|value| &value[..])
            .unwrap_or_default()
    };
    let reason = rejection.reason.label();
    assert_eq!(header("x-dead-letter-reason"), reason.as_bytes());
    assert_eq!(header("x-dead-letter-detail"), rejection.detail.as_bytes());
}

fn message(body: &[u8]) -> Message {
    let mut headers = Headers::default();
    headers.push("Tenant", "acme");
    headers.push("bytes", Bytes::from_static(b"\xff\0"));
    Message {
        id: "1-1".into(),
        queue: "orders".into(),
        body: Bytes::copy_from_slice(body),
        headers,
        enqueued_ms: 1,
    }
}

/// A handler, changed here and there.
fn mutant(data: &[u8]) -> Vec<u8> {
    static WHOLE: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        [
            guests::handler("(table 3 funcref)", "call $is-cancelled"),
            guests::batch_handler("(data (i32.const 8) \"data\")", "i32.const 0"),
            guests::exporting(&HANDLE, "1.0.0", &with_imports(&HANDLE)),
        ]
    });
    let mut entropy = Unstructured::new(data);
    change(&mut entropy, whole).unwrap_or_default()
}

fn change(entropy: &mut Unstructured<'_>, whole: &[Vec<u8>]) -> arbitrary::Result<Vec<u8>> {
    let mut bytes = entropy.choose(whole)?.clone();
    for _ in 0..entropy.int_in_range(1..=6)? {
        if bytes.is_empty() {
            break;
        }
        let at = entropy.choose_index(bytes.len())?;
        let end = (at + entropy.int_in_range(1..=40)?).min(bytes.len());
        match entropy.int_in_range(0..=5)? {
            0 => bytes[at] ^= 1 << entropy.int_in_range(0..=7)?,
            1 => bytes[at] = entropy.arbitrary()?,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                let to = entropy.choose_index(bytes.len())?;
                bytes.splice(to..to, piece);
            }
            4 => {
                let noise = entropy.bytes(entropy.len().min(8))?.to_vec();
                bytes.splice(at..at, noise);
            }
            _ => bytes.truncate(at),
        }
    }
    Ok(bytes)
}

/// A component of which one core module is made at random.
struct Template {
    bytes: Vec<u8>,
    /// Where the module is, from the number of its section on, and where its own bytes are.
    section: std::ops::Range<usize>,
    module: std::ops::Range<usize>,
}

impl Template {
    /// The module is the `place`th one.
    fn new(bytes: Vec<u8>, mut place: usize) -> Self {
        let mut at = 8;
        loop {
            let (length, start) = leb(&bytes, at + 1);
            let end = start + length;
            if bytes[at] == CORE_MODULE {
                if place == 0 {
                    let section = at..end;
                    let module = start..end;
                    return Self {
                        bytes,
                        section,
                        module,
                    };
                }
                place -= 1;
            }
            at = end;
        }
    }

    /// What the module imports and exports.
    fn shape(&self) -> Vec<u8> {
        self.bytes[self.module.clone()].to_vec()
    }

    /// With this one in its place.
    fn with(&self, module: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes[..self.section.start].to_vec();
        bytes.push(CORE_MODULE);
        module.encode(&mut bytes);
        bytes.extend(&self.bytes[self.section.end..]);
        bytes
    }
}

/// The LEB128 number at `at`, and where it ends.
fn leb(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let (mut value, mut shift) = (0, 0);
    loop {
        value |= usize::from(bytes[at] & 0x7f) << shift;
        at += 1;
        if bytes[at - 1] & 0x80 == 0 {
            return (value, at);
        }
        shift += 7;
    }
}

/// A component that exports a handler, with random code.
///
/// In a tame one only the function is random: it works on a memory that the host can write to, calls
/// what handlers may import, and its answer is at least an address. In a wild one the memory is
/// its own, and so is the function that the host asks for room.
fn random_handler(entropy: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    static TEMPLATES: OnceLock<[Template; 4]> = OnceLock::new();
    let templates = TEMPLATES.get_or_init(|| {
        let tame = |export| {
            let text = with_imports(export);
            Template::new(guests::exporting(export, "1.0.0", &text), 1)
        };
        let wild = |export| {
            let text = alone(export);
            Template::new(guests::exporting(export, "1.0.0", &text), 0)
        };
        [
            tame(&HANDLE),
            tame(&HANDLE_BATCH),
            wild(&HANDLE),
            wild(&HANDLE_BATCH),
        ]
    });
    let template = entropy.choose(templates)?;
    let config = Config {
        module_shape: Some(template.shape()),
        disallow_traps: entropy.arbitrary()?,
        max_instructions: *entropy.choose(&[20, 200, 2_000])?,
        max_funcs: entropy.int_in_range(1..=20)?,
        max_memories: 3,
        max_memory32_bytes: 8 << 20,
        max_tables: 3,
        max_table_elements: 20_000,
        // What this host does not compile, but now and then.
        reference_types_enabled: entropy.ratio(1, 16)?,
        gc_enabled: false,
        exceptions_enabled: false,
        threads_enabled: false,
        memory64_enabled: false,
        wide_arithmetic_enabled: false,
        compact_imports_enabled: false,
        ..Config::default()
    };
    let module = Module::new(config, entropy)?;
    Ok(template.with(&module.to_bytes()))
}

/// A module that has everything itself.
fn alone(export: &Export) -> String {
    let Export { function, core, .. } = export;
    format!(
        r#"(core module $random
            (memory (export "memory") 4)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export "{function}") {core} unreachable))
        (core instance $core (instantiate $random))
        (alias core export $core "{function}" (core func $run))
        (alias core export $core "memory" (core memory $memory))
        (alias core export $core "realloc" (core func $realloc))"#
    )
}

/// A module that imports what handlers may import, between one that has the memory, and one that
/// makes an address of whatever it answers.
fn with_imports(export: &Export) -> String {
    let Export { function, core, .. } = export;
    let parameters = core.matches("i32").count() + core.matches("i64").count() - 1;
    let passed: String = (0..parameters).map(|i| format!("local.get {i} ")).collect();
    format!(
        r#"(import "hostler:handler/delivery@1.0.0" (instance $delivery
            (export "deadline-ms" (func (result u64)))
            (export "is-cancelled" (func (result bool)))
            (export "trace-context" (func (result (tuple (option string) (option string)))))))
        (import "wasi:io/poll@0.2.0" (instance $poll
            (export "pollable" (type $pollable (sub resource)))
            (export "[method]pollable.ready"
                (func (param "self" (borrow $pollable)) (result bool)))
            (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
        (alias export $poll "pollable" (type $pollable))
        (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
            (export "now" (func (result u64)))
            (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
        (import "wasi:random/random@0.2.0" (instance $randomness
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
        (import "wasi:io/error@0.2.0" (instance $io-error
            (export "error" (type (sub resource)))))
        (alias export $io-error "error" (type $error))
        (import "wasi:io/streams@0.2.0" (instance $streams
            (export "output-stream" (type $output (sub resource)))
            (type $failed (variant (case "last-operation-failed" (own $error)) (case "closed")))
            (export "stream-error" (type $stream-error (eq $failed)))
            (export "[method]output-stream.blocking-write-and-flush"
                (func (param "self" (borrow $output)) (param "contents" (list u8))
                    (result (result (error $stream-error)))))))
        (alias export $streams "output-stream" (type $output))
        (import "wasi:cli/stdout@0.2.0" (instance $stdout
            (export "get-stdout" (func (result (own $output))))))
        (import "wasi:cli/exit@0.2.0" (instance $exit
            (export "exit" (func (param "status" (result))))))

        (core module $base
            (memory (export "memory") 4)
            (global $top (mut i32) (i32.const 1024))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32)
                global.get $top
                (global.set $top (i32.and (i32.const -8)
                    (i32.add (i32.const 7) (i32.add (global.get $top) (local.get 3)))))))
        (core instance $base (instantiate $base))
        (alias core export $base "memory" (core memory $memory))
        (alias core export $base "realloc" (core func $realloc))

        (core func $deadline (canon lower (func $delivery "deadline-ms")))
        (core func $cancelled (canon lower (func $delivery "is-cancelled")))
        (core func $trace (canon lower (func $delivery "trace-context")
            (memory $memory) (realloc $realloc)))
        (core func $ready (canon lower (func $poll "[method]pollable.ready")))
        (core func $block (canon lower (func $poll "[method]pollable.block")))
        (core func $drop-pollable (canon resource.drop $pollable))
        (core func $now (canon lower (func $clock "now")))
        (core func $subscribe (canon lower (func $clock "subscribe-duration")))
        (core func $bytes (canon lower (func $randomness "get-random-bytes")
            (memory $memory) (realloc $realloc)))
        (core func $get-stdout (canon lower (func $stdout "get-stdout")))
        (core func $write
            (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
                (memory $memory)))
        (core func $drop-output (canon resource.drop $output))
        (core func $exit-now (canon lower (func $exit "exit")))

        (core module $random
            (import "base" "memory" (memory 4))
            (import "host" "deadline" (func (result i64)))
            (import "host" "cancelled" (func (result i32)))
            (import "host" "trace" (func (param i32)))
            (import "host" "ready" (func (param i32) (result i32)))
            (import "host" "block" (func (param i32)))
            (import "host" "drop-pollable" (func (param i32)))
            (import "host" "now" (func (result i64)))
            (import "host" "subscribe" (func (param i64) (result i32)))
            (import "host" "bytes" (func (param i64 i32)))
            (import "host" "stdout" (func (result i32)))
            (import "host" "write" (func (param i32 i32 i32 i32)))
            (import "host" "drop-output" (func (param i32)))
            (import "host" "exit" (func (param i32)))
            (func (export "{function}") {core} unreachable))
        (core instance $random (instantiate $random
            (with "base" (instance $base))
            (with "host" (instance
                (export "deadline" (func $deadline))
                (export "cancelled" (func $cancelled))
                (export "trace" (func $trace))
                (export "ready" (func $ready))
                (export "block" (func $block))
                (export "drop-pollable" (func $drop-pollable))
                (export "now" (func $now))
                (export "subscribe" (func $subscribe))
                (export "bytes" (func $bytes))
                (export "stdout" (func $get-stdout))
                (export "write" (func $write))
                (export "drop-output" (func $drop-output))
                (export "exit" (func $exit-now))))))

        (core module $end
            (import "random" "{function}" (func $random {core}))
            (func (export "{function}") {core}
                {passed} call $random
                i32.const 0xfff8 i32.and))
        (core instance $end (instantiate $end (with "random" (instance $random))))
        (alias core export $end "{function}" (core func $run))"#
    )
}

/// Bytes of a body for [`answer`].
const ANSWER_MAX: usize = 64 << 10;

/// Bytes at the beginning of its memory that a handler of [`answering`] has not used for anything
/// else: the body, or zeros.
const KNOWN: usize = 1 << 10;

/// Bytes of its memory.
const ANSWERING_MEMORY: usize = 8 << 16;

/// Handlers that answer with their first message's body.
fn answering() -> [Sandbox; 2] {
    let load = |component: &[u8]| {
        let patient = Settings {
            limits: Limits {
                wall: PATIENCE / 2,
                cpu: PATIENCE / 2,
                ..settings().limits
            },
            ..settings()
        };
        Sandbox::load_bytes(component, &patient).expect("it is a handler")
    };
    let memory = "(memory $memory 8)";
    let one = guests::handler(
        memory,
        "(memory.copy (i32.const 0) (local.get 4) (local.get 5))
         (i32.load (i32.const 0))",
    );
    // A message's body is its fifth and sixth word.
    let batch = guests::batch_handler(
        memory,
        "(local $length i32)
         (local.set $length (i32.load offset=20 (local.get 0)))
         (memory.copy (i32.const 0) (i32.load offset=16 (local.get 0)) (local.get $length))
         (i32.load (i32.const 0))",
    );
    [load(&one), load(&batch)]
}

/// What the canonical ABI says about an answer.
enum Expected {
    /// It is not an answer.
    None,
    /// It is these.
    Outcomes(Vec<Outcome>),
    /// It lies where who knows what is, or is too long.
    Any,
}

/// Memory that begins with these bytes.
struct Memory<'a>(&'a [u8]);

/// A read outside of the memory, or of what we know of it.
enum Unread {
    Outside,
    Unknown,
}

impl Memory<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], Unread> {
        let mut bytes = [0; N];
        self.inside(at, N)?;
        if at + N > self.0.len().max(KNOWN) {
            return Err(Unread::Unknown);
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.0.get(at + i).copied().unwrap_or(0);
        }
        Ok(bytes)
    }

    fn inside(&self, at: usize, length: usize) -> Result<(), Unread> {
        match at.checked_add(length) {
            Some(end) if end <= ANSWERING_MEMORY => Ok(()),
            _ => Err(Unread::Outside),
        }
    }

    fn word(&self, at: usize) -> Result<usize, Unread> {
        Ok(u32::from_le_bytes(self.bytes(at)?) as usize)
    }

    fn is_some(&self, at: usize) -> Result<bool, Unread> {
        match self.bytes::<1>(at)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Unread::Outside),
        }
    }

    /// The outcome at this address, which is one of 24 bytes.
    fn outcome(&self, at: usize) -> Result<Outcome, Unread> {
        match self.bytes::<1>(at)? {
            [0] => Ok(Outcome::Ack),
            [1] if !self.is_some(at + 8)? => Ok(Outcome::NackRequeue(None)),
            [1] => {
                let delay = u64::from_le_bytes(self.bytes(at + 16)?);
                Ok(Outcome::NackRequeue(Some(Duration::from_millis(delay))))
            }
            [2] if !self.is_some(at + 8)? => Ok(Outcome::Drop(None)),
            [2] => {
                let (start, length) = (self.word(at + 12)?, self.word(at + 16)?);
                self.inside(start, length)?;
                let end = start + length;
                if length > settings().limits.outcome_text || end > self.0.len().max(KNOWN) {
                    return Err(Unread::Unknown);
                }
                let text = (start..end).map(|i| self.0.get(i).copied().unwrap_or(0));
                match String::from_utf8(text.collect()) {
                    // Text that acts on a terminal is escaped: other tests check that it does not act.
                    Ok(text) if text.chars().any(acts) => Err(Unread::Unknown),
                    Ok(text) => Ok(Outcome::Drop(Some(text))),
                    Err(_) => Err(Unread::Outside),
                }
            }
            _ => Err(Unread::Outside),
        }
    }

    fn all(&self, address: usize, messages: usize) -> Result<Vec<Outcome>, Unread> {
        if messages == 0 {
            return self
                .aligned(address, 8, 24)
                .and_then(|at| Ok(vec![self.outcome(at)?]));
        }
        let at = self.aligned(address, 4, 8)?;
        let (start, count) = (self.word(at)?, self.word(at + 4)?);
        if count > 64 {
            // It may be too much to hand over.
            return Err(Unread::Unknown);
        }
        let start = self.aligned(start, 8, 24 * count)?;
        (0..count).map(|i| self.outcome(start + 24 * i)).collect()
    }

    fn aligned(&self, at: usize, grain: usize, length: usize) -> Result<usize, Unread> {
        self.inside(at, length)?;
        if at.is_multiple_of(grain) {
            Ok(at)
        } else {
            Err(Unread::Outside)
        }
    }
}

/// What is to come of this body: of one message, or of a batch of `messages`.
fn expected(body: &[u8], messages: usize) -> Expected {
    let memory = Memory(body);
    let said = memory.word(0).and_then(|at| memory.all(at, messages));
    match said {
        Ok(outcomes) => Expected::Outcomes(outcomes),
        Err(Unread::Outside) => Expected::None,
        Err(Unread::Unknown) => Expected::Any,
    }
}
