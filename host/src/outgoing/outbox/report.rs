//! How much outboxes hold.

use serde::Serialize;

use crate::outgoing::scripts;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::wire::keys;

/// The most outboxes that one script looks at.
const PER_CALL: usize = 100;

/// What an outbox holds.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct OutboxReport {
    /// Its destination, as `grant.publish` names it.
    pub to: String,
    /// The messages that are not relayed yet.
    pub length: u64,
    /// How long ago the oldest of them was acknowledged, in milliseconds.
    pub oldest_ms: Option<u64>,
}

/// The destinations for which a queue has had an outbox, in order.
pub(crate) async fn destinations(link: &Link, queue: &str) -> Result<Vec<String>, Error> {
    const COMMAND: &str = "SMEMBERS";
    let mut members = redis::cmd(COMMAND);
    members.arg(keys::outboxes(queue));
    let members = reply::values(COMMAND, link.call(COMMAND, &members).await?)?;
    let text = |bytes: bytes::Bytes| String::from_utf8(bytes.into()).ok();
    let mut all: Vec<String> = members.into_iter().filter_map(text).collect();
    all.sort_unstable();
    Ok(all)
}

/// What the outboxes for these destinations hold.
pub(crate) async fn report(
    link: &Link,
    queue: &str,
    destinations: Vec<String>,
) -> Result<Vec<OutboxReport>, Error> {
    let script = &scripts::OUTBOX_REPORT;
    let mut reports = Vec::with_capacity(destinations.len());
    let mut destinations = destinations.into_iter().peekable();
    while destinations.peek().is_some() {
        let some: Vec<String> = destinations.by_ref().take(PER_CALL).collect();
        let keys: Vec<String> = some.iter().map(|to| keys::outbox(queue, to)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let answer = link.run(script, &script.on(&keys)).await?;
        let numbers = reply::array(script.name(), answer)?;
        for (to, numbers) in some.into_iter().zip(numbers.chunks_exact(2)) {
            reports.push(OutboxReport {
                to,
                length: reply::count(script.name(), &numbers[0])?,
                oldest_ms: u64::try_from(reply::integer(script.name(), &numbers[1])?).ok(),
            });
        }
    }
    Ok(reports)
}
