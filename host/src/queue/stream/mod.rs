//! Streams: one consumer group, at least once, requeues in place.
//!
//! - [`options`]: what a stream queue is told.
//! - `claims`: fetch, take what is due, take orphans.
//! - `settle`: record, renew, acknowledge, settle.
//! - `dead_letters`: the settlement that copies.
//! - `overflow`: what is unread beyond a length is given up.
//! - `upkeep`: retention, consumers, repair.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Cmd;

use super::dead_letters::Counts;
use super::rules::InForce;
use super::{
    Backlog, Claim, Contact, Maintenance, Observation, Origin, Queue, Record, Repair, Reply, Rules,
    Settlement, Taken, inspect,
};
use crate::delivery::message::{DeliveryId, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::redis::interruption::Interruption;
use crate::redis::startup::StartError;
use crate::redis::{ServerTime, script};
use crate::wire::entry_id::parse_entry_id;
use crate::wire::{self, Raw, keys};

mod claims;
mod dead_letters;
pub mod options;
mod overflow;
mod settle;
mod upkeep;

pub use options::{GroupStart, Retention, StreamOptions};

/// The consumer that owns what is held for later. No host has this name: theirs end in a random
/// part.
pub const PARKED_CONSUMER: &str = "hostler:parked";

/// A consumer group on a stream, as one host serves it.
pub struct StreamQueue {
    options: StreamOptions,
    name: Arc<str>,
    consumer: String,
    parked: String,
    /// What was published for later, for all groups.
    delayed: String,
    /// Which calls of a host are void, by consumer.
    fences: String,
    /// The calls that send deliveries away.
    calls: settle::Calls,
    /// For everything but fetching.
    commands: Link,
    /// Fetching only: it blocks.
    fetches: Link,
    interruption: Interruption,
    cursors: Mutex<Cursors>,
    /// From which consumer the next orphan scan begins.
    rotation: AtomicUsize,
    counts: Counts,
    rules: InForce,
    time: Arc<ServerTime>,
}

impl fmt::Debug for StreamQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamQueue")
            .field("key", &self.options.key)
            .field("group", &self.options.group)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

/// Where bounded scans go on.
struct Cursors {
    /// Over parked deliveries.
    sweep: String,
    /// Over own deliveries.
    own: String,
    /// The greatest id that this host saw.
    seen: DeliveryId,
}

/// The beginning of a scan.
const FROM_START: &str = "-";

impl StreamQueue {
    /// Join the group, and make it (and its stream) if it does not exist.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses.
    pub async fn open(connector: Connector, options: StreamOptions) -> Result<Self, StartError> {
        let base = match options.consumer.as_str() {
            "" => "hostler",
            base => base,
        };
        let queue = Self {
            name: options.key.as_str().into(),
            consumer: format!("{base}-{:08x}", fastrand::u32(..)),
            parked: keys::parked(&options.key, &options.group),
            delayed: keys::delayed(&options.key),
            fences: keys::fences(&options.key, &options.group),
            calls: settle::Calls::default(),
            commands: connector.link("commands"),
            fetches: connector.link("fetch"),
            interruption: Interruption::default(),
            cursors: Mutex::new(Cursors {
                sweep: FROM_START.to_owned(),
                own: FROM_START.to_owned(),
                seen: DeliveryId(0),
            }),
            rotation: AtomicUsize::new(0),
            counts: Counts::default(),
            rules: InForce::new(options.rules()),
            time: Arc::default(),
            options,
        };
        let seen = queue
            .join()
            .await
            .map_err(|error| StartError::from_error(error, &queue.options.key))?;
        queue.saw(seen);
        let prepared = async {
            script::load(&queue.commands).await?;
            queue.time.read(&queue.commands).await?;
            queue.fetches.reach().await
        };
        prepared
            .await
            .map_err(|error| StartError::from_error(error, &queue.options.key))?;
        Ok(queue)
    }

    /// The name of this host's consumer: unique to this start.
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// What it was told.
    pub fn options(&self) -> &StreamOptions {
        &self.options
    }

    /// How often a connection was opened, the first two included.
    pub fn connections_opened(&self) -> u64 {
        self.commands.opened() + self.fetches.opened()
    }

    fn key(&self) -> &str {
        &self.options.key
    }

    fn group(&self) -> &str {
        &self.options.group
    }

    /// `error`, told with what was asked for.
    fn about(&self, error: Error) -> Error {
        error.about(self.key(), self.group())
    }

    fn cursors(&self) -> std::sync::MutexGuard<'_, Cursors> {
        // Plain values: a panic elsewhere leaves none half-written.
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, id: DeliveryId) {
        let mut cursors = self.cursors();
        cursors.seen = cursors.seen.max(id);
    }

    /// One claimed entry as a claim.
    fn claim(
        &self,
        command: &'static str,
        entry: &str,
        native: u32,
        origin: Origin,
        fields: Vec<(Bytes, Bytes)>,
    ) -> Result<Claim, Error> {
        let (id, ms) = parse_entry_id(entry).ok_or_else(|| Error::Reply {
            command,
            detail: "an entry id that is not one".to_owned(),
        })?;
        let mut decoded =
            wire::stream::decode(&self.name, entry, ms, &fields, &self.options.decoding);
        if let Origin::Orphan { idle } = origin {
            let headers = &mut decoded.message.headers;
            headers.set(REDIS_DELIVERY_COUNT, native.to_string());
            headers.set(REDIS_IDLE_MS, idle.as_millis().to_string());
        }
        Ok(Claim {
            id,
            origin,
            native,
            header: decoded.header,
            expires_at_ms: None,
            message: decoded.message,
            raw: Raw::Fields(fields),
            defect: decoded.defect,
        })
    }
}

#[async_trait]
impl Queue for StreamQueue {
    fn consumer(&self) -> &str {
        Self::consumer(self)
    }

    fn time(&self) -> Arc<ServerTime> {
        Arc::clone(&self.time)
    }

    async fn fetch(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        self.read_new(want, wait).await.map_err(|e| self.about(e))
    }

    fn adopt(&self, rules: Rules) {
        self.rules.replace(rules);
    }

    async fn interrupt(&self) -> Result<(), Error> {
        self.interruption
            .unblock(&self.commands, &self.fetches)
            .await
    }

    async fn take_due(&self, max: usize) -> Result<Taken, Error> {
        self.claim_due(max).await.map_err(|e| self.about(e))
    }

    async fn take_orphans(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error> {
        self.claim_orphans(max, holds)
            .await
            .map_err(|e| self.about(e))
    }

    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        self.record_starts(records).await.map_err(|e| self.about(e))
    }

    async fn acknowledge(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        self.acknowledge_all(claims)
            .await
            .map_err(|e| self.about(e))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        self.settle_all(settlements)
            .await
            .map_err(|e| self.about(e))
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        self.renew_leases(claims).await.map_err(|e| self.about(e))
    }

    async fn maintain(&self) -> Result<Maintenance, Error> {
        self.keep_house().await.map_err(|e| self.about(e))
    }

    async fn repair(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error> {
        self.make_again(held).await.map_err(|e| self.about(e))
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        self.look_at_backlog().await.map_err(|e| self.about(e))
    }

    async fn probe(&self) -> Result<(), Error> {
        self.look_whether_it_works()
            .await
            .map_err(|e| self.about(e))
    }

    fn contact(&self) -> Contact {
        Contact {
            connections_opened: self.connections_opened(),
            scripts_forgotten: self.commands.scripts_forgotten(),
            ..Contact::default()
        }
    }

    async fn observe(&self) -> Result<Option<Observation>, Error> {
        let rules = self.rules.now();
        let dead_letter = rules.dead_letter.as_ref();
        let report = inspect::stream(
            &self.commands,
            self.key(),
            self.group(),
            dead_letter.map(|dead_letter| dead_letter.key.as_str()),
        )
        .await?;
        Ok(Some(Observation {
            unread: report.lag.unwrap_or(u64::from(report.unread)),
            pending: report.pending,
            oldest_pending: report.oldest_pending_ms.map(Duration::from_millis),
            parked: report.delayed,
            dead_letters: report.dead_letters,
        }))
    }

    async fn leave(&self) -> Result<(), Error> {
        self.remove_self().await.map_err(|e| self.about(e))
    }
}

/// A command in pieces: `words("XGROUP CREATE")`.
fn words(text: &str) -> Cmd {
    let mut cmd = Cmd::new();
    for word in text.split(' ') {
        cmd.arg(word);
    }
    cmd
}
