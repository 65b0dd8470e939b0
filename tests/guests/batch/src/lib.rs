//! Takes batches: does what the body of each message says, in turn; see the crate `script`.
//!
//! Two actions more: `miss` answers nothing for its message, `more` answers twice, or `more:N` times.

use std::cell::Cell;

use script::{Message, Outcome, Step};

wit_bindgen::generate!({
    path: "../../../wit",
    world: "batch",
    with: {
        "hostler:handler/types@1.2.0": script::hostler::handler::types,
        "hostler:handler/delivery@1.2.0": script::delivery,
    },
});

struct Batch;

impl exports::hostler::handler::batch_handler::Guest for Batch {
    fn handle_batch(messages: Vec<Message>) -> Vec<Outcome> {
        println!("batch {}", messages.len());
        let size = messages.len();
        let mut outcomes = Vec::new();
        for message in messages {
            let answers = Cell::new(1);
            let outcome = script::handle(&message, &|name, argument| match name {
                "miss" => {
                    answers.set(0);
                    Some(Step::Continue)
                }
                "more" => {
                    answers.set(argument.parse().unwrap_or(2));
                    Some(Step::Continue)
                }
                "size" => Some(Step::Answer(Outcome::Drop(Some(size.to_string())))),
                _ => None,
            });
            outcomes.extend(std::iter::repeat_n(outcome, answers.get()));
        }
        outcomes
    }
}

export!(Batch);
