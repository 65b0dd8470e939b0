//! What the guests for other hosts do with a message: its body says, as actions joined by `+`. The last one
//! that answers counts; without an answer the message is done.
//!
//! `ack`, `err:TEXT`, `reply:BYTES` (that long a text of an error), `say:TEXT`, `count` (how many messages this instance
//! has seen), and those of the crate `actions`.

use std::sync::atomic::{AtomicU32, Ordering};

/// Kept from message to message, if the instance is.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Do what the body says. `extra` knows the actions of one guest, by name and argument: whether it knew it.
pub fn handle(body: &[u8], extra: &dyn Fn(&str, &str) -> bool) -> Result<(), String> {
    SEEN.fetch_add(1, Ordering::Relaxed);
    let Ok(text) = std::str::from_utf8(body) else {
        println!("{} bytes", body.len());
        return Ok(());
    };
    for action in text.split('+') {
        let (name, argument) = action.split_once(':').unwrap_or((action, ""));
        match name {
            "" | "ack" => {}
            "err" => return Err(argument.to_owned()),
            "reply" => return Err("x".repeat(actions::number(name, argument) as usize)),
            "say" => println!("{argument}"),
            "count" => println!("{}", SEEN.load(Ordering::Relaxed)),
            _ if actions::act(name, argument) => {}
            _ => assert!(extra(name, argument), "no action `{name}`"),
        }
    }
    Ok(())
}
