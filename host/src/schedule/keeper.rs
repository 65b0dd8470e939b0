//! The part of a host that publishes ticks. Every host of the queue does this, and none leads: the script decides.
//!
//! A host looks at what is due, computes the messages and the next tick, and calls the script, which compares the tick. So a
//! host that dies anywhere leaves a tick that is due, or one that is done. The clock of the server decides; between two looks
//! the host only waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use crate::outgoing::write::Write;
use crate::publish::{self, Destination};
use crate::redis::connection::Link;
use crate::redis::error::{Class, Error};
use crate::schedule::definition::{Defined, Definition, id, run_id};
use crate::schedule::store::{Due, Kept, Store, Ticked};
use crate::schedule::ticks::{Plan, zone_data};
use crate::telemetry::metrics::Metrics;

/// How often a host looks whether a queue has got its first schedule.
const IDLE: Duration = Duration::from_secs(15);
/// How often it looks at the schedules of a queue that has some: changes are seen, and refused ticks are tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it leaves that out when the user of a queue without schedules may not look.
const FORBIDDEN: Duration = Duration::from_secs(600);
/// The most ticks that are handled between two looks.
const PER_ROUND: usize = 16;
/// The most messages of one call.
const PER_CALL: usize = 100;
/// The most bytes of them, if it is more than one.
const PER_CALL_BYTES: usize = 1 << 20;

/// The schedules of a configuration file.
#[derive(Clone, Debug, Default)]
pub struct OfFile {
    /// The name by which they are known.
    pub source: String,
    /// All of them.
    pub defined: Vec<Defined>,
}

/// Publishes the ticks of one queue.
#[derive(Debug)]
pub struct Keeper {
    store: Store,
    destination: Destination,
    metrics: Arc<Metrics>,
    /// What is to be written first; `None` = it is, or there is no file.
    file: Option<OfFile>,
    /// The queue had no room for those of the file, and this size.
    refused: Option<u64>,
    /// The queue has schedules, or gets those of the file.
    is_used: bool,
    /// What cannot be published, with the definition and why. It is logged once.
    failing: BTreeMap<String, (String, String)>,
}

impl Keeper {
    /// Publishes to this queue, which must be a stream or a reliable list.
    pub fn new(
        link: Arc<Link>,
        destination: Destination,
        file: Option<OfFile>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            store: Store::new(link, destination.name()),
            destination,
            metrics,
            is_used: file.as_ref().is_some_and(|file| !file.defined.is_empty()),
            file,
            refused: None,
            failing: BTreeMap::new(),
        }
    }

    /// Publish ticks for ever.
    pub async fn keep(mut self) {
        loop {
            let wait = match self.round().await {
                Ok(wait) => wait,
                Err(error) if error.class() == Class::Configuration && !self.is_used => {
                    debug!(%error, "could not look for schedules");
                    FORBIDDEN
                }
                Err(error) => {
                    // A Redis that is away is reported by the loop.
                    debug!(%error, "could not look at the schedules");
                    LOOK_EVERY
                }
            };
            sleep(wait).await;
        }
    }

    /// Publish what is due. Returns how long there is nothing to do.
    ///
    /// # Errors
    /// Any error of Redis: the ticks are still due.
    pub async fn round(&mut self) -> Result<Duration, Error> {
        let look = self.store.look().await?;
        let is_there = !look.zones.is_empty();
        match &self.file {
            Some(file) if is_there || !file.defined.is_empty() => {
                if self.define().await? {
                    return Ok(Duration::ZERO);
                }
            }
            _ => self.file = None,
        }
        self.is_used = is_there;
        if !is_there {
            self.failing.clear();
            self.show(0);
            return Ok(IDLE);
        }
        if look.zones.as_str() < zone_data() {
            info!(
                from = look.zones,
                to = zone_data(),
                "newer zone data: the next ticks of schedules are computed again"
            );
            self.store.reckon().await?;
        }
        let mut handled = 0;
        for due in &look.due {
            if handled == PER_ROUND {
                return Ok(Duration::ZERO);
            }
            handled += usize::from(self.tick(due, look.now_ms).await?);
        }
        // What was removed or replaced fails no more.
        let is_due = |name: &str| look.due.iter().any(|due| due.name == name);
        self.failing.retain(|name, _| is_due(name));
        let oldest = look.due.first().map_or(look.now_ms, |due| due.tick);
        self.show(look.now_ms.saturating_sub(oldest));
        if handled > 0 {
            return Ok(Duration::ZERO);
        }
        let next = look
            .next_ms
            .map(|next| Duration::from_millis(next - look.now_ms));
        Ok(next.unwrap_or(LOOK_EVERY).min(LOOK_EVERY))
    }

    fn show(&self, overdue_ms: u64) {
        let unwritten = match (&self.file, self.refused) {
            (Some(file), Some(_)) => file.defined.len(),
            _ => 0,
        };
        let failing = self.failing.len() + unwritten;
        self.metrics
            .schedule_overdue_seconds
            .set(Duration::from_millis(overdue_ms).as_secs_f64());
        self.metrics
            .schedules_failing
            .set(i64::try_from(failing).unwrap_or(i64::MAX));
    }

    /// Write the definitions of the file: the host that started last wins. Returns whether they are written.
    async fn define(&mut self) -> Result<bool, Error> {
        let Some(file) = &self.file else {
            return Ok(true);
        };
        let size = self.store.size().await?;
        // There is no more room than before.
        if self.refused == Some(size) {
            return Ok(false);
        }
        let written = self.store.define(&file.source, &file.defined).await?;
        for name in &written.taken {
            warn!(
                name,
                "the command line has defined this schedule: that of the file does not count until it is removed"
            );
        }
        for name in &written.removed {
            info!(
                name,
                source = file.source,
                "this schedule is removed: the file does not have it any more"
            );
        }
        if written.is_full {
            if self.refused.is_none() {
                error!(
                    source = file.source,
                    count = file.defined.len(),
                    "the queue has too many schedules: those of the file are not written"
                );
            }
            self.refused = Some(size);
            return Ok(false);
        }
        if self.refused.take().is_some() {
            info!(
                source = file.source,
                "the queue has room for the schedules of the file: they are written"
            );
        }
        self.file = None;
        Ok(true)
    }

    /// Publish a tick. Returns whether something has changed in Redis.
    async fn tick(&mut self, due: &Due, now_ms: u64) -> Result<bool, Error> {
        let Some(kept) = self.store.read(&due.name).await? else {
            return Ok(false);
        };
        let ticked = match self.try_tick(due, &kept, now_ms).await {
            // It may be this one alone that Redis refuses.
            Err(error) if error.class() == Class::Configuration => Err(error.to_string()),
            ticked => ticked?,
        };
        match ticked {
            Ok(Ticked::Done {
                published,
                skipped,
                refused: None,
            }) => {
                self.failing.remove(&due.name);
                self.metrics.schedule_ticks.inc_by(published);
                self.metrics.schedule_skipped.inc_by(skipped);
                Ok(true)
            }
            Ok(Ticked::Done {
                published,
                skipped,
                refused: Some(why),
            }) => {
                self.metrics.schedule_ticks.inc_by(published);
                self.metrics.schedule_skipped.inc_by(skipped);
                self.fails(due, &kept.text, why);
                Ok(published + skipped > 0)
            }
            Ok(Ticked::Moved) => Ok(true),
            Ok(Ticked::Early) => Ok(false),
            Err(why) => {
                self.fails(due, &kept.text, why);
                Ok(false)
            }
        }
    }

    /// The inner error says why this schedule cannot be published, for people.
    async fn try_tick(
        &self,
        due: &Due,
        kept: &Kept,
        now_ms: u64,
    ) -> Result<Result<Ticked, String>, Error> {
        let Some(known) = &kept.definition else {
            return Ok(Err("its definition cannot be read".to_owned()));
        };
        let plan = if due.is_run {
            Plan {
                publish: vec![due.tick],
                missed: 0,
                base: due.tick,
                next: None,
            }
        } else {
            match known.timing() {
                Ok(timing) => {
                    let most = (PER_CALL_BYTES / kept.body.len().max(1)).clamp(1, PER_CALL);
                    timing.plan(due.tick, now_ms, known.catches_up(), most)
                }
                Err(error) => return Ok(Err(error.to_string())),
            }
        };
        let id = if due.is_run { run_id } else { id };
        let writes = plan.publish.iter().map(|tick| {
            let id = id(&due.name, *tick);
            let write = self.message(&id, kept, known)?;
            Ok((id, write))
        });
        let writes = match writes.collect::<Result<Vec<_>, publish::Error>>() {
            Ok(writes) => writes,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let text = (kept.text.as_str(), known.skip_in.as_deref());
        let ticked = self.store.tick(due, text, &plan, &writes).await?;
        if let Ticked::Done {
            published,
            refused: None,
            ..
        } = &ticked
            && plan.missed > 0
        {
            self.metrics.schedule_missed.inc_by(plan.missed);
            warn!(
                name = due.name,
                missed = plan.missed,
                published,
                "ticks of this schedule were missed"
            );
        }
        Ok(Ok(ticked))
    }

    /// The message with this id, as it is written to the queue.
    fn message(&self, id: &str, kept: &Kept, known: &Definition) -> Result<Write, publish::Error> {
        let headers = known.headers(id);
        if self.destination.takes_headers() {
            return Write::now(&self.destination, &headers, &kept.body);
        }
        // A raw value has no place for an id: the message goes the way of a delayed one, which is framed.
        let hash = Sha256::digest(id);
        let token = *hash.first_chunk().expect("a digest has 32 bytes");
        let later = self
            .destination
            .write_later(&headers, &kept.body, Duration::ZERO, token)?;
        Ok(Write::Later(later))
    }

    /// Note that a schedule cannot be published. Other schedules go on.
    fn fails(&mut self, due: &Due, text: &str, why: String) {
        let now = (text.to_owned(), why);
        if self.failing.get(&due.name) != Some(&now) {
            let why = &now.1;
            error!(name = due.name, why, "a schedule cannot be published");
            self.failing.insert(due.name.clone(), now);
        }
    }
}
