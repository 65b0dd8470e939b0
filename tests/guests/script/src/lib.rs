//! What the scripted guests do with a message: its body says.
//!
//! The body is a list of steps, separated by `;` or `,`. Attempt 1 takes the first step, attempt 2
//! the second, and so on; the last one repeats. A step is a list of actions joined by `+`; the
//! first that answers ends it, and a step without an answer acks. So `sleep:50+nack,ack` waits,
//! asks for another attempt, and acks that.
//!
//! Answers: `ack`, `nack`, `nack:MS`, `drop`, `drop:REASON`, and those that report by a drop
//! reason: `echo` (what the message looks like), `count` (how many messages this instance has
//! seen), `deadline`, `cancelled`, `trace`, `clock`, `world` (what there is of arguments,
//! variables, files and network), `reply:BYTES` (that long a reason), `mark` (which version it is).
//!
//! Actions: `sleep:MS`, `spin:MS`, `loop`, `doze` (for ever, napping in
//! between), `trap`, `panic`, `exit:CODE`, `grow:MIB`, `recurse`,
//! `recurse-host`, `copy:MIB` (for ever), `lines:N`, `long:BYTES` (one line), `text:TEXT`, `version`,
//! `ansi`, `half` (a line without an end), `random:BYTES`, `handles:N` (held, and given back), `leak:N`
//! (held for ever), `wait-cancelled`.

use std::hint::black_box;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

wit_bindgen::generate!({
    path: "../../../wit",
    world: "handler",
    pub_export_macro: true,
    default_bindings_module: "script",
});

pub use exports::hostler::handler::message_handler::Guest;
pub use hostler::handler::delivery;
pub use hostler::handler::types::{Message, Outcome};

/// What an action came to.
pub enum Step {
    /// Go on with the next one.
    Continue,
    /// This is the answer.
    Answer(Outcome),
}


/// Kept from message to message, if the instance is.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Which version this is: tests write another number into the component.
static VERSION: [u8; 26] = *b"hostler-version-0000000000";

/// Do what the body says. `extra` knows the actions that only one guest has, by name and argument.
#[inline(never)]
pub fn handle(message: &Message, extra: &dyn Fn(&str, &str) -> Option<Step>) -> Outcome {
    println!("start {} {}", message.id, message.attempt);
    SEEN.fetch_add(1, Ordering::Relaxed);
    let script = String::from_utf8_lossy(&message.body);
    let steps: Vec<&str> = script.split([';', ',']).map(str::trim).collect();
    let position = usize::try_from(message.attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    let step = steps[position.min(steps.len() - 1)];
    for action in step.split('+') {
        let (name, argument) = action.split_once(':').unwrap_or((action, ""));
        let done = extra(name, argument).unwrap_or_else(|| act(name, argument, message));
        if let Step::Answer(outcome) = done {
            return outcome;
        }
    }
    Outcome::Ack
}

fn act(name: &str, argument: &str, message: &Message) -> Step {
    let number = || {
        argument
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("`{name}` needs a number, not `{argument}`"))
    };
    match name {
        "" | "ack" => return Step::Answer(Outcome::Ack),
        "nack" if argument.is_empty() => return Step::Answer(Outcome::NackRequeue(None)),
        "nack" => return Step::Answer(Outcome::NackRequeue(Some(number()))),
        "drop" if argument.is_empty() => return Step::Answer(Outcome::Drop(None)),
        "drop" => return say(argument.to_owned()),
        "reply" => return say("x".repeat(number() as usize)),
        "echo" => return say(echo(message)),
        "count" => return say(SEEN.load(Ordering::Relaxed).to_string()),
        "deadline" => return say(delivery::deadline_ms().to_string()),
        "cancelled" => return say(delivery::is_cancelled().to_string()),
        "trace" => return say(format!("{:?}", delivery::trace_context())),
        "clock" => return say(clock()),
        "world" => return say(world()),
        "mark" => return say(mark()),
        "sleep" => std::thread::sleep(Duration::from_millis(number())),
        "spin" => spin(Duration::from_millis(number())),
        "loop" => loop {
            black_box(0);
        },
        "doze" => loop {
            spin(Duration::from_millis(9));
            std::thread::sleep(Duration::from_millis(1));
        },
        "trap" => core::arch::wasm32::unreachable(),
        "panic" => panic!("asked to panic"),
        "exit" => std::process::exit(number() as i32),
        "grow" => grow(number() as usize),
        "recurse" => {
            black_box(recurse(number()));
        }
        "recurse-host" => {
            black_box(recurse_host(number()));
        }
        "copy" => copy(number() as usize),
        "lines" => (0..number()).for_each(|i| println!("line {i}")),
        "long" => println!("{}", "y".repeat(number() as usize)),
        "text" => println!("{argument}"),
        "version" => println!("version {}", mark()),
        "ansi" => println!("\u{1b}[31mred\u{1b}[0m\rforged\u{202e}\u{85}\0"),
        "half" => {
            print!("half");
            std::io::stdout().flush().expect("stdout is there");
        }
        "random" => random(number()),
        "handles" => drop(black_box(handles(number()))),
        "leak" => std::mem::forget(handles(number())),
        "wait-cancelled" => {
            while !delivery::is_cancelled() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        _ => panic!("no action `{name}`"),
    }
    Step::Continue
}

fn mark() -> String {
    String::from_utf8_lossy(&black_box(&VERSION)[16..]).into_owned()
}

fn say(reason: String) -> Step {
    Step::Answer(Outcome::Drop(Some(reason)))
}

fn echo(message: &Message) -> String {
    let headers: Vec<_> = message
        .headers
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!(
        "id={} queue={} attempt={} max={} enqueued={} body={} headers=[{}]",
        message.id,
        message.queue,
        message.attempt,
        message.max_attempts,
        message.enqueued_ms,
        message.body.len(),
        headers.join("|"),
    )
}

fn clock() -> String {
    let epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("the clock is set");
    epoch.as_secs().to_string()
}

fn world() -> String {
    let connect = std::net::TcpStream::connect("127.0.0.1:6379").map_err(|e| e.kind());
    format!(
        "args={} vars={} file={:?} dir={:?} write={:?} tcp={:?}",
        std::env::args().count(),
        std::env::vars().count(),
        std::fs::read("/etc/passwd").map_err(|e| e.kind()),
        std::fs::read_dir(".").map(|_| ()).map_err(|e| e.kind()),
        std::fs::write("/tmp/x", "x").map_err(|e| e.kind()),
        connect.map(|_| ()),
    )
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        for i in 0..10_000 {
            black_box(i);
        }
    }
}

fn grow(mebibytes: usize) {
    let held: Vec<Vec<u8>> = (0..mebibytes).map(|_| vec![1; 1 << 20]).collect();
    black_box(held);
}

/// Only the call stack grows, not the one in linear memory.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 {
        return 1;
    }
    (recurse(depth - 1) ^ depth).wrapping_mul(3)
}

#[inline(never)]
fn recurse_host(depth: u64) -> u64 {
    if depth == 0 {
        return 1;
    }
    (recurse_host(depth - 1) ^ delivery::deadline_ms()).wrapping_mul(3)
}

fn copy(mebibytes: usize) {
    let mut memory = vec![1_u8; mebibytes << 20];
    let half = memory.len() / 2;
    loop {
        memory.copy_within(..half, half);
        black_box(&mut memory);
    }
}

fn random(bytes: u64) {
    black_box(wasip2::random::random::get_random_bytes(bytes));
}

fn handles(count: u64) -> Vec<wasip2::clocks::monotonic_clock::Pollable> {
    (0..count)
        .map(|_| wasip2::clocks::monotonic_clock::subscribe_duration(u64::MAX))
        .collect()
}
