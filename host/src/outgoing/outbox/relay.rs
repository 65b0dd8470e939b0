//! The relay of one outbox: it reads a run of entries from the head, writes it to the destination, and
//! removes what the destination confirms.
//!
//! Every host relays, without asking the others. The destination holds the last entry that it took from each
//! outbox, in its own slot, and skips what is not above it. Entries are added at the end only, and removed
//! only up to what the destination confirmed: so a run that was read at the head, whenever that was, leaves
//! no gap.
//!
//! A slot may lose data, or its clock go back: then new entries may have lower ids than the destination
//! took before. Nothing is skipped for that: if entries up to the last one that the destination took are in
//! the outbox without that one, its mark is void, and they are relayed, some of them perhaps again.
//!
//! | the host dies, stands still, or loses an answer | left | what happens |
//! |---|---|---|
//! | before it writes | the outbox | another host relays; the later writes of this one are skipped |
//! | between the write and its answer | the outbox, and the mark | it is written again, and skipped |
//! | between the write and the removal | the same | the same; then it is removed |
//! | after the removal | nothing | nothing |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::entry::{Entry, To};
use crate::delivery::backoff::Backoff;
use crate::delivery::message::DeliveryId;
use crate::delivery::millis::millis;
use crate::outgoing::scripts;
use crate::redis::connection::Link;
use crate::redis::error::{Class, Error};
use crate::redis::reply;
use crate::wire::entry_id::{entry_id, parse_entry_id};
use crate::wire::keys;

/// The most entries of a run, and after how many bytes it ends.
const RUN_ENTRIES: usize = 256;
const RUN_BYTES: usize = 1 << 20;
/// How often an outbox is looked at that this host did not write to: other hosts may have died.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a relay waits, at most, behind another one that was faster: it does the work.
const YIELD_MAX: Duration = Duration::from_millis(40);
/// The pauses while the destination refuses the head.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(100),
    factor: 2.0,
    max: Duration::from_secs(5),
    jitter: 0.2,
};
/// After this number of tries in a row to reach the server of the queue, a host that drains waits no longer.
const TRIES_MAX: u32 = 5;
/// How often a destination that refuses is mentioned.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What all relays of a host did.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) written: AtomicU64,
    pub(super) refusals: AtomicU64,
}

/// An outbox, as the queue and the relay of this host share it.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Its destination, as `grant.publish` names it.
    pub(super) label: String,
    pub(super) key: String,
    to: To,
    /// This host has written to it.
    wake: Notify,
    /// The host drains: do not pause.
    hurry: Notify,
    /// How often the relay was asked to hurry; up to which of these it has seen the end of the outbox; and in
    /// which of these it failed last.
    hurries: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    /// The destination refuses the head.
    pub(super) is_blocked: AtomicBool,
    /// How many messages it held when it was last looked at.
    pub(super) length: AtomicU64,
}

impl Outbox {
    /// The outbox of a queue for this destination; `None` if the label names no destination.
    pub(super) fn new(queue: &str, label: &str) -> Option<Self> {
        Some(Self {
            label: label.to_owned(),
            key: keys::outbox(queue, label),
            to: To::parse(label)?,
            wake: Notify::new(),
            hurry: Notify::new(),
            hurries: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            is_blocked: AtomicBool::new(false),
            length: AtomicU64::new(0),
        })
    }

    /// There is something to relay.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Relay now what is there, also to a destination that refused it.
    pub(super) fn hurry(&self) {
        self.hurries.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_one();
        self.hurry.notify_one();
    }

    /// Whether the entries that were there when it was asked to hurry are relayed, or cannot be relayed now.
    pub(super) fn is_done(&self) -> bool {
        let hurries = self.hurries.load(Ordering::Acquire);
        let reached = |at: &AtomicU64| at.load(Ordering::Acquire) >= hurries;
        reached(&self.ended) || reached(&self.failed)
    }
}

/// What one run did.
#[derive(Default)]
struct Run {
    /// How many entries it wrote: other relays wrote the rest.
    written: u64,
    /// It had all entries of the outbox.
    is_all: bool,
    /// When it was read, by the server's clock, in epoch ms; and the time of the last entry that is relayed.
    read_ms: u64,
    relayed_ms: u64,
    /// Why the destination refused the next one.
    refusal: Option<String>,
}

/// Relay an outbox, for as long as this host lives.
pub(super) async fn relay(outbox: Arc<Outbox>, link: Arc<Link>, counts: Arc<Counts>) {
    let (mut tries, mut next_warning, mut is_said) = (0_u32, Instant::now(), false);
    let (mut void, mut goal) = (None, (0, 0));
    loop {
        let hurries = outbox.hurries.load(Ordering::Acquire);
        let refusal = match run(&outbox, &link, &counts, &mut void).await {
            Ok(run) => {
                if goal.0 != hurries {
                    // Entries that others add from now on are theirs.
                    goal = (hurries, run.read_ms);
                }
                if run.written > 0 {
                    tries = 0;
                }
                let Some(refusal) = run.refusal else {
                    outbox.is_blocked.store(false, Ordering::Relaxed);
                    if std::mem::take(&mut is_said) {
                        let to = &*outbox.label;
                        info!(to, "the destination takes what was published again");
                    }
                    tries = 0;
                    outbox.rest(&run, goal).await;
                    continue;
                };
                refusal
            }
            // The loop reports a server that does not answer.
            Err(error) if error.class() == Class::Reconnect && !link.is_cluster() => {
                debug!(%error, to = &*outbox.label, "cannot relay now");
                tries = tries.saturating_add(1);
                if tries >= TRIES_MAX {
                    outbox.failed.store(hurries, Ordering::Release);
                }
                sleep(PAUSES.delay(tries, fastrand::f64())).await;
                continue;
            }
            Err(error) => error.to_string(),
        };
        tries = tries.saturating_add(1);
        counts.refusals.fetch_add(1, Ordering::Relaxed);
        outbox.is_blocked.store(true, Ordering::Relaxed);
        outbox.failed.store(hurries, Ordering::Release);
        let pause = PAUSES.delay(tries, fastrand::f64());
        let (to, again_ms) = (&*outbox.label, millis(pause));
        if Instant::now() >= next_warning {
            (next_warning, is_said) = (Instant::now() + WARN_EVERY, true);
            let waiting = outbox.length.load(Ordering::Relaxed);
            warn!(
                to,
                refusal,
                waiting,
                again_ms,
                "cannot relay what was published; it waits in the outbox"
            );
        } else {
            debug!(to, refusal, again_ms, "cannot relay");
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = outbox.hurry.notified() => {}
        }
    }
}

impl Outbox {
    /// Wait until the next run is worth it.
    async fn rest(&self, run: &Run, (hurries, goal_ms): (u64, u64)) {
        if run.is_all || run.relayed_ms > goal_ms {
            self.ended.store(hurries, Ordering::Release);
        }
        if !run.is_all {
            if run.written == 0 {
                sleep(YIELD_MAX.mul_f64(fastrand::f64())).await;
            }
            return;
        }
        let jittered = LOOK_EVERY.mul_f64(1.0 + fastrand::f64() / 4.0);
        tokio::select! {
            () = sleep(jittered) => {}
            () = self.wake.notified() => {}
        }
    }
}

/// Relay the head of an outbox. `void` is a mark of the destination that was found to be void.
async fn run(
    outbox: &Outbox,
    link: &Link,
    counts: &Counts,
    void: &mut Option<String>,
) -> Result<Run, Error> {
    let head = read(outbox, link).await?;
    let mut run = Run {
        is_all: head.is_all,
        read_ms: head.read_ms,
        ..Run::default()
    };
    outbox.length.store(head.length, Ordering::Relaxed);
    let Some(last) = head.entries.last() else {
        return Ok(run);
    };
    let last = last.id.clone();
    let mut written_keys = vec![keys::from(&outbox.to.name)];
    written_keys.extend(outbox.to.keys(&head.entries));
    let place = |key: &str| {
        written_keys
            .iter()
            .position(|known| known == key)
            .map(|at| at + 1)
    };
    let script = &scripts::RELAY;
    let keys: Vec<&str> = written_keys.iter().map(String::as_str).collect();
    let mut call = script.on(&keys);
    call.arg(&outbox.key).arg(void.as_deref().unwrap_or(""));
    let mut entries = head.entries.iter();
    let unreadable = entries.find(|entry| !outbox.to.add(entry, place, &mut call));
    if let Some(entry) = unreadable {
        let (id, key) = (&entry.id, &outbox.key);
        let why = format!(
            "the entry {id} of {key} cannot be read: a newer hostler may have written it, and relays it; if none has, \
             delete it with XDEL to go on"
        );
        run.refusal = Some(why);
    }
    // A script of its own finds nothing wrong with what it does not get.
    if unreadable.is_some_and(|entry| entry.id == head.entries[0].id) {
        return Ok(run);
    }
    let answer = link.run(script, &call).await?;
    let [mark, written, why, was_void] = reply::tuple(script.name(), answer)?;
    let mark = reply::text(script.name(), mark)?;
    run.written = reply::count(script.name(), &written)?;
    counts.written.fetch_add(run.written, Ordering::Relaxed);
    let why = reply::text(script.name(), why)?;
    if !why.is_empty() {
        run.refusal = Some(why);
    }
    if run.written > 0 {
        *void = None;
        if reply::count(script.name(), &was_void)? == 1 {
            let (to, first) = (&*outbox.label, &*head.entries[0].id);
            warn!(
                to,
                first,
                "the outbox lost entries and began again with lower ids, so what it holds is relayed from here: \
                 some messages may arrive twice"
            );
        }
    }
    let (mark_id, mark_ms) = parse_entry_id(&mark)
        .ok_or_else(|| reply::invalid(script.name(), "a mark that is not an entry id"))?;
    let Some(removed) = remove(outbox, link, &mark, mark_id).await? else {
        *void = Some(mark);
        run.is_all = false;
        return Ok(run);
    };
    let left = head.length.saturating_sub(removed);
    outbox.length.store(left, Ordering::Relaxed);
    run.relayed_ms = mark_ms;
    // The entries behind a refused entry are not relayed.
    run.is_all &=
        run.refusal.is_none() && parse_entry_id(&last).is_some_and(|(last, _)| mark_id >= last);
    Ok(run)
}

struct Head {
    /// How many entries the outbox has.
    length: u64,
    /// These are all of them.
    is_all: bool,
    /// When it was read, by the server's clock, in epoch ms.
    read_ms: u64,
    entries: Vec<Entry>,
}

async fn read(outbox: &Outbox, link: &Link) -> Result<Head, Error> {
    let script = &scripts::OUTBOX_HEAD;
    let mut call = script.on(&[&outbox.key]);
    call.arg(RUN_ENTRIES).arg(RUN_BYTES);
    let answer = link.run(script, &call).await?;
    let mut parts = reply::array(script.name(), answer)?.into_iter();
    let missing = || reply::invalid(script.name(), "too few parts");
    let mut next = || parts.next().ok_or_else(missing);
    let length = reply::count(script.name(), &next()?)?;
    let is_all = reply::count(script.name(), &next()?)? == 1;
    let read_ms = reply::count(script.name(), &next()?)?;
    let mut entries = Vec::new();
    while let Some(id) = parts.next() {
        let id = reply::text(script.name(), id)?;
        let count = reply::count(script.name(), &parts.next().ok_or_else(missing)?)?;
        let mut fields = Vec::new();
        for _ in 0..count / 2 {
            let mut part = || reply::bytes(script.name(), parts.next().ok_or_else(missing)?);
            fields.push((part()?, part()?));
        }
        entries.push(Entry { id, fields });
    }
    Ok(Head {
        length,
        is_all,
        read_ms,
        entries,
    })
}

/// Remove the entries up to the one that the destination took last. Returns how many; `None`: the destination
/// took other entries than these.
async fn remove(
    outbox: &Outbox,
    link: &Link,
    mark: &str,
    DeliveryId(id): DeliveryId,
) -> Result<Option<u64>, Error> {
    let script = &scripts::OUTBOX_TRIM;
    let mut call = script.on(&[&outbox.key]);
    call.arg(mark)
        .arg(entry_id(DeliveryId(id.saturating_add(1))));
    let answer = link.run(script, &call).await?;
    let removed = reply::integer(script.name(), &answer)?;
    Ok(u64::try_from(removed).ok())
}
