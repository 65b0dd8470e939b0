//! What a schedule is, and the message of a tick.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::delivery::message::{Headers, MESSAGE_ID};
use crate::delivery::text::hex;
use crate::schedule::ticks::{CatchUp, Error, Timing};

/// The most schedules of a queue.
pub const SCHEDULES_MAX: usize = 1_000;
/// The largest body, in bytes.
pub const BODY_MAX: usize = 64 * 1024;
/// The most bytes of all headers.
pub const HEADERS_MAX: usize = 8 * 1024;
/// The source of a definition that no file has.
pub const CLI: &str = "cli";

/// A schedule, as it is kept in Redis.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Definition {
    /// The cron expression.
    pub cron: String,
    /// The time zone.
    pub zone: String,
    /// The headers of its messages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Which missed ticks are published: `none`, `last` or a number.
    pub catch_up: String,
    /// `overlap = "skip"`: a tick is skipped while this group has not settled the message before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_in: Option<String>,
    /// The SHA-256 of the body.
    #[serde(default)]
    pub body: String,
    /// The file that has it, or [`CLI`].
    #[serde(default)]
    pub source: String,
}

impl Definition {
    /// When it is due.
    ///
    /// # Errors
    /// Its expression or its zone cannot be read here.
    pub fn timing(&self) -> Result<Timing, Error> {
        Timing::parse(&self.cron, &self.zone)
    }

    /// The missed ticks that are published; what a later release has written is `last`.
    pub fn catches_up(&self) -> CatchUp {
        CatchUp::read(&self.catch_up).unwrap_or_default()
    }

    /// As it is kept.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The headers of the message with this id.
    pub(super) fn headers(&self, id: &str) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in &self.headers {
            headers.push(name.clone(), value.clone());
        }
        headers.set(MESSAGE_ID, id.to_owned());
        headers
    }
}

/// A definition that is to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Defined {
    /// The name.
    pub name: String,
    /// What it is.
    pub definition: Definition,
    /// The body of its messages.
    pub body: Bytes,
}

/// The id of the message of a tick: `cron:nightly:2026-11-30T02:30:00Z`.
pub fn id(name: &str, tick: u64) -> String {
    format!(
        "cron:{name}:{}",
        humantime::format_rfc3339_seconds(at(tick))
    )
}

/// The id of the message of a run that was asked for at this time. It has milliseconds.
pub fn run_id(name: &str, asked: u64) -> String {
    format!(
        "cron:{name}:{}",
        humantime::format_rfc3339_millis(at(asked))
    )
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// The schedule and the tick of an id, if it has this form.
pub fn origin(id: &str) -> Option<(&str, &str)> {
    id.strip_prefix("cron:")?.split_once(':')
}

impl Defined {
    /// A definition with this body, of this source.
    pub fn new(name: &str, mut definition: Definition, body: Bytes, source: &str) -> Self {
        definition.body = hex(&Sha256::digest(&body));
        source.clone_into(&mut definition.source);
        Self {
            name: name.to_owned(),
            definition,
            body,
        }
    }
}
