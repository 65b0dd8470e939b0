//! The orders example as a program. As a module it ends with the codes 75 and 65; as a component, whose codes do not
//! arrive, it says on stderr what it wants.

use std::io::{Read as _, stdin};
use std::process::exit;

use orders::Outcome;

fn main() {
    let mut body = Vec::new();
    stdin().read_to_end(&mut body).expect("stdin is there");
    let attempt = std::env::var("HOSTLER_ATTEMPT").ok();
    let attempt = attempt.and_then(|number| number.parse().ok());
    let outcome = orders::handle(&body, attempt.expect("the host says it"));
    let has_codes = cfg!(target_env = "p1");
    match outcome {
        Outcome::Ack => {}
        Outcome::NackRequeue(_) if has_codes => exit(75),
        Outcome::NackRequeue(delay) => {
            eprintln!("hostler: nack {}ms", delay.unwrap_or_default());
            exit(1);
        }
        Outcome::Drop(reason) => {
            let begin = if has_codes { "" } else { "hostler: drop " };
            eprintln!("{begin}{}", reason.unwrap_or_default());
            exit(65);
        }
    }
}
