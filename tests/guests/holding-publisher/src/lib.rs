//! As `scripted`, and `publish:NAME:BODY`, `answer:TEXT` and `hold:MS`. An error is the reason of a drop; behind `try`, it goes to stdout.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:holding-publisher;
        world holding-publisher {
            import hostler:handler/publisher@1.2.0;
            import hostler:handler/flow@1.2.0;
            import hostler:handler/reply@1.2.0;
        }
    ",
    path: "../../../wit",
    generate_all,
});

use hostler::handler::flow::hold;
use hostler::handler::publisher::{Outgoing, publish};
use hostler::handler::reply::set;

struct HoldingPublisher;

fn act(name: &str, argument: &str) -> Option<Result<(), String>> {
    match name {
        "answer" => Some(set(argument.as_bytes())),
        "hold" => Some(hold(argument.parse().ok()?)),
        "publish" => {
            let (to, body) = argument.split_once(':')?;
            let outgoing = Outgoing {
                body: body.as_bytes().to_vec(),
                headers: Vec::new(),
                delay_ms: None,
            };
            Some(publish(to, &outgoing))
        }
        _ => None,
    }
}

impl script::Guest for HoldingPublisher {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| {
            if name == "try" {
                let (name, argument) = argument.split_once(':')?;
                if let Err(error) = act(name, argument)? {
                    println!("refused: {error}");
                }
                return Some(Step::Continue);
            }
            Some(match act(name, argument)? {
                Ok(()) => Step::Continue,
                Err(error) => Step::Answer(Outcome::Drop(Some(error))),
            })
        })
    }
}

script::export!(HoldingPublisher);
