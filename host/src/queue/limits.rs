//! Limits of starts: which ones a message has, and whether it may start now.
//!
//! A limit belongs to no queue: all queues that name it share it. So its keys begin with `{hostler:limits}`, and on a cluster
//! all limits are in the one slot of that tag: a message takes from all of its limits or from none, in one script, whatever
//! queues share them. A host asks for many messages at a time, so that node has few calls.
//!
//! Crash windows:
//! - A host that dies behind the script has taken starts that do not happen. They are lost for the others, until the rate allows
//!   the next ones.
//! - A host that dies keeps its permits for attempts until their lease has ended, by the clock of the server.
//! - An answer is lost: the host says in its next request how many permits it has, and Redis counts these.
//! - A failover loses what no replica had, unless replicas confirm writes: permits that hosts have, until they say them again,
//!   which is at once when they are connected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::delivery::flow::Pace;
use crate::delivery::ledger::{Admission, Limited, Permits};
use crate::delivery::message::{Headers, Message};
use crate::delivery::millis::millis;
use crate::delivery::text::hex;
use crate::queue::Claim;
use crate::queue::rights::Need;
use crate::queue::scripts::{ADMIT, ADMIT_ATTEMPTS};
use crate::redis::connection::Link;
use crate::redis::{Error, reply};
use crate::wire::keys;

pub mod seen;

/// How many messages may wait for the start that is reserved for them. Beyond that the queue is first in, first out.
pub const WAITING_MAX: u64 = 100_000;
/// The longest value of a key that stands in the name of its limit as it is.
const KEY_MAX: usize = 64;

/// A limit of starts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limit {
    /// All queues that name it share it.
    pub name: Arc<str>,
    /// How many messages may start, or run.
    pub allows: Allows,
    /// One limit for each value of this; `None` = one for all messages. Always so where attempts at once are limited.
    pub by: Option<Place>,
    /// The units of a message; `None` = one.
    pub units: Option<Place>,
}

/// What a limit allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allows {
    /// So many starts in a time.
    Starts(Pace),
    /// So many attempts at once.
    Attempts(u32),
}

/// How these limit starts.
pub fn limited(limits: &[Limit]) -> Limited {
    let is_permit = |limit: &Limit| matches!(limit.allows, Allows::Attempts(_));
    match limits {
        [] => Limited::No,
        limits if limits.iter().any(is_permit) => Limited::Permits,
        _ => Limited::Starts,
    }
}

/// A place in a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// A header, in lower case.
    Header(String),
    /// A place in a body in JSON: a pointer such as `/customer/id`.
    Json(String),
}

impl Place {
    /// The text that stands there. A number is its digits.
    fn text(&self, message: &Message) -> Option<String> {
        self.find(&message.headers, &message.body)
    }

    fn find(&self, headers: &Headers, body: &[u8]) -> Option<String> {
        match self {
            Self::Header(name) => headers.find_str(name).map(str::to_owned),
            Self::Json(pointer) => {
                let body: Json = serde_json::from_slice(body).ok()?;
                match body.pointer(pointer)? {
                    Json::String(text) => Some(text.clone()),
                    Json::Number(number) => Some(number.to_string()),
                    _ => None,
                }
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
        }
    }
}

impl Limit {
    /// The units of a message: 1 where it does not say, and never more than may start at once.
    fn units(&self, message: &Message) -> u32 {
        let Allows::Starts(pace) = self.allows else {
            return 1;
        };
        let text = self.units.as_ref().and_then(|place| place.text(message));
        let units = text.and_then(|text| text.trim().parse::<u64>().ok());
        let units = units.unwrap_or(1).min(pace.burst.into());
        u32::try_from(units).unwrap_or(pace.burst)
    }

    /// The name of what Redis keeps of it, of messages with this key.
    fn place(&self, key: Option<&str>) -> String {
        match self.allows {
            Allows::Starts(_) => keys::limit(&self.name, key),
            Allows::Attempts(_) => keys::permits(&self.name),
        }
    }

    /// The key of a message. Those without one share the limit of the empty key.
    pub fn key(&self, message: &Message) -> Option<String> {
        let by = self.by.as_ref()?;
        Some(by.text(message).unwrap_or_default())
    }
}

/// A message that asks whether it may start.
#[derive(Clone, Debug)]
pub struct Start {
    /// The delivery.
    pub claim: Arc<Claim>,
    /// When its start was reserved for, in epoch milliseconds.
    pub reserved_ms: Option<u64>,
}

/// Whether a message may start, and the limit that says no.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admitted {
    /// Whether it may.
    pub admission: Admission,
    /// When its start is reserved for, in epoch milliseconds by the server's clock.
    pub start_ms: Option<u64>,
    /// The name of the limit that it waits for.
    pub limit: Option<Arc<str>>,
    /// Its key, where so many messages wait that all behind it wait as well.
    pub key: Option<String>,
}

impl Admitted {
    pub(super) const GRANTED: Self = Self {
        admission: Admission::Granted,
        start_ms: None,
        limit: None,
        key: None,
    };
}

/// The rights that limits need. The keys are in another slot than the queue.
pub(super) fn needs(limits: &[Limit], needs: &mut Vec<Need>) {
    for limit in limits {
        let key = limit.place(limit.by.as_ref().map(|_| "k"));
        match limit.allows {
            Allows::Starts(_) => {
                needs.push(Need::new("GET", &[&key]));
                needs.push(Need::new("SET", &[&key, "v", "PX", "1"]));
            }
            Allows::Attempts(_) => {
                needs.push(Need::new("HGETALL", &[&key]));
                needs.push(Need::new("HSET", &[&key, "f", "v"]));
                needs.push(Need::new("HDEL", &[&key, "f"]));
                needs.push(Need::new("PEXPIRE", &[&key, "1"]));
            }
        }
        needs.push(Need::new("EVALSHA", &["0", "1", &key]));
    }
}

/// Ask whether these may start, in this order, and say which permits this host has. `may_reserve`: a message whose key is used up
/// may reserve its start.
pub(super) async fn admit(
    (link, host): (&Link, &str),
    limits: &[Limit],
    starts: &[Start],
    permits: Permits,
    may_reserve: bool,
) -> Result<Vec<Admitted>, Error> {
    let (keyed, plain): (Vec<_>, Vec<_>) = limits.iter().partition(|limit| limit.by.is_some());
    // There is one with a key at most: the configuration says so.
    let order: Vec<&Limit> = plain.iter().chain(keyed.iter().take(1)).copied().collect();
    if order.is_empty() {
        return Ok(vec![Admitted::GRANTED; starts.len()]);
    }
    let keyed = keyed.first();
    let mut names: Vec<String> = plain.iter().map(|limit| limit.place(None)).collect();
    if let Some(limit) = keyed {
        names.extend(starts.iter().map(|start| {
            let key = limit.key(&start.claim.message).unwrap_or_default();
            limit.place(Some(&bounded(key)))
        }));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let script = match limited(limits) {
        Limited::Permits => &ADMIT_ATTEMPTS,
        Limited::No | Limited::Starts => &ADMIT,
    };
    let mut call = script.on(&names);
    call.arg(plain.len())
        .arg(order.len() - plain.len())
        .arg(u8::from(may_reserve))
        .arg(host)
        .arg(permits.number)
        .arg(permits.held)
        .arg(millis(permits.lease));
    for limit in &order {
        let (count, period, burst) = match limit.allows {
            Allows::Starts(Pace { rate, burst }) => (rate.count(), rate.period(), burst),
            Allows::Attempts(most) => (most, 0, 0),
        };
        call.arg(count).arg(period).arg(burst);
    }
    for start in starts {
        for limit in &order {
            call.arg(limit.units(&start.claim.message));
        }
        call.arg(
            start
                .reserved_ms
                .map_or_else(String::new, |ms| ms.to_string()),
        );
    }
    let answer = reply::array(ADMIT.name(), link.run(script, &call).await?)?;
    let at = answer
        .last()
        .map(|at| reply::count(ADMIT.name(), at))
        .transpose()?
        .unwrap_or_default();
    let mut numbers = answer
        .iter()
        .map(|value| reply::integer(ADMIT.name(), value));
    let mut admitted = Vec::with_capacity(starts.len());
    for start in starts {
        let (Some(wait), Some(number)) = (numbers.next(), numbers.next()) else {
            break;
        };
        let (wait, number) = (wait?, usize::try_from(number?).unwrap_or(0));
        let time = Duration::from_micros(wait.unsigned_abs());
        let limit = number.checked_sub(1).and_then(|place| order.get(place));
        let stops = limit.filter(|_| wait < 0);
        admitted.push(Admitted {
            admission: match wait {
                0 => Admission::Granted,
                1.. => Admission::Later(time),
                _ => Admission::Wait(time),
            },
            start_ms: u64::try_from(wait)
                .ok()
                .filter(|wait| *wait > 0)
                .map(|wait| (at + wait).div_ceil(1000)),
            limit: limit.map(|limit| Arc::clone(&limit.name)),
            key: stops
                .and_then(|limit| limit.key(&start.claim.message))
                .map(bounded),
        });
    }
    Ok(admitted)
}

/// A key as it stands in the name of its limit: a long one is a digest.
fn bounded(key: String) -> String {
    match key.len() {
        ..=KEY_MAX => key,
        _ => hex(&Sha256::digest(key.as_bytes())),
    }
}
