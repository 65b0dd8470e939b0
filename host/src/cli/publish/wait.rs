//! `hostler publish --wait`: what became of a message.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::cli::{Exit, Failure, output};
use crate::delivery::policy::Reason;
use crate::publish::{Answer, Status, WaitError};

/// Print the answer: the reply to stdout, and what else there is to stderr.
pub(super) fn show(answer: Result<Answer, WaitError>, as_json: bool) -> Result<Exit, Failure> {
    let answer = answer?;
    if as_json {
        output::json(&json_of(&answer))?;
    } else if let Some(value) = &answer.value {
        output::data(&[&value[..], b"\n"].concat())?;
    }
    let exit = exit_of(&answer);
    if exit != Exit::Ok || answer.status == Status::Duplicate {
        output::people(&format!("{}\n", said(&answer)));
    }
    Ok(exit)
}

/// What became of it, in one line.
fn said(answer: &Answer) -> String {
    let mut said = format!("{} is {}", answer.id, answer.status.label());
    let reason = answer.reason.as_deref();
    let reason = reason.filter(|reason| *reason != answer.status.label());
    for text in reason.into_iter().chain(answer.detail.as_deref()) {
        said.push_str(": ");
        said.push_str(text);
    }
    said
}

fn exit_of(answer: &Answer) -> Exit {
    match answer.status {
        Status::Acked | Status::Duplicate => Exit::Ok,
        Status::DeadLettered | Status::Discarded | Status::Cancelled => {
            match answer.reason.as_deref() {
                Some(reason) if reason == Reason::Dropped.label() => Exit::Drop,
                _ => Exit::Fault,
            }
        }
    }
}

fn json_of(answer: &Answer) -> serde_json::Value {
    let value = answer.value.as_ref();
    json!({
        "id": answer.id,
        "group": answer.group,
        "status": answer.status.label(),
        "reason": answer.reason,
        "detail": answer.detail,
        "value": value.and_then(|value| std::str::from_utf8(value).ok()),
        "value_base64": value.map(|value| BASE64_STANDARD.encode(value)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_what_became_of_the_message() {
        let exit = |status, reason: Option<&str>| {
            exit_of(&Answer {
                id: "1".to_owned(),
                group: None,
                status,
                reason: reason.map(str::to_owned),
                detail: None,
                value: None,
            })
        };
        assert_eq!(exit(Status::Acked, None), Exit::Ok);
        assert_eq!(exit(Status::Duplicate, None), Exit::Ok);
        assert_eq!(exit(Status::DeadLettered, Some("dropped")), Exit::Drop);
        assert_eq!(exit(Status::Discarded, Some("dropped")), Exit::Drop);
        assert_eq!(exit(Status::DeadLettered, Some("expired")), Exit::Fault);
        assert_eq!(exit(Status::Cancelled, Some("cancelled")), Exit::Fault);
        assert_eq!(
            exit(Status::Discarded, Some("a reason of tomorrow")),
            Exit::Fault
        );
    }
}
