//! `wasi:cli/run@0.2`: a program. Its exit code is its answer.

use wasmtime::Store;
use wasmtime::component::TypedFunc;
use wasmtime_wasi::I32Exit;

use crate::delivery::millis::millis;
use crate::sandbox::host::Host;
use crate::sandbox::program::{ExitCodes, Failed, Meaning};
use crate::sandbox::worlds::Answer;

/// `run.run`.
pub(in crate::sandbox) type Run = TypedFunc<(), (Result<(), ()>,)>;

/// So begins a line on stderr that gives the answer.
pub(in crate::sandbox) const ANSWER: &str = "hostler:";

/// Run a program until it returns, or calls `exit`.
pub(in crate::sandbox) async fn call(
    function: Run,
    store: &mut Store<Host>,
) -> wasmtime::Result<Answer> {
    let ended = function.call_async(&mut *store, ()).await;
    let status = match ended {
        Ok((Ok(()),)) => 0,
        Ok((Err(()),)) => 1,
        Err(error) => match error.downcast_ref::<I32Exit>() {
            Some(exit) => exit.0,
            None => return Err(error),
        },
    };
    let host = store.data_mut();
    let last_line = host.end_output();
    let (program, codes) = host.program();
    if status != 0
        && codes == ExitCodes::ZeroOrOne
        && let Some((answer, hold)) = last_line.as_deref().and_then(said)
    {
        if let Some(ms) = hold {
            hold_it(host, ms);
        }
        return Ok(answer);
    }
    let code = u8::try_from(status).ok();
    match code.and_then(|code| program.exit_codes.get(&code).copied()) {
        Some(Meaning::Ack) => {
            host.publish_stdout().map_err(wasmtime::Error::new)?;
            Ok(Answer::Ack)
        }
        Some(Meaning::NackRequeue) => Ok(Answer::NackRequeue(None)),
        Some(Meaning::Hold(after)) => {
            hold_it(host, millis(after));
            Ok(Answer::NackRequeue(None))
        }
        Some(Meaning::Drop) => Ok(Answer::Drop(last_line)),
        Some(Meaning::Fail) | None => Err(wasmtime::Error::new(Failed(status))),
    }
}

/// Hold the message of a program.
fn hold_it(host: &mut Host, ms: u64) {
    // The report says why there is no hold.
    let _is_held = host.hold(0, ms).is_ok();
}

/// The answer that a line on stderr gives, and for how many milliseconds it holds the message.
fn said(line: &str) -> Option<(Answer, Option<u64>)> {
    let said = line.strip_prefix(ANSWER)?.trim();
    let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
    let rest = rest.trim();
    let duration = || Some(millis(humantime::parse_duration(rest).ok()?));
    let answer = match word {
        "nack" if rest.is_empty() => Answer::NackRequeue(None),
        "nack" => Answer::NackRequeue(Some(duration()?)),
        "hold" => return Some((Answer::NackRequeue(None), Some(duration()?))),
        "drop" => Answer::Drop((!rest.is_empty()).then(|| rest.to_owned())),
        _ => return None,
    };
    Some((answer, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_on_stderr_may_give_the_answer() {
        use Answer::{Drop, NackRequeue};
        for (line, expected) in [
            ("hostler: nack", Some(NackRequeue(None))),
            ("hostler: nack 5s", Some(NackRequeue(Some(5_000)))),
            ("hostler:drop", Some(Drop(None))),
            (
                "hostler: drop no such customer",
                Some(Drop(Some("no such customer".to_owned()))),
            ),
            ("hostler: nack soon", None),
            ("hostler: hold", None),
            ("hostler: ack", None),
            ("nack", None),
        ] {
            let expected = expected.map(|answer| (answer, None));
            assert_eq!(said(line), expected, "{line}");
        }
        let held = (NackRequeue(None), Some(90_000));
        assert_eq!(said("hostler: hold 1m 30s"), Some(held));
    }
}
