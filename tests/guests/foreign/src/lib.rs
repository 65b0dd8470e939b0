//! What the guests for other hosts do with a message: its body says, as actions joined by `+`. The last one
//! that answers counts; without an answer the message is done.
//!
//! `ack`, `err:TEXT`, `say:TEXT`, `count` (how many messages this instance has seen), `sleep:MS`, `grow:MIB`,
//! `trap`, `loop`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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
            "say" => println!("{argument}"),
            "count" => println!("{}", SEEN.load(Ordering::Relaxed)),
            "sleep" => std::thread::sleep(Duration::from_millis(number(argument))),
            "grow" => {
                let held: Vec<_> = (0..number(argument)).map(|_| vec![1_u8; 1 << 20]).collect();
                black_box(held);
            }
            "trap" => core::arch::wasm32::unreachable(),
            "loop" => loop {
                black_box(0);
            },
            _ => assert!(extra(name, argument), "no action `{name}`"),
        }
    }
    Ok(())
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("`{text}` is not a number"))
}
