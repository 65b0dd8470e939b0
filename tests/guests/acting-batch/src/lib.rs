//! Takes batches, and acts: as `batch`, and actions that publish: `publish:NAME:BODY` with the message
//! itself, `at:INDEX:NAME:BODY` with the message that has this index in the call; and on keys: `set:KEY=VALUE`,
//! `set-at:INDEX:KEY=VALUE`, `delete:KEY`, `increment:KEY:DELTA`, `add:KEY` (reads a number, and sets the next
//! one), `find:KEY=VALUE` and `find:KEY` (an error unless the key has this value, or none). An error is the
//! reason of a drop. `miss` answers nothing for its message, `hold:MS` holds it, and
//! `hold-at:INDEX:MS` that with this index; `answer:TEXT` and `answer-at:INDEX:TEXT` reply.

use std::cell::Cell;

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:acting;
        world acting {
            import hostler:handler/batch-effects@1.2.0;
            import hostler:handler/batch-flow@1.2.0;
            import hostler:handler/batch-reply@1.2.0;
            export hostler:handler/batch-handler@1.2.0;
        }
    ",
    path: "../../../wit",
    with: {
        "hostler:handler/types@1.2.0": script::hostler::handler::types,
        "hostler:handler/batch-effects@1.2.0": generate,
        "hostler:handler/batch-flow@1.2.0": generate,
        "hostler:handler/batch-reply@1.2.0": generate,
    },
});

use hostler::handler::batch_effects::{Outgoing, delete, get, increment, publish, set};
use hostler::handler::batch_flow::hold;
use hostler::handler::batch_reply;

struct Acting;

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn act(index: u32, name: &str, argument: &str) -> Option<Result<(), String>> {
    let (first, rest) = argument.split_once(':').unwrap_or((argument, ""));
    let publish = |index, to: &str, body: &str| {
        let outgoing = Outgoing {
            body: body.as_bytes().to_vec(),
            headers: Vec::new(),
            delay_ms: None,
        };
        publish(index, to, &outgoing)
    };
    let set_pair = |index, text: &str| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        set(index, key, value.as_bytes(), None)
    };
    let find = |key: &str| get(index, key).map(|value| value.map(String::from_utf8));
    Some(match name {
        "publish" => publish(index, first, rest),
        "at" => {
            let (to, body) = rest.split_once(':').unwrap_or((rest, ""));
            publish(number(first), to, body)
        }
        "answer" => batch_reply::set(index, argument.as_bytes()),
        "answer-at" => batch_reply::set(number(first), rest.as_bytes()),
        "hold" => hold(index, number(argument)),
        "hold-at" => hold(number(first), number(rest)),
        "set" => set_pair(index, argument),
        "set-at" => set_pair(number(first), rest),
        "delete" => delete(index, argument),
        "increment" => increment(index, first, number(rest)).map(drop),
        "add" => find(argument).and_then(|value| {
            let before: u64 = value.map_or(0, |text| number(&text.unwrap_or_default()));
            set(index, argument, (before + 1).to_string().as_bytes(), None)
        }),
        "find" => {
            let (key, wanted) = match argument.split_once('=') {
                Some((key, value)) => (key, Some(Ok(value.to_owned()))),
                None => (argument, None),
            };
            find(key).and_then(|value| match value == wanted {
                true => Ok(()),
                false => Err(format!("{key} is {value:?}")),
            })
        }
        _ => return None,
    })
}

impl exports::hostler::handler::batch_handler::Guest for Acting {
    fn handle_batch(messages: Vec<Message>) -> Vec<Outcome> {
        println!("batch {}", messages.len());
        let mut outcomes = Vec::new();
        for (message, index) in messages.iter().zip(0..) {
            let misses = Cell::new(false);
            let outcome = script::handle(message, &|name, argument| match name {
                "miss" => {
                    misses.set(true);
                    Some(Step::Continue)
                }
                _ => Some(match act(index, name, argument)? {
                    Ok(()) => Step::Continue,
                    Err(error) => Step::Answer(Outcome::Drop(Some(error))),
                }),
            });
            if !misses.get() {
                outcomes.push(outcome);
            }
        }
        outcomes
    }
}

export!(Acting);
