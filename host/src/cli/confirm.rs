//! A question to a person, before something that cannot be undone.

use std::io::BufRead;

use crate::cli::{Exit, Failure, output};

/// Ask a person. `undone` says what did not happen, where no person answers.
pub(super) fn confirm(question: &str, undone: &str) -> Result<bool, Failure> {
    output::people(question);
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let read = read.map_err(|error| Failure::io("cannot read stdin", &error))?;
    if read == 0 {
        output::people("\n");
        let what = format!("there was no answer: {undone}");
        return Err(Failure::new(Exit::Usage, what).hint("give `--yes` where no person can answer"));
    }
    let answer = answer.trim().to_lowercase();
    Ok(answer == "y" || answer == "yes")
}
