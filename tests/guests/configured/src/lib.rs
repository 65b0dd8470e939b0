//! As `scripted`, and two actions more, which report by a drop reason: `config:NAME` (a value of its
//! configuration), `configs` (all of them).

use script::{Message, Outcome, Step};

wit_bindgen::generate!({ path: "wit", world: "configured", generate_all });

use wasi::config::store;

struct Configured;

fn say(text: String) -> Option<Step> {
    Some(Step::Answer(Outcome::Drop(Some(text))))
}

impl script::Guest for Configured {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| match name {
            "config" => say(match store::get(argument) {
                Ok(Some(value)) => value,
                other => format!("{other:?}"),
            }),
            "configs" => say(format!("{:?}", store::get_all())),
            _ => None,
        })
    }
}

script::export!(Configured);
