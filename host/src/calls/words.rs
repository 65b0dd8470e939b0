//! The words that scripts answer, one about each delivery.

use redis::Value;

use crate::delivery::ledger::Reply;
use crate::redis::error::Error;
use crate::redis::reply;

/// The reply for a delivery that Redis refused to write: it is unchanged. Other errors (no group, a server
/// that loads or follows) are not about this delivery.
pub(crate) fn refused(error: Error) -> Result<Reply, Error> {
    match &error {
        Error::Unavailable { code, .. }
            if matches!(code.as_str(), "OOM" | "MISCONF" | "NOREPLICAS") =>
        {
            Ok(Reply::Refused(error.with_hint()))
        }
        Error::Configuration { code, .. } if code != "NOAUTH" => {
            Ok(Reply::Refused(error.with_hint()))
        }
        _ => Err(error),
    }
}

/// The dead-letter queue takes no more.
pub(crate) fn full() -> Reply {
    Reply::Refused("the dead-letter queue is full".to_owned())
}

/// The words of a script about `count` deliveries, which gives one for all of them if all are done.
pub(crate) fn each(command: &'static str, reply: Value, count: usize) -> Result<Vec<Value>, Error> {
    let words = match reply {
        word @ Value::BulkString(_) => vec![word; count],
        words => reply::array(command, words)?,
    };
    match words.len() == count {
        true => Ok(words),
        false => Err(incomplete(command)),
    }
}

/// The reply that a word of a script means.
pub(crate) fn word_reply(command: &'static str, word: Value) -> Result<Reply, Error> {
    reply_of(command, &reply::text(command, word)?)
}

/// The same for a word that is read already.
pub(crate) fn reply_of(command: &'static str, word: &str) -> Result<Reply, Error> {
    Ok(match word {
        "done" => Reply::Done,
        "gone" => Reply::Gone,
        "trimmed" => Reply::Trimmed,
        "stolen" => Reply::Stolen,
        "changed" => Reply::Changed,
        "full" => full(),
        why if let Some(cause) = why.strip_prefix("-UNFIT ") => Reply::Unfit(cause.to_owned()),
        // The script looked before it wrote: the delivery is unchanged.
        why if why.starts_with('-') => Reply::Refused(with_hint(command, &why[1..])),
        _ => {
            return Err(reply::invalid(command, "an unknown word"));
        }
    })
}

/// The error that a command of a script met, and what to do about it.
fn with_hint(command: &'static str, why: &str) -> String {
    let (code, detail) = why.split_once(' ').unwrap_or((why, ""));
    match Error::refused(command, code, detail).hint() {
        Some(hint) => format!("{why}; {hint}"),
        None => why.to_owned(),
    }
}

/// A script must answer about each delivery.
pub(crate) fn incomplete(command: &'static str) -> Error {
    reply::invalid(command, "not one reply for each delivery")
}
