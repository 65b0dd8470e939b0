//! As `scripted`, and actions that publish: `publish:NAME:BODY`, `publish-each:N:NAME:BODY` (N times),
//! `later:NAME:MS:BODY`, `header:NAME:KEY=VALUE` (one message with this header and an empty body),
//! `big:NAME:BYTES`, `again:NAME` (the body of the message itself). An error of `publish` is the reason of a drop; behind `try`, as the action
//! `try:publish:...`, it goes to stdout.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:publishing;
        world publishing { import hostler:handler/publisher@1.2.0; }
    ",
    path: "../../../wit",
    generate_all,
});

use hostler::handler::publisher::{Outgoing, publish};

struct Publishing;

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn act(name: &str, argument: &str, message: &Message) -> Option<Result<(), String>> {
    let plain = |body: &str| Outgoing {
        body: body.as_bytes().to_vec(),
        headers: Vec::new(),
        delay_ms: None,
    };
    let (first, rest) = argument.split_once(':').unwrap_or((argument, ""));
    Some(match name {
        "publish" => publish(first, &plain(rest)),
        "publish-each" => {
            let (to, body) = rest.split_once(':').unwrap_or((rest, ""));
            (0..number(first)).try_for_each(|_| publish(to, &plain(body)))
        }
        "later" => {
            let (delay, body) = rest.split_once(':').unwrap_or((rest, ""));
            let message = Outgoing {
                delay_ms: Some(number(delay)),
                ..plain(body)
            };
            publish(first, &message)
        }
        "header" => {
            let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
            let message = Outgoing {
                headers: vec![(key.to_owned(), value.to_owned())],
                ..plain("")
            };
            publish(first, &message)
        }
        "again" => {
            let outgoing = Outgoing {
                body: message.body.clone(),
                ..plain("")
            };
            publish(first, &outgoing)
        }
        "big" => publish(first, &plain(&"x".repeat(number(rest)))),
        _ => return None,
    })
}

impl script::Guest for Publishing {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| {
            if name == "try" {
                let (name, argument) = argument.split_once(':')?;
                if let Err(error) = act(name, argument, &message)? {
                    println!("refused: {error}");
                }
                return Some(Step::Continue);
            }
            Some(match act(name, argument, &message)? {
                Ok(()) => Step::Continue,
                Err(error) => Step::Answer(Outcome::Drop(Some(error))),
            })
        })
    }
}

script::export!(Publishing);
