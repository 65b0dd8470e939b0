//! The orders example of `guest-examples/rust` without its world: what `order.rs` decides, for handlers of other
//! hosts and for programs.

#[path = "../../../../guest-examples/rust/src/order.rs"]
mod order;

/// The names by which `order.rs` knows the outcome.
mod hostler {
    pub mod handler {
        pub mod types {
            /// As in hostler's WIT.
            #[derive(Debug, PartialEq)]
            pub enum Outcome {
                Ack,
                NackRequeue(Option<u64>),
                Drop(Option<String>),
            }
        }
    }
}

pub use hostler::handler::types::Outcome;

/// Decide, and log it as the example does.
pub fn handle(body: &[u8], attempt: u32) -> Outcome {
    let outcome = order::handle(body, attempt);
    println!("attempt {attempt}: {}", text(&outcome));
    outcome
}

/// What the example logs.
pub fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ack => "charged".to_owned(),
        Outcome::NackRequeue(Some(delay)) => format!("payment timed out, again in {delay} ms"),
        Outcome::NackRequeue(None) => "payment timed out".to_owned(),
        Outcome::Drop(reason) => reason.clone().unwrap_or_default(),
    }
}

/// Done, or a text: what a handler of another host can say. It knows no attempt.
pub fn done(body: &[u8]) -> Result<(), String> {
    match handle(body, 1) {
        Outcome::Ack => Ok(()),
        other => Err(text(&other)),
    }
}
