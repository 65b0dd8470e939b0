//! As `scripted`, and actions on keys: `set:KEY=VALUE`, `lasting:MS:KEY=VALUE` (with a time to live),
//! `large:BYTES:KEY`, `set-each:N:PREFIX`, `long:N` (a key of N bytes), `delete:KEY`, `get:KEY` (answers the
//! value), `get-each:N:KEY`, `find:KEY=VALUE` and `find:KEY` (drops the message unless the key has this value,
//! or none), `add:KEY` (reads a number, and sets the next one), `increment:KEY:DELTA` (answers the sum),
//! `empty:CALL` (with the empty key), and `publish:NAME:BODY`. An error is the reason of a drop. Behind `quiet`,
//! as in `quiet:set:...`, there is no answer, and an error goes to stdout.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:keyed;
        world keyed {
            import hostler:handler/publisher@1.2.0;
            import hostler:handler/key-value@1.2.0;
        }
    ",
    path: "../../../wit",
    generate_all,
});

use hostler::handler::key_value::{delete, get, increment, set};
use hostler::handler::publisher::{Outgoing, publish};

struct Keyed;

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn text(value: Option<Vec<u8>>) -> String {
    value.map_or("none".to_owned(), |value| {
        String::from_utf8_lossy(&value).into_owned()
    })
}

fn act(name: &str, argument: &str) -> Option<Result<Option<String>, String>> {
    let (first, rest) = argument.split_once(':').unwrap_or((argument, ""));
    let pair = |text: &str| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        (key.to_owned(), value.as_bytes().to_vec())
    };
    Some(match name {
        "set" => {
            let (key, value) = pair(argument);
            set(&key, &value, None).map(|()| None)
        }
        "lasting" => {
            let (key, value) = pair(rest);
            set(&key, &value, Some(number(first))).map(|()| None)
        }
        "large" => set(rest, &vec![b'x'; number(first)], None).map(|()| None),
        "set-each" => (0..number(first))
            .try_for_each(|n: usize| set(&format!("{rest}{n}"), b"v", None))
            .map(|()| None),
        "delete" => delete(argument).map(|()| None),
        "get" => get(argument).map(|value| Some(text(value))),
        "get-each" => (0..number(first))
            .try_for_each(|_: usize| get(rest).map(drop))
            .map(|()| None),
        "find" => {
            let wanted = argument.split_once('=');
            let (key, wanted) = wanted.map_or((argument, "none"), |(key, value)| (key, value));
            get(key).and_then(|value| match text(value) {
                found if found == wanted => Ok(None),
                found => Err(format!("`{key}` is {found}, not {wanted}")),
            })
        }
        "add" => get(argument).and_then(|value| {
            let before: u64 = value.map_or(0, |value| number(&String::from_utf8_lossy(&value)));
            set(argument, (before + 1).to_string().as_bytes(), None).map(|()| None)
        }),
        "increment" => increment(first, number(rest)).map(|sum| Some(sum.to_string())),
        "long" => set(&"k".repeat(number(first)), b"v", None).map(|()| None),
        "empty" => match argument {
            "get" => get("").map(|value| Some(text(value))),
            "set" => set("", b"v", None).map(|()| None),
            "delete" => delete("").map(|()| None),
            _ => increment("", 1).map(|_| None),
        },
        "publish" => {
            let message = Outgoing {
                body: rest.as_bytes().to_vec(),
                headers: Vec::new(),
                delay_ms: None,
            };
            publish(first, &message).map(|()| None)
        }
        _ => return None,
    })
}

impl script::Guest for Keyed {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| {
            if name == "quiet" {
                let (name, argument) = argument.split_once(':')?;
                if let Err(error) = act(name, argument)? {
                    println!("refused: {error}");
                }
                return Some(Step::Continue);
            }
            Some(match act(name, argument)? {
                Ok(None) => Step::Continue,
                Ok(Some(said)) => Step::Answer(Outcome::Drop(Some(said))),
                Err(error) => Step::Answer(Outcome::Drop(Some(error))),
            })
        })
    }
}

script::export!(Keyed);
