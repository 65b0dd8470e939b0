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
//! Actions: those of the crate `actions`, `version`, `wait-cancelled`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use actions::world;

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
    let number = || actions::number(name, argument);
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
        "version" => println!("version {}", mark()),
        "wait-cancelled" => {
            while !delivery::is_cancelled() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        _ => assert!(actions::act(name, argument), "no action `{name}`"),
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
