//! As `scripted`, and replies: `answer:TEXT` replies so, and `answer-of:BYTES` with a reply of that size. An error is the reason
//! of a drop. The reply to a body of JSON is that body.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    inline: "
        package test:replying;
        world replying {
            import hostler:handler/reply@1.2.0;
        }
    ",
    path: "../../../wit",
    generate_all,
});

use hostler::handler::reply::set;

struct Replying;

impl script::Guest for Replying {
    fn handle(message: Message) -> Outcome {
        if message.body.starts_with(b"{") {
            return match set(&message.body) {
                Ok(()) => Outcome::Ack,
                Err(error) => Outcome::Drop(Some(error)),
            };
        }
        script::handle(&message, &|name, argument| {
            let set = match name {
                "answer" => set(argument.as_bytes()),
                "answer-of" => set(&vec![b'x'; argument.parse().ok()?]),
                _ => return None,
            };
            Some(match set {
                Ok(()) => Step::Continue,
                Err(error) => Step::Answer(Outcome::Drop(Some(error))),
            })
        })
    }
}

script::export!(Replying);
