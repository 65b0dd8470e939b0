//! What a server uses, and the end of keys that were only made for a while: for `hostler bench`.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;

/// What a server has used since it started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// CPU time, the system's on its behalf included.
    pub cpu: Duration,
}

/// Ask what the server has used.
///
/// # Errors
/// Any of [`Error`]; `INFO` may be forbidden.
pub async fn usage(link: &Link) -> Result<Usage, Error> {
    const COMMAND: &str = "INFO";
    let mut cmd = Cmd::new();
    cmd.arg(COMMAND).arg("cpu");
    let text = match link.call(COMMAND, &cmd).await? {
        // RESP3: a verbatim string.
        Value::VerbatimString { text, .. } => text,
        value => reply::text(COMMAND, value)?,
    };
    let seconds = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(found, _)| *found == name)
            .and_then(|(_, value)| value.trim().parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| Error::Reply {
                command: COMMAND,
                detail: format!("no {name}"),
            })
    };
    Ok(Usage {
        cpu: seconds("used_cpu_user")? + seconds("used_cpu_sys")?,
    })
}

/// Remove keys, whatever they hold; their memory is freed behind the scenes.
///
/// # Errors
/// Any of [`Error`].
pub async fn remove(link: &Link, keys: &[String]) -> Result<(), Error> {
    const COMMAND: &str = "UNLINK";
    let mut cmd = Cmd::new();
    cmd.arg(COMMAND);
    for key in keys {
        cmd.arg(key);
    }
    link.call(COMMAND, &cmd).await.map(drop)
}
