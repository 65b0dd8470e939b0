//! The limits of a queue as they are now, for people. A kind of limit is a line in [`now`] and one in [`LimitNow`].

use std::fmt;

use redis::{Value, cmd};
use serde::Serialize;

use super::Place;
use crate::delivery::flow::{Pace, Rate};
use crate::delivery::message::Headers;
use crate::redis::connection::Link;
use crate::redis::{Error, reply};
use crate::wire::keys;

const COMMAND: &str = "limits";

/// How a limit is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitNow {
    /// A message may start.
    Free,
    /// The next one may start in so many milliseconds.
    NextMs(u64),
    /// So many attempts have a permit.
    Running(u64),
}

impl fmt::Display for LimitNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::NextMs(ms) => write!(f, "the next starts in {ms} ms"),
            Self::Running(attempts) => write!(f, "{attempts} at this time"),
        }
    }
}

/// What a limit allows, as it is shown; `None` = this release does not know it.
pub fn pace(rate: Option<&str>, burst: Option<u32>) -> Option<Pace> {
    let rate = Rate::parse(rate?).ok()?;
    let burst = burst.unwrap_or_else(|| rate.usual_burst());
    Some(Pace { rate, burst })
}

/// The state of a limit without a key, by one look at its key in Redis. (With a key, it has as many states as keys.)
///
/// # Errors
/// Any of Redis.
pub async fn now(link: &Link, name: &str, pace: Pace) -> Result<LimitNow, Error> {
    let mut get = cmd("GET");
    let found = link.call(COMMAND, get.arg(keys::limit(name, None))).await?;
    if found == Value::Nil {
        return Ok(LimitNow::Free);
    }
    let text = reply::text(COMMAND, found)?;
    let now = micros(link).await?;
    let paid = text.split(' ').next().and_then(|paid| paid.parse().ok());
    let wait = pace
        .start(paid.unwrap_or(0), now, 1, pace.grace())
        .saturating_sub(now);
    Ok(match wait.div_ceil(1000) {
        0 => LimitNow::Free,
        ms => LimitNow::NextMs(ms),
    })
}

/// How many attempts have a permit of a limit: those of hosts whose lease lasts. There is one short field for each host.
///
/// # Errors
/// Any of Redis.
pub async fn running(link: &Link, name: &str) -> Result<LimitNow, Error> {
    let mut get = cmd("HVALS");
    let found = link.call(COMMAND, get.arg(keys::permits(name))).await?;
    let now = micros(link).await? / 1000;
    let mut attempts = 0;
    for host in reply::array(COMMAND, found)? {
        let host = reply::text(COMMAND, host)?;
        let mut numbers = host
            .split(' ')
            .map(|number| number.parse().unwrap_or(0_u64));
        let (held, written, lease) = (numbers.nth(1), numbers.next(), numbers.next());
        if written.unwrap_or(0) + lease.unwrap_or(0) > now {
            attempts += held.unwrap_or(0);
        }
    }
    Ok(LimitNow::Running(attempts))
}

/// The time of the server, in microseconds.
async fn micros(link: &Link) -> Result<u64, Error> {
    let time = link.call(COMMAND, &cmd("TIME")).await?;
    let [seconds, micros] = reply::tuple(COMMAND, time)?;
    let number = |value| reply::text(COMMAND, value).map(|text| text.parse().unwrap_or(0_u64));
    Ok(number(seconds)? * 1_000_000 + number(micros)?)
}

/// The key of a message with these headers and this body, by a place as it is shown; `None` = there is no such place.
pub fn key_of(place: &str, headers: &Headers, body: &[u8]) -> Option<String> {
    let (kind, name) = place.split_once(':')?;
    let place = match kind {
        "header" => Place::Header(name.to_owned()),
        "json" => Place::Json(name.to_owned()),
        _ => return None,
    };
    Some(super::bounded(place.find(headers, body)?))
}
