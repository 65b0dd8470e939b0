//! Whether a key is a queue that is served: then its entries are messages, not dead letters.
//!
//! Known are the consumer groups of a stream, the instances of a reliable list, and the hosts that show
//! themselves. A queue that no host has ever served looks like any other key. A key that the user may
//! not read is not known either.

use redis::{Pipeline, Value};

use super::{DeadLetters, Error, Kind};
use crate::redis::reply::{self, Info};
use crate::wire::keys;

const COMMAND: &str = "served";
/// Most hosts of a queue that are looked for.
const HOSTS_MAX: usize = 100;

/// Who serves this key as a queue, for people; `None` = no host is known to.
pub(super) async fn by_whom(letters: &DeadLetters) -> Result<Option<String>, Error> {
    let key = &*letters.key;
    let kind = letters.kind().await?;
    let mut pipeline = Pipeline::new();
    let hosts = keys::hosts(key);
    pipeline.cmd("ZRANGE").arg(hosts).arg(0).arg(HOSTS_MAX - 1);
    match kind {
        Kind::Stream => {
            pipeline.cmd("XINFO").arg("GROUPS").arg(key);
        }
        Kind::List => {
            for queue in lists_with(key) {
                pipeline.cmd("ZCARD").arg(keys::instances(queue));
            }
        }
    }
    let answers = letters.link.pipeline(COMMAND, &pipeline).await;
    let mut answers = letters.checked(answers)?.into_iter();
    let hosts = values(answers.next());
    let held = match kind {
        Kind::Stream => values(answers.next()).into_iter().find_map(group),
        Kind::List => answers
            .any(|count| matches!(count, Value::Int(1..)))
            .then(|| "hosts have values of the list".to_owned()),
    };
    if held.is_some() || hosts.is_empty() {
        return Ok(held);
    }
    // The names of hosts that have died stay; their states expire.
    let hosts = hosts.into_iter();
    let hosts: Vec<String> = hosts.flat_map(|name| reply::text(COMMAND, name)).collect();
    let mut exists = Pipeline::new();
    for name in &hosts {
        exists.cmd("EXISTS").arg(keys::host(key, name));
    }
    let alive = letters.checked(letters.link.pipeline(COMMAND, &exists).await)?;
    let alive = hosts.iter().zip(alive).find(|(_, n)| *n == Value::Int(1));
    Ok(alive.map(|(host, _)| format!("the host `{host}` serves it")))
}

/// The queues that this list may belong to: itself, and those that keep values under names like its own.
fn lists_with(key: &str) -> impl Iterator<Item = &str> {
    let retry = key.strip_suffix(":retry");
    let processing = key.split_once(":processing:").map(|(queue, _)| queue);
    let derived = [retry, processing].into_iter().flatten();
    std::iter::once(key).chain(derived.map(keys::origin))
}

/// A refused command returns nothing: the key is of another type, or the user may not read it.
fn values(answer: Option<Value>) -> Vec<Value> {
    reply::array(COMMAND, answer.unwrap_or_default()).unwrap_or_default()
}

fn group(info: Value) -> Option<String> {
    let name = Info::new(COMMAND, info).ok()?.take("name");
    let name = reply::text(COMMAND, name).ok()?;
    Some(format!("the consumer group `{name}` reads it"))
}
