//! Running scripts. Redis runs them by digest; it may forget them at any time (`SCRIPT FLUSH`, a restart), and
//! each node of a cluster knows its own: then the connection loads them, and runs the call again.

use redis::{Cmd, Pipeline, Value};

use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::scripts;
pub use crate::redis::scripts::Script;

/// Most messages in one call: a script blocks Redis.
pub(crate) const PER_CALL: usize = 100;

/// Run calls of one script in one round trip. The reply to a refused one is a [`Value::ServerError`].
///
/// # Errors
/// `Connection` or `Deadline`; `Unavailable` with `NOSCRIPT` if Redis forgets faster than we load.
pub async fn run_all(link: &Link, script: Script, calls: Vec<Cmd>) -> Result<Vec<Value>, Error> {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        pipeline.add_command(call);
    }
    link.pipeline(script.name(), &pipeline).await
}

/// Run one call of a script; a refusal is an error.
///
/// # Errors
/// As [`run_all`], and refusals of Redis.
pub async fn run(link: &Link, script: Script, call: &Cmd) -> Result<Value, Error> {
    link.call(script.name(), call).await
}

/// Load every script on the server that is at home for this link.
///
/// # Errors
/// As [`run`].
pub async fn load(link: &Link) -> Result<(), Error> {
    const COMMAND: &str = "SCRIPT LOAD";
    for reply in link.pipeline(COMMAND, &scripts::load_all()).await? {
        crate::redis::reply::accepted(COMMAND, reply)?;
    }
    Ok(())
}
