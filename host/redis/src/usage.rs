//! The CPU time of a server, and temporary keys: for `hostler bench` and `hostler demo`.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Value, cmd};

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

/// How many keys of the database one round trip looks at.
const LOOKED_AT: usize = 1000;

/// Those of these keys that exist.
///
/// # Errors
/// Any of [`Error`].
pub async fn existing(link: &Link, keys: &[&str]) -> Result<Vec<String>, Error> {
    const COMMAND: &str = "EXISTS";
    let mut found = Vec::new();
    for key in keys {
        let reply = link.call(COMMAND, cmd(COMMAND).arg(key)).await?;
        if reply != Value::Int(0) {
            found.push((*key).to_owned());
        }
    }
    Ok(found)
}

/// The keys that begin so: `{orders}:`, a text without `*`, `?`, `[` and `\\` that names the slot of the keys. Looks through
/// the whole database. A key that is no text is left out.
///
/// # Errors
/// Any of [`Error`].
pub async fn beginning_with(link: &Link, prefix: &str) -> Result<Vec<String>, Error> {
    const COMMAND: &str = "SCAN";
    let pattern = format!("{prefix}*");
    let (mut found, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let mut scan = cmd(COMMAND);
        scan.arg(&cursor).arg("MATCH").arg(&pattern);
        scan.arg("COUNT").arg(LOOKED_AT);
        let [next, names] = reply::tuple(COMMAND, link.call(COMMAND, &scan).await?)?;
        let names = reply::values(COMMAND, names)?.into_iter();
        found.extend(names.filter_map(|name| String::from_utf8(name.into()).ok()));
        cursor = reply::text(COMMAND, next)?;
        if cursor == "0" {
            return Ok(found.into_iter().collect());
        }
    }
}

/// Remove keys of any type; the server frees their memory in the background.
///
/// # Errors
/// Any of [`Error`].
pub async fn remove(link: &Link, keys: &[String]) -> Result<(), Error> {
    const COMMAND: &str = "UNLINK";
    link.call(COMMAND, cmd(COMMAND).arg(keys)).await.map(drop)
}
