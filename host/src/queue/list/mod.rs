//! Reliable lists: at least once, through a processing list of each instance.
//!
//! - [`options`]: what a list queue is told.
//! - [`token`]: what tells entries apart.
//! - `value`: values and their counts.
//! - `claims`: fetch, take what is due.
//! - `orphans`: take over what dead instances left.
//! - `overflow`: what waits beyond a length is given up.
//! - `settle`: record, renew, acknowledge, put back.
//! - `dead_letters`: the settlement that copies.
//! - [`report`]: what it looks like from outside.
//! - `upkeep`: joining, leaving, what waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;

use super::dead_letters::Counts;
use super::rules::InForce;
use super::{
    Backlog, Claim, Contact, Maintenance, Observation, Queue, Record, Repair, Repaired, Reply,
    Rules, Settlement, Taken,
};
use crate::delivery::message::DeliveryId;
use crate::redis::ServerTime;
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::redis::interruption::Interruption;
use crate::redis::script::Script;
use crate::redis::startup::StartError;
use crate::wire::keys;

mod claims;
mod dead_letters;
pub mod options;
mod orphans;
mod overflow;
pub mod report;
mod settle;
pub mod token;
mod upkeep;
mod value;

pub use options::{ListOptions, Recovery};

use token::Tokens;
use value::{Lasting, Values};

/// After how many bytes of values a script stops: copying them blocks Redis.
const BYTES_MAX: usize = 4 << 20;
/// Most deliveries that one script claims.
const CLAIMS_MAX: usize = 1024;

/// A reliable list, as one host serves it.
pub struct ListQueue {
    options: ListOptions,
    values: Values,
    instance: String,
    keys: Keys,
    tokens: Tokens,
    /// For everything but fetching.
    commands: Link,
    /// Fetching only: it blocks.
    fetches: Link,
    interruption: Interruption,
    /// Whether the server lets us wait.
    may_wait: AtomicBool,
    given_up: GivenUp,
    /// From which instance the next orphan scan begins.
    rotation: AtomicUsize,
    counts: Counts,
    rules: InForce,
}

/// The keys of a list and of this instance.
struct Keys {
    retry: String,
    delayed: String,
    instances: String,
    processing: String,
    started: String,
    /// What the key of any instance's processing list begins with.
    processing_prefix: String,
    started_prefix: String,
}

/// Whether others may have given this instance up since its leases were last looked at one by one.
#[derive(Default)]
struct GivenUp {
    noticed: AtomicU64,
    looked_at: AtomicU64,
}

impl GivenUp {
    fn notice(&self) {
        self.noticed.fetch_add(1, Ordering::SeqCst);
    }

    /// What has to be looked at, if anything.
    fn open(&self) -> Option<u64> {
        let noticed = self.noticed.load(Ordering::SeqCst);
        (noticed != self.looked_at.load(Ordering::SeqCst)).then_some(noticed)
    }

    fn close(&self, noticed: u64) {
        self.looked_at.fetch_max(noticed, Ordering::SeqCst);
    }
}

impl fmt::Debug for ListQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListQueue")
            .field("key", &self.options.key)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl ListQueue {
    /// Serve the list as a new instance.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses.
    pub async fn open(connector: Connector, options: ListOptions) -> Result<Self, StartError> {
        let base = match options.consumer.as_str() {
            "" => "hostler",
            base => base,
        };
        let instance = format!("{base}-{:08x}", fastrand::u32(..));
        let queue = Self {
            values: Values {
                name: options.key.as_str().into(),
                framing: options.framing,
                accounting: options.accounting,
                ttl: Lasting::new(options.ttl),
                time: Arc::default(),
            },
            keys: Keys {
                retry: keys::retry(&options.key),
                delayed: keys::delayed(&options.key),
                instances: keys::instances(&options.key),
                processing: keys::processing(&options.key, &instance),
                started: keys::started(&options.key, &instance),
                processing_prefix: keys::processing(&options.key, ""),
                started_prefix: keys::started(&options.key, ""),
            },
            instance,
            tokens: Tokens::new(options.min_idle / 2),
            commands: connector.link("commands"),
            fetches: connector.link("fetch"),
            interruption: Interruption::default(),
            may_wait: AtomicBool::new(true),
            given_up: GivenUp::default(),
            rotation: AtomicUsize::new(0),
            counts: Counts::default(),
            rules: InForce::new(options.rules()),
            options,
        };
        let joined = async {
            queue.values.time.read(&queue.commands).await?;
            queue.join().await
        };
        joined
            .await
            .map_err(|error| StartError::from_error(error, &queue.options.key))?;
        Ok(queue)
    }

    /// The name of this instance: unique to this start.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What it was told.
    pub fn options(&self) -> &ListOptions {
        &self.options
    }

    fn key(&self) -> &str {
        &self.options.key
    }

    /// A call of a script with these keys, and with the recovery set if there is one.
    fn call(&self, script: Script, keys: &[&str]) -> Cmd {
        match &self.options.recovery {
            Some(recovery) => script.on(&[keys, &[&*recovery.key]].concat()),
            None => script.on(keys),
        }
    }

    /// How long the recovery set lives without a claim or renewal, in ms; 0 = for ever.
    fn recovery_ttl(&self) -> u64 {
        let ttl = self.options.recovery.as_ref().and_then(|r| r.ttl);
        ttl.map_or(0, millis)
    }

    /// What a script says about this instance: given up by others, or not.
    fn heed(&self, unknown: i64) {
        if unknown == 1 {
            self.given_up.notice();
        }
    }
}

#[async_trait]
impl Queue for ListQueue {
    fn consumer(&self) -> &str {
        self.instance()
    }

    fn time(&self) -> Arc<ServerTime> {
        Arc::clone(&self.values.time)
    }

    async fn fetch(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        self.read_new(want, wait).await
    }

    fn adopt(&self, rules: Rules) {
        self.values.ttl.set(rules.ttl);
        self.rules.replace(rules);
    }

    async fn interrupt(&self) -> Result<(), Error> {
        self.interruption
            .unblock(&self.commands, &self.fetches)
            .await
    }

    async fn take_due(&self, max: usize) -> Result<Taken, Error> {
        self.claim_due(max).await
    }

    async fn take_orphans(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error> {
        self.claim_orphans(max, holds).await
    }

    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        self.record_starts(records).await
    }

    async fn acknowledge(&self, claims: &[Arc<Claim>]) -> Result<(), Error> {
        self.acknowledge_all(claims).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        self.settle_all(settlements).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        self.renew_leases(claims).await
    }

    async fn maintain(&self) -> Result<Maintenance, Error> {
        self.keep_house().await
    }

    /// A list exists as soon as something is in it: nothing is ever missing.
    async fn repair(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error> {
        let claims: Vec<_> = held.iter().map(|(claim, _)| Arc::clone(claim)).collect();
        Ok(Repair {
            repaired: Repaired::Intact,
            held: self.renew(&claims).await?,
        })
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        self.look_at_backlog().await
    }

    async fn observe(&self) -> Result<Option<Observation>, Error> {
        let recovery = self.options.recovery.as_ref().map(|r| &*r.key);
        let rules = self.rules.now();
        let dead_letter = rules.dead_letter.as_ref().map(|d| &*d.key);
        let report = report::report(&self.commands, self.key(), recovery, dead_letter).await?;
        Ok(Some(Observation {
            unread: report.length,
            pending: report.pending,
            oldest_pending: report.oldest_pending_ms.map(Duration::from_millis),
            parked: report.delayed,
            dead_letters: report.dead_letters,
        }))
    }

    async fn probe(&self) -> Result<(), Error> {
        self.look_whether_it_works().await
    }

    fn contact(&self) -> Contact {
        Contact {
            connections_opened: self.commands.opened() + self.fetches.opened(),
            scripts_forgotten: self.commands.scripts_forgotten(),
            ..Contact::default()
        }
    }

    async fn leave(&self) -> Result<(), Error> {
        self.forget_self().await
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// At least as long as was asked for.
fn round_up_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
