//! As `scripted`, and values that it remembers: `remember:NAME=VALUE`, `recall:NAME` (answers the value, by a drop reason),
//! `once:NAME=VALUE` (remembers the value unless there is one, and writes which it has to stdout). An error is the reason of
//! a drop.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:durable;
        world durable {
            import hostler:handler/journal@1.2.0;
        }
    ",
    path: "../../../wit",
    generate_all,
});

use hostler::handler::journal::{recall, remember};

struct Durable;

fn say(text: String) -> Option<Step> {
    Some(Step::Answer(Outcome::Drop(Some(text))))
}

fn remembered(name: &str, value: &[u8]) -> Option<Step> {
    match remember(name, value) {
        Ok(()) => Some(Step::Continue),
        Err(why) => say(why),
    }
}

impl script::Guest for Durable {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            match name {
                "remember" => remembered(key, value.as_bytes()),
                "large" => remembered("large", &vec![b'x'; argument.parse().ok()?]),
                "recall" => say(match recall(key) {
                    Ok(Some(value)) => String::from_utf8_lossy(&value).into_owned(),
                    Ok(None) => "nothing".to_owned(),
                    Err(why) => why,
                }),
                "once" => match recall(key) {
                    Ok(Some(known)) => {
                        println!("has {}", String::from_utf8_lossy(&known));
                        Some(Step::Continue)
                    }
                    Ok(None) => {
                        println!("makes {value}");
                        remembered(key, value.as_bytes())
                    }
                    Err(why) => say(why),
                },
                _ => None,
            }
        })
    }
}

script::export!(Durable);
