//! Acts once for each message, and acknowledges: so that benchmarks measure what an effect costs. The body
//! says which: `publish N` (N messages of 100 bytes), `keys` (reads a key and sets it), `http URL`,
//! `post URL`, `timed URL` (the same, and stderr says how long it took); any other body: nothing.

wit_bindgen::generate!({
    inline: "
        package test:costs;
        world costs {
            import hostler:handler/publisher@1.2.0;
            import hostler:handler/http@1.2.0;
            import hostler:handler/key-value@1.2.0;
            export hostler:handler/message-handler@1.2.0;
        }
    ",
    path: "../../../wit",
    generate_all,
});

use std::time::Instant;

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::http::{Request, fetch};
use hostler::handler::key_value;
use hostler::handler::publisher::{Outgoing, publish};
use hostler::handler::types::{Message, Outcome};

/// How many keys there are.
const KEYS: u32 = 1000;

struct Costs;

impl Guest for Costs {
    fn handle(message: Message) -> Outcome {
        let body = String::from_utf8_lossy(&message.body);
        let (action, argument) = body.split_once(' ').unwrap_or((&body, ""));
        let done = match action {
            "publish" => publish_all(argument.trim().parse().unwrap_or(0)),
            "keys" => count_key(&message.id),
            "http" => ask("GET", argument.trim()),
            "post" => ask("POST", argument.trim()),
            "timed" => timed(argument.trim()),
            _ => Ok(()),
        };
        match done {
            Ok(()) => Outcome::Ack,
            Err(why) => Outcome::Drop(Some(why)),
        }
    }
}

fn publish_all(count: usize) -> Result<(), String> {
    (0..count).try_for_each(|_| {
        let outgoing = Outgoing {
            body: vec![b'x'; 100],
            headers: Vec::new(),
            delay_ms: None,
        };
        publish("out", &outgoing)
    })
}

fn count_key(id: &str) -> Result<(), String> {
    let number = id.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let key = format!("key-{}", number % KEYS);
    let mut value = key_value::get(&key)?.unwrap_or_default();
    value.resize(100, b'x');
    key_value::set(&key, &value, None)
}

fn timed(url: &str) -> Result<(), String> {
    let begin = Instant::now();
    ask("POST", url)?;
    eprintln!("took {} us", begin.elapsed().as_micros());
    Ok(())
}

fn ask(method: &str, url: &str) -> Result<(), String> {
    let request = Request {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: Vec::new(),
        body: None,
        timeout_ms: None,
    };
    match fetch(&request) {
        Ok(response) if response.status == 200 => Ok(()),
        Ok(response) => Err(format!("status {}", response.status)),
        Err(error) => Err(format!("{error:?}")),
    }
}

export!(Costs);
