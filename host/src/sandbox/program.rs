//! Programs as handlers: a component that exports `wasi:cli/run`, or a WASIp1 module that exports `_start`.
//! What they get, and what their exit codes mean. `worlds::run` runs them.

use std::collections::BTreeMap;
use std::time::Duration;

use hostler_components::program::EXIT;
use serde::Serialize;
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::headers::Headers;
use crate::delivery::message::Message;

/// What an exit code means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Meaning {
    /// The program is done with the message.
    Ack,
    /// It wants the message again, after the backoff of the queue.
    NackRequeue,
    /// It wants the message again after this time, uncharged.
    Hold(Duration),
    /// It does not want the message again. The last line of stderr is the reason.
    Drop,
    /// The attempt has failed.
    Fail,
}

/// How a program is called, and what its exit codes mean.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// The arguments, without the name of the program.
    pub args: Vec<String>,
    /// The meanings of exit codes; a code that is missing is a failed attempt.
    pub exit_codes: BTreeMap<u8, Meaning>,
    /// Where what the program writes to stdout goes.
    pub stdout: Stdout,
}

/// Where the output of a program goes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Stdout {
    /// To the log, line by line.
    #[default]
    Log,
    /// With the ack, to this destination of `[grant.publish]`, as one message.
    Publish(String),
    /// With the ack, to a producer that waits: it is the reply.
    Reply,
}

/// `EX_TEMPFAIL` and `EX_DATAERR` of `sysexits.h`.
const TEMPORARY_FAILURE: u8 = 75;
const DATA_ERROR: u8 = 65;

impl Default for Program {
    fn default() -> Self {
        Self {
            args: Vec::new(),
            exit_codes: BTreeMap::from([
                (0, Meaning::Ack),
                (TEMPORARY_FAILURE, Meaning::NackRequeue),
                (DATA_ERROR, Meaning::Drop),
            ]),
            stdout: Stdout::Log,
        }
    }
}

/// The exit codes that a program can hand to its host.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum ExitCodes {
    /// Each code arrives.
    #[serde(rename = "all")]
    All,
    /// Only success and failure: `wasi:cli/exit#exit` passes on no more. A program that fails may say more
    /// in its last line on stderr: `hostler: nack`, `hostler: nack 5s`, `hostler: hold 5s` or
    /// `hostler: drop <reason>`.
    #[serde(rename = "0-1")]
    ZeroOrOne,
}

impl ExitCodes {
    /// The exit codes of a component.
    pub(crate) fn of(engine: &Engine, component: &Component) -> Self {
        let ty = component.component_type();
        let mut imports = ty.imports(engine);
        let has_codes = imports.any(|(name, item)| {
            let interface = name.split('@').next().unwrap_or(name);
            let ComponentItem::ComponentInstance(instance) = item.ty else {
                return false;
            };
            interface == EXIT
                || interface == "wasi:cli/exit"
                    && instance.get_export(engine, "exit-with-code").is_some()
        });
        match has_codes {
            true => Self::All,
            false => Self::ZeroOrOne,
        }
    }
}

/// A program ended with a code that is a failed attempt.
#[derive(Debug, thiserror::Error)]
#[error("exited with status {0}, which `program.exit_codes` does not name")]
pub(crate) struct Failed(pub(crate) i32);

/// The text that the attempt wrote to stdout cannot be published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unpublished {
    /// An attempt may not publish that much.
    #[error("more than an attempt may publish")]
    TooLong,
    /// The destination does not take it.
    #[error("stdout cannot be published to `{to}`: {why}")]
    Refused {
        /// The name of the destination.
        to: String,
        /// The reason.
        why: String,
    },
    /// It cannot be the reply, for this reason.
    #[error("stdout cannot be the reply: {0}")]
    Unanswered(String),
}

/// The most headers that a program sees, and the longest value: the adapter of WASIp1 lists variables in less than
/// 60 KiB, with 16 bytes for each, and has no more for one of them.
const HEADERS_MAX: usize = 2_000;
const VALUE_MAX: usize = 16 << 10;

/// The variables of an attempt. A header whose variable is also that of another header, or whose value has
/// a NUL, is left out, and so is what is too long or too many; `HOSTLER_HEADERS_LEFT_OUT` counts them.
pub(crate) fn variables(
    message: &Message,
    attempt: u32,
    max_attempts: u32,
) -> Vec<(String, String)> {
    let headers = Headers::new(message);
    let headers = headers.borrowed();
    let name_of = |name: &str| -> String {
        let letter = |c: char| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        };
        "HOSTLER_HEADER_"
            .chars()
            .chain(name.chars().map(letter))
            .collect()
    };
    let mut by_name: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, value) in &headers {
        by_name.entry(name_of(name)).or_default().push(value);
    }
    let mut variables = vec![
        ("HOSTLER_MESSAGE_ID".to_owned(), without_nul(&message.id)),
        ("HOSTLER_QUEUE".to_owned(), without_nul(&message.queue)),
        ("HOSTLER_ATTEMPT".to_owned(), attempt.to_string()),
        ("HOSTLER_MAX_ATTEMPTS".to_owned(), max_attempts.to_string()),
        (
            "HOSTLER_ENQUEUED_MS".to_owned(),
            message.enqueued_ms.to_string(),
        ),
    ];
    let (mut seen, mut left_out) = (0, 0);
    for (name, values) in by_name {
        match *values {
            [value]
                if seen < HEADERS_MAX
                    && name.len() + value.len() <= VALUE_MAX
                    && !value.contains('\0') =>
            {
                seen += 1;
                variables.push((name, value.to_owned()));
            }
            _ => left_out += values.len(),
        }
    }
    variables.push(("HOSTLER_HEADERS_LEFT_OUT".to_owned(), left_out.to_string()));
    variables
}

/// A variable ends at a NUL.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::delivery::message::Headers as MessageHeaders;

    fn message(headers: &[(&str, &str)]) -> Message {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (
                    Bytes::copy_from_slice(name.as_bytes()),
                    Bytes::copy_from_slice(value.as_bytes()),
                )
            })
            .collect();
        Message {
            id: Arc::from("1-0"),
            queue: Arc::from("orders"),
            body: Bytes::from_static(b"x"),
            headers: MessageHeaders::new(headers),
            enqueued_ms: 7,
        }
    }

    fn find<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let found = variables.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    #[test]
    fn headers_are_variables_unless_two_have_one_name() {
        let message = message(&[
            ("X-Tenant", "a"),
            ("order-id", "1"),
            ("order.id", "2"),
            ("nul", "a\0b"),
        ]);
        let variables = variables(&message, 2, 5);
        for (name, value) in [
            ("HOSTLER_MESSAGE_ID", Some("1-0")),
            ("HOSTLER_QUEUE", Some("orders")),
            ("HOSTLER_ATTEMPT", Some("2")),
            ("HOSTLER_MAX_ATTEMPTS", Some("5")),
            ("HOSTLER_ENQUEUED_MS", Some("7")),
            ("HOSTLER_HEADER_X_TENANT", Some("a")),
            ("HOSTLER_HEADER_ORDER_ID", None),
            ("HOSTLER_HEADER_NUL", None),
            ("HOSTLER_HEADERS_LEFT_OUT", Some("3")),
        ] {
            assert_eq!(find(&variables, name), value, "{name}");
        }
    }
}
