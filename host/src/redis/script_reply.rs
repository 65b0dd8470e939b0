//! What scripts answer about one delivery, and what a refusal means for it.

use redis::Value;

use crate::delivery::ledger::Reply;
use crate::redis::error::Error;
use crate::redis::reply;

/// What Redis refused to write about a delivery: it is as it was. Everything else (no group, a
/// server that loads or follows) concerns more than this delivery.
pub(crate) fn refused(error: Error) -> Result<Reply, Error> {
    match &error {
        Error::Unavailable { code, .. }
            if matches!(code.as_str(), "OOM" | "MISCONF" | "NOREPLICAS") =>
        {
            Ok(Reply::Refused(error.to_string()))
        }
        Error::Configuration { code, .. } if code != "NOAUTH" => {
            Ok(Reply::Refused(error.to_string()))
        }
        _ => Err(error),
    }
}

/// The dead-letter queue takes no more.
pub(crate) fn full() -> Reply {
    Reply::Refused("the dead-letter queue is full".to_owned())
}

/// The reply that a script's word stands for.
pub(crate) fn word_reply(command: &'static str, word: Value) -> Result<Reply, Error> {
    let word = reply::text(command, word)?;
    Ok(match word.as_str() {
        "done" => Reply::Done,
        "gone" => Reply::Gone,
        "trimmed" => Reply::Trimmed,
        "stolen" => Reply::Stolen,
        "full" => full(),
        _ => {
            return Err(Error::Reply {
                command,
                detail: "a word that we do not know".to_owned(),
            });
        }
    })
}

/// A script must answer about each delivery.
pub(crate) fn incomplete(command: &'static str) -> Error {
    Error::Reply {
        command,
        detail: "not one reply for each delivery".to_owned(),
    }
}
