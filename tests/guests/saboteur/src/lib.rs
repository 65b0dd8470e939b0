//! As `scripted`, and one action more: `host-panic`.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({ path: "wit", world: "saboteur" });

use hostler::fault_points::host;

struct Saboteur;

impl script::Guest for Saboteur {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, _| {
            (name == "host-panic").then(|| {
                host::panic();
                Step::Continue
            })
        })
    }
}

script::export!(Saboteur);
