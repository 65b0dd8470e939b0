//! The CPU time of a server, and the removal of temporary keys: for `hostler bench`.

use std::time::Duration;

use redis::cmd;

use crate::connection::Link;
use crate::error::Error;
use crate::reply;

/// Ask the server for its CPU time since it started: of the process, and of the system on its behalf.
///
/// # Errors
/// Any of [`Error`]; `INFO` may be forbidden.
pub async fn cpu(link: &Link) -> Result<Duration, Error> {
    const COMMAND: &str = "INFO";
    let text = reply::text(COMMAND, link.call(COMMAND, cmd(COMMAND).arg("cpu")).await?)?;
    let seconds = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(found, _)| *found == name)
            .and_then(|(_, value)| value.trim().parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| reply::invalid(COMMAND, format!("no {name}")))
    };
    Ok(seconds("used_cpu_user")? + seconds("used_cpu_sys")?)
}

/// Remove keys of any type; the server frees their memory in the background.
///
/// # Errors
/// Any of [`Error`].
pub async fn remove(link: &Link, keys: &[String]) -> Result<(), Error> {
    const COMMAND: &str = "UNLINK";
    link.call(COMMAND, cmd(COMMAND).arg(keys)).await.map(drop)
}
