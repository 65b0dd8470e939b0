//! As `scripted`, and jobs that wait for a server: `poll:MS|URL` sends the body and the id of the message there, as a POST. If
//! the status does not begin with 2, it holds the message for `MS` milliseconds, and asks for another attempt.
//! `remember:NAME` remembers a value, and writes what became of it to stdout.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:polling;
        world polling {
            import hostler:handler/flow@1.2.0;
            import hostler:handler/http@1.2.0;
            import hostler:handler/journal@1.2.0;
        }
    ",
    path: "../../../wit",
    generate_all,
});

use hostler::handler::flow::hold;
use hostler::handler::http::{Request, fetch};
use hostler::handler::journal::remember;

struct Polling;

impl script::Guest for Polling {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| match name {
            "poll" => {
                let (ms, url) = argument.split_once('|')?;
                let answer = fetch(&Request {
                    method: "POST".to_owned(),
                    url: url.to_owned(),
                    headers: Vec::new(),
                    body: Some(message.id.clone().into_bytes()),
                    timeout_ms: None,
                });
                if answer.is_ok_and(|answer| answer.status / 100 == 2) {
                    return Some(Step::Continue);
                }
                if let Err(why) = hold(ms.parse().ok()?) {
                    println!("not held: {why}");
                }
                Some(Step::Answer(Outcome::NackRequeue(None)))
            }
            "remember" => {
                println!("{:?}", remember(argument, b"known"));
                Some(Step::Continue)
            }
            _ => None,
        })
    }
}

script::export!(Polling);
