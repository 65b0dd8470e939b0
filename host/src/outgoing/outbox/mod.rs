//! Messages to destinations in another slot than the queue: the script that acknowledges cannot write both.
//! It writes to an outbox in the slot of the queue, a stream for each destination. Hosts relay it.
//!
//! - `entry`: what an entry says.
//! - `relay`: the way from an outbox to its destination, and its crash windows.
//! - `report`: how much outboxes hold.
//!
//! An outbox outlives the hosts and the configuration that filled it: acknowledged publications are carried out.
//! The set of the destinations shows every host of the queue which outboxes there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use redis::cmd;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, warn};

mod entry;
mod relay;
pub(crate) mod report;

use crate::delivery::effect::Effects;
use crate::outgoing::Outlets;
use crate::outgoing::write::Write;
use crate::publish::{Channel, Destination};
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::wire::keys;
pub(crate) use entry::encode;
use relay::{Counts, Outbox};
use report::OutboxReport;

/// The most outboxes that a host relays. Those of its own destinations come first.
const OUTBOXES_MAX: usize = 1000;

/// When messages go through an outbox, and how many may be in one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    /// When.
    pub mode: Mode,
    /// The most messages in one outbox. A full one takes a message no more: the acknowledgement waits.
    pub max: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            max: 100_000,
        }
    }
}

/// When messages to another slot go through an outbox.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// On a cluster.
    #[default]
    Auto,
    /// Everywhere.
    Always,
}

impl Rules {
    /// Whether messages from this queue to this destination go through an outbox.
    pub(crate) fn concern(&self, queue: &str, to: &Destination, is_cluster: bool) -> bool {
        // A plain channel has no slot: every node of a cluster passes its messages on.
        let has_slot = !matches!(to, Destination::Channel(Channel { sharded: false, .. }));
        let is_elsewhere = keys::slot(to.name()) != keys::slot(queue);
        has_slot && is_elsewhere && (is_cluster || self.mode == Mode::Always)
    }
}

/// What the relays of a host did with the outboxes of its queue, and what is left, as far as this host knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Relayed {
    /// Messages that this host has written to destinations in other slots.
    pub written: u64,
    /// Times that a destination refused the next message, or could not be reached.
    pub refusals: u64,
    /// Outboxes whose next message is refused.
    pub blocked: u64,
    /// Messages in all outboxes.
    pub left: u64,
    /// The entries that were there when the queue was asked to hurry are relayed, or cannot be relayed now.
    pub is_done: bool,
}

impl Default for Relayed {
    /// A queue without outboxes.
    fn default() -> Self {
        Self {
            written: 0,
            refusals: 0,
            blocked: 0,
            left: 0,
            is_done: true,
        }
    }
}

/// An outbox, and its relay in this host.
#[derive(Debug)]
struct Relay {
    outbox: Arc<Outbox>,
    task: AbortHandle,
}

/// The outboxes of a queue, and their relays in this host.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    max: u64,
    queue: String,
    /// By the names that the handler uses.
    by_outlet: BTreeMap<String, Arc<Outbox>>,
    all: Mutex<Vec<Relay>>,
    /// How many outboxes wait because this host relays as many as it may.
    waiting: AtomicUsize,
    /// This host may read the outboxes that other configurations filled.
    may_relay_others: AtomicBool,
    counts: Arc<Counts>,
    /// The connection of the relays, and the relays: they end when this is dropped. `None` = this host relays
    /// nothing.
    relays: Option<(Arc<Link>, Mutex<JoinSet<()>>)>,
}

impl Outboxes {
    /// Those that these destinations need, and those that the queue has had before. Their relays begin.
    ///
    /// # Errors
    /// Redis cannot be asked about outboxes that are needed.
    pub(crate) async fn open(
        connector: &Connector,
        link: &Link,
        queue: &str,
        outlets: &Outlets,
        rules: Rules,
    ) -> Result<Self, Error> {
        let may_need = outlets.values().any(|to| rules.concern(queue, to, true));
        let is_cluster = may_need && link.is_cluster();
        let outlets = outlets.iter();
        let needed = outlets.filter(|(_, to)| rules.concern(queue, to, is_cluster));
        let needed: BTreeMap<&String, String> =
            needed.map(|(name, to)| (name, to.label())).collect();
        let known = match report::destinations(link, queue).await {
            Ok(known) => known,
            // A host that needs none serves without the right to look for those of others.
            Err(error) if needed.is_empty() && error.is_about_this_command() => {
                debug!(%error, "cannot look for outboxes");
                return Ok(Self::default());
            }
            Err(error) => return Err(error),
        };
        register(link, queue, needed.values(), &known).await?;
        let relays = (
            Arc::new(connector.link("relay").of(queue)),
            Mutex::default(),
        );
        let mut outboxes = Self {
            max: rules.max,
            queue: queue.to_owned(),
            may_relay_others: AtomicBool::new(true),
            relays: Some(relays),
            ..Self::default()
        };
        for (name, label) in &needed {
            if let Some(outbox) = outboxes.relayed_to(label) {
                outboxes.by_outlet.insert((*name).clone(), outbox);
            }
        }
        outboxes.relay_others(link, known).await?;
        Ok(outboxes)
    }

    /// Relay also what other hosts, or other configurations, wrote to the outboxes among these that are new. Returns
    /// whether some of them wait because this host relays as many as it may, and others made room for some: then
    /// another look finds room soon.
    async fn relay_others(&self, link: &Link, known: Vec<String>) -> Result<bool, Error> {
        let is_new = |label: &String| self.all.lock().iter().all(|o| o.outbox.label != *label);
        let others: Vec<String> = known.into_iter().filter(is_new).collect();
        if others.is_empty() || !self.may_relay_others.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let (mut waits, mut began) = (0, false);
        match report::report(link, &self.queue, others).await {
            Ok(others) => {
                for outbox in others {
                    if outbox.length > 0 {
                        self.make_room();
                    }
                    let relayed = self.relayed_to(&outbox.to);
                    if let Some(relayed) = &relayed {
                        relayed.length.store(outbox.length, Ordering::Relaxed);
                    }
                    waits += usize::from(relayed.is_none() && outbox.length > 0);
                    if relayed.is_some() && outbox.length > 0 {
                        began = true;
                        let (to, messages) = (&*outbox.to, outbox.length);
                        warn!(
                            to,
                            messages,
                            "an outbox holds messages for a destination that this configuration does not \
                             name: they were acknowledged, so this host relays them"
                        );
                    }
                }
            }
            Err(error) if error.is_about_this_command() => {
                self.may_relay_others.store(false, Ordering::Relaxed);
                warn!(
                    %error,
                    hint = error.hint(),
                    "cannot read the outboxes of other configurations: their messages wait"
                );
            }
            Err(error) => return Err(error),
        }
        let before = self.waiting.swap(waits, Ordering::Relaxed);
        if waits > 0 && before == 0 {
            warn!(
                waits,
                "this host relays {OUTBOXES_MAX} outboxes, and no more: others wait until some are empty"
            );
        }
        Ok(waits > 0 && began)
    }

    /// If this host relays as many outboxes as it may, stop the relay of one that was empty when it was last looked
    /// at: the look for others finds it again when it holds something.
    fn make_room(&self) {
        let mut all = self.all.lock();
        if all.len() < OUTBOXES_MAX {
            return;
        }
        let is_own = |outbox: &Arc<Outbox>| self.by_outlet.values().any(|o| Arc::ptr_eq(o, outbox));
        let is_idle = |relay: &Relay| {
            relay.outbox.length.load(Ordering::Relaxed) == 0 && !is_own(&relay.outbox)
        };
        if let Some(place) = all.iter().position(is_idle) {
            all.swap_remove(place).task.abort();
        }
    }

    /// The outbox for a destination. Its relay begins, if it has not begun.
    fn relayed_to(&self, label: &str) -> Option<Arc<Outbox>> {
        let mut all = self.all.lock();
        if let Some(known) = all.iter().find(|relay| relay.outbox.label == label) {
            return Some(Arc::clone(&known.outbox));
        }
        let (link, tasks) = self.relays.as_ref().filter(|_| all.len() < OUTBOXES_MAX)?;
        let outbox = Arc::new(Outbox::new(&self.queue, label)?);
        let counts = Arc::clone(&self.counts);
        let relaying = relay::relay(Arc::clone(&outbox), Arc::clone(link), counts);
        let mut tasks = tasks.lock();
        // Those that have made room have ended.
        while tasks.try_join_next().is_some() {}
        let task = tasks.spawn(relaying);
        all.push(Relay {
            outbox: Arc::clone(&outbox),
            task,
        });
        Some(outbox)
    }

    /// Relay also what other hosts have begun to write since this one began, and let others know what this one
    /// writes: a client may have deleted that. Returns as [`Self::relay_others`].
    pub(crate) async fn look_for_others(&self, link: &Link) -> Result<bool, Error> {
        if self.relays.is_none() {
            return Ok(false);
        }
        let known = match report::destinations(link, &self.queue).await {
            // As at the start.
            Err(error) if self.by_outlet.is_empty() && error.is_about_this_command() => {
                debug!(%error, "cannot look for outboxes");
                return Ok(false);
            }
            known => known?,
        };
        let own = self.by_outlet.values().map(|outbox| &outbox.label);
        register(link, &self.queue, own, &known).await?;
        self.relay_others(link, known).await
    }

    /// The write of a message to this outlet: through its outbox, if it has one.
    pub(crate) fn write(&self, outlet: &str, write: Write) -> Write {
        match self.by_outlet.get(outlet) {
            Some(outbox) => Write::Outbox {
                key: outbox.key.clone(),
                max: self.max,
                write: Box::new(write),
            },
            None => write,
        }
    }

    /// These effects may have happened: relay them.
    pub(crate) fn wake(&self, effects: &Effects) {
        let publications = effects.publications().iter();
        let outboxes = publications.filter_map(|one| self.by_outlet.get(&*one.to));
        outboxes.for_each(|outbox| outbox.wake());
    }

    /// What each of them holds.
    pub(crate) async fn report(&self, link: &Link) -> Result<Vec<OutboxReport>, Error> {
        let all = |relay: &Relay| relay.outbox.label.clone();
        let labels: Vec<String> = self.all.lock().iter().map(all).collect();
        report::report(link, &self.queue, labels).await
    }

    /// How many messages all of them hold.
    pub(crate) async fn length(&self, link: &Link) -> Result<u64, Error> {
        let reports = self.report(link).await?;
        Ok(reports.iter().map(|report| report.length).sum())
    }

    /// Relay now what is there.
    pub(crate) fn hurry(&self) {
        self.all
            .lock()
            .iter()
            .for_each(|relay| relay.outbox.hurry());
    }

    /// What the relays of this host did, and what is left as far as they know.
    pub(crate) fn relayed(&self) -> Relayed {
        let all = self.all.lock();
        let outboxes = || all.iter().map(|relay| &*relay.outbox);
        let blocked = outboxes().filter(|o| o.is_blocked.load(Ordering::Relaxed));
        Relayed {
            written: self.counts.written.load(Ordering::Relaxed),
            refusals: self.counts.refusals.load(Ordering::Relaxed),
            blocked: blocked.count() as u64,
            left: outboxes().map(|o| o.length.load(Ordering::Relaxed)).sum(),
            is_done: outboxes().all(Outbox::is_done),
        }
    }
}

/// Let every host of a queue know these destinations.
async fn register(
    link: &Link,
    queue: &str,
    labels: impl Iterator<Item = &String>,
    known: &[String],
) -> Result<(), Error> {
    const COMMAND: &str = "SADD";
    for label in labels.filter(|label| !known.contains(label)) {
        let mut add = cmd(COMMAND);
        add.arg(keys::outboxes(queue)).arg(label);
        link.call(COMMAND, &add).await?;
    }
    Ok(())
}
