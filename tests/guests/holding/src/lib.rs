//! As `scripted`, and holds: `hold:MS` asks for a hold, and writes the reason of a refusal to stdout; `wait:TOTAL:MS`
//! holds the message, and asks for another attempt, until it is `TOTAL` milliseconds old.

use std::time::{SystemTime, UNIX_EPOCH};

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:holding;
        world holding {
            import hostler:handler/flow@1.2.0;
        }
    ",
    path: "../../../wit",
    generate_all,
});

use hostler::handler::flow::hold;

struct Holding;

impl script::Guest for Holding {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| match name {
            "hold" => {
                if let Err(why) = hold(argument.parse().ok()?) {
                    println!("not held: {why}");
                }
                Some(Step::Continue)
            }
            "wait" => {
                let (total, ms) = argument.split_once(':')?;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
                if now.as_millis()
                    >= u128::from(message.enqueued_ms) + total.parse::<u128>().ok()?
                {
                    return Some(Step::Continue);
                }
                if let Err(why) = hold(ms.parse().ok()?) {
                    println!("not held: {why}");
                }
                Some(Step::Answer(Outcome::NackRequeue(None)))
            }
            _ => None,
        })
    }
}

script::export!(Holding);
