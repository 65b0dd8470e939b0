//! A handler that takes several orders in one call. `order.rs` decides on each order; this file
//! connects it to hostler.

mod order;

wit_bindgen::generate!({
    path: "wit",
    world: "batch",
    additional_derives: [PartialEq],
});

use exports::hostler::handler::batch_handler::Guest;
use hostler::handler::types::{Message, Outcome};

struct Orders;

impl Guest for Orders {
    fn handle_batch(messages: Vec<Message>) -> Vec<Outcome> {
        let outcomes: Vec<Outcome> = messages
            .iter()
            .map(|message| order::handle(&message.body, message.attempt))
            .collect();
        // Standard output goes to the host's log.
        println!("{}", summary(&outcomes));
        outcomes
    }
}

/// The outcomes of a batch, in one line.
fn summary(outcomes: &[Outcome]) -> String {
    let count = |such: fn(&Outcome) -> bool| outcomes.iter().filter(|o| such(o)).count();
    format!(
        "{} orders: {} charged, {} to try again, {} dropped",
        outcomes.len(),
        count(|outcome| matches!(outcome, Outcome::Ack)),
        count(|outcome| matches!(outcome, Outcome::NackRequeue(_))),
        count(|outcome| matches!(outcome, Outcome::Drop(_))),
    )
}

export!(Orders);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_summarizes_a_batch() {
        let outcomes = [Outcome::Ack, Outcome::Drop(None), Outcome::Ack];
        assert_eq!(
            summary(&outcomes),
            "3 orders: 2 charged, 0 to try again, 1 dropped"
        );
    }
}
