//! What the driver counts, logs and shows. Nothing here changes what happens to a delivery.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};

use crate::delivery::ledger::{
    Admission, Closed, Delivery, HaltCause, Key, Note, Origin, SettleAction, TurnedAway,
};
use crate::delivery::message::Message;
use crate::delivery::millis::millis;
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::policy::{Disposition, Policy, Reason, Rejection};
use crate::delivery::reply;
use crate::delivery::text::printable;
use crate::delivery::trace::Trace;
use crate::queue::limits::{Admitted, WAITING_MAX};
use crate::queue::{
    Contact, Guarantee, Maintenance, Observation, Relayed, Repair, Repaired, Reply, Taken,
};
use crate::redis::Error;
use crate::runtime::handler::Report;
use crate::runtime::job::Job;
use crate::telemetry::health::{Cause, Health};
use crate::telemetry::logging::Throttle;
use crate::telemetry::metrics::{Counter, Gauge, Metrics};
use crate::telemetry::status::{Fault as FaultShown, Status};
use crate::telemetry::wall_clock_ms;

/// At most this many lines in a second report single faults of one kind, dead letters, or discarded messages;
/// all are counted.
const MESSAGE_LINES: u32 = 100;

/// See the module.
#[derive(Debug)]
pub(super) struct Reporter {
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Health,
    pub(super) status: Status,
    guarantee: Guarantee,
    /// Events that concern many deliveries at once are logged once a second.
    throttle: Throttle,
    /// Lines about single messages: a burst of each kind in a second.
    message_lines: Throttle,
    /// The requests of the queue that are counted already.
    contact: Contact,
    /// What the queue relayed that is counted already.
    relayed: Relayed,
    /// Messages that a full buffer dropped, and that are not logged yet.
    dropped_unlogged: u64,
    /// Redis has refused a settlement, and has not carried it out yet.
    refuses_settlements: bool,
    /// Redis refuses housekeeping. This is logged once.
    refuses_housekeeping: bool,
    /// Unread or pending entries hold back retention. This is logged once.
    held_back: bool,
}

impl Reporter {
    pub(super) fn new(
        metrics: Arc<Metrics>,
        health: Health,
        guarantee: Guarantee,
        contact: Contact,
    ) -> Self {
        Self {
            metrics,
            health,
            status: Status::default(),
            guarantee,
            throttle: Throttle::default(),
            message_lines: Throttle::bursts(Duration::from_secs(1), MESSAGE_LINES),
            contact,
            relayed: Relayed::default(),
            dropped_unlogged: 0,
            refuses_settlements: false,
            refuses_housekeeping: false,
            held_back: false,
        }
    }

    // Deliveries.

    pub(super) fn claimed(&self, delivery: &Delivery<Job>, now_ms: u64) {
        let message = &delivery.job.claim.message;
        if message.enqueued_ms > 0 && delivery.origin == Origin::Fresh {
            let waited = Duration::from_millis(now_ms.saturating_sub(message.enqueued_ms));
            self.metrics.queue_wait_seconds.observe(waited);
        }
        if delivery.turned_away == Some(TurnedAway::OtherGroup) {
            self.metrics.other_group.inc();
            debug!(
                message_id = printable(&message.id),
                "replayed for another group"
            );
        }
        if delivery.turned_away == Some(TurnedAway::Duplicate) {
            self.duplicate(message);
        }
    }

    /// A message with its id was handled.
    pub(super) fn duplicate(&self, message: &Message) {
        self.metrics.duplicates.inc();
        debug!(message_id = printable(&message.id), "handled already");
    }

    pub(super) fn taken(&self, taken: &Taken) {
        if taken.trimmed > 0 {
            self.metrics.trimmed_pending.inc_by(taken.trimmed);
            let entries = taken.trimmed;
            warn!(entries, "lost to trimming: deleted while they were pending");
        }
    }

    /// An attempt has ended; `started` is its delivery, if that is still held, and its number.
    pub(super) fn finished(&self, started: Option<(&Job, u32)>, report: &Report) {
        self.metrics.attempt(&report.outcome);
        self.metrics.handler_seconds.observe(report.duration);
        let dropped = &self.metrics.guest_log_bytes_dropped;
        dropped.inc_by(report.log_bytes_dropped);
        if report.outcome == Outcome::Ack {
            return;
        }
        if self.guarantee == Guarantee::AtMostOnce {
            self.metrics.outcome_not_honoured(&report.outcome);
        }
        let Some((job, attempt)) = started else {
            return;
        };
        let id = &*job.claim.message.id;
        let message_id = || printable(id);
        let handler = &*report.digest;
        let of_message = || Trace::of(&job.claim.message.headers);
        let trace = report.trace.or_else(of_message);
        let trace_id = trace.as_ref().map(Trace::trace_id);
        let span_id = trace.as_ref().map(Trace::span_id);
        if let Some(Err(reason)) = &report.hold {
            self.metrics.holds_refused.inc();
            if let Some(suppressed) = self.message_line("hold-refused") {
                warn!(
                    message_id = message_id(),
                    attempt,
                    reason,
                    handler,
                    trace_id,
                    span_id,
                    suppressed,
                    "the message is not held: its attempt is charged"
                );
            }
        }
        let Outcome::Fault(fault) = &report.outcome else {
            let outcome = &report.outcome;
            debug!(
                message_id = message_id(),
                attempt,
                ?outcome,
                handler,
                trace_id,
                span_id,
                "the handler answered"
            );
            return;
        };
        if fault.kind == FaultKind::HostPanic {
            self.metrics.host_panics.inc();
        }
        let kind = fault.kind.label();
        self.status.fault(FaultShown {
            at_ms: wall_clock_ms(),
            id: id.to_owned(),
            kind,
            detail: fault.detail.clone(),
            handler: handler.to_owned(),
        });
        if let Some(suppressed) = self.message_line(kind) {
            warn!(
                message_id = message_id(),
                attempt,
                kind,
                detail = fault.detail,
                handler,
                trace_id,
                span_id,
                suppressed,
                "the handler faulted"
            );
        }
    }

    pub(super) fn closed(&self, job: &Job, how: Closed, policy: &Policy) {
        let id = || printable(&job.claim.message.id);
        let is_acked = matches!(
            how,
            Closed::Acknowledged | Closed::Settled(SettleAction::Acknowledge)
        );
        // A line about an attempt names the handler that ran, if any has.
        let handler = match how {
            Closed::Settled(_) => job.last.as_ref().map(|last| &*last.handler),
            _ => None,
        };
        let trace = if is_acked { None } else { job.trace() };
        let trace_id = trace.as_ref().map(Trace::trace_id);
        let span_id = trace.as_ref().map(Trace::span_id);
        /// A line about the attempt, with these fields and this text.
        macro_rules! line {
            ($level:ident, $($fields:tt)*) => {
                $level!(message_id = id(), handler, trace_id, span_id, $($fields)*)
            };
        }
        self.effects_closed(job, is_acked);
        if let Some(status) = answered(job, &how) {
            self.metrics.replied(status);
        }
        match how {
            Closed::Acknowledged | Closed::Settled(SettleAction::Acknowledge) => {
                self.metrics.acknowledged(1);
            }
            Closed::Settled(SettleAction::Park { after, .. }) => {
                let requeue = Disposition::Requeue { delay: after };
                self.metrics.disposition(&requeue);
                line!(debug, delay_ms = millis(after), "requeued");
            }
            Closed::Settled(SettleAction::Hold { after, .. }) => {
                let requeue = Disposition::Requeue { delay: after };
                self.metrics.disposition(&requeue);
                self.metrics.holds.inc();
                let holds = job.claim.held.count.saturating_add(1);
                line!(
                    debug,
                    delay_ms = millis(after),
                    holds,
                    "held: its start is not charged"
                );
            }
            Closed::Settled(SettleAction::HandBack { after, .. }) => {
                debug!(message_id = id(), delay_ms = millis(after), "handed back")
            }
            Closed::Settled(SettleAction::Leave { .. }) => {
                debug!(message_id = id(), "left for another host")
            }
            Closed::Settled(SettleAction::DeadLetter(rejection)) => {
                let (reason, attempts) = (rejection.reason.label(), rejection.attempts);
                let detail = &*rejection.detail;
                if let Some(suppressed) = self.message_line("dead-lettered") {
                    line!(warn, reason, attempts, detail, suppressed, "dead-lettered");
                }
                let dead_letter = Disposition::DeadLetter(rejection);
                self.metrics.disposition(&dead_letter);
            }
            Closed::Settled(SettleAction::Discard(rejection)) => {
                let (reason, attempts) = (rejection.reason.label(), rejection.attempts);
                let detail = &*rejection.detail;
                if self.guarantee == Guarantee::AtMostOnce {
                    if let Some(others) = self.pass("lost") {
                        line!(
                            warn,
                            reason,
                            detail,
                            others,
                            "lost: this queue takes nothing back"
                        );
                    }
                } else if !policy.is_lost(rejection.reason) {
                    if let Some(suppressed) = self.message_line("discarded") {
                        line!(info, reason, attempts, detail, suppressed, "discarded");
                    }
                } else if let Some(others) = self.pass(reason) {
                    line!(
                        warn,
                        reason,
                        attempts,
                        detail,
                        others,
                        "discarded: it cannot be handled, and there is no `dead_letter.key`"
                    );
                }
                let discard = Disposition::Discard(rejection);
                self.metrics.disposition(&discard);
            }
            Closed::Superseded => debug!(message_id = id(), "claimed again"),
            Closed::Gone => self.count(
                &self.metrics.gone,
                "gone",
                job,
                "no longer pending: it was settled elsewhere, or went with a deleted consumer",
            ),
            Closed::Cancelled => {
                let attempts = job.claim.native;
                if let Some(suppressed) = self.message_line("cancelled") {
                    line!(info, attempts, suppressed, "cancelled by an operator");
                }
                let cancelled = Rejection::new(Reason::Cancelled, String::new(), attempts, false);
                self.metrics.disposition(&Disposition::Discard(cancelled));
            }
            Closed::Trimmed => self.count(
                &self.metrics.trimmed_pending,
                "trimmed",
                job,
                "lost to trimming: its entry was deleted while it was pending",
            ),
            Closed::Stolen => self.count(
                &self.metrics.steals,
                "stolen",
                job,
                "another host has taken it over",
            ),
        }
    }

    /// These asked whether they may start, by the limits of the queue.
    pub(super) fn admitted(&self, admitted: &[(Key, Admitted)]) {
        for (_, admitted) in admitted {
            let (false, Some(limit)) = (
                admitted.admission == Admission::Granted,
                admitted.limit.as_deref(),
            ) else {
                continue;
            };
            self.metrics.limited.inc();
            let key = admitted.key.as_deref().map(printable);
            let waits = &self.metrics.limited_for_seconds;
            waits.waits(Instant::now(), limit, key.clone());
            if let Some(key) = key
                && let Some(others) = self.pass("limited in order")
            {
                warn!(
                    limit,
                    key,
                    others,
                    waiting_max = WAITING_MAX,
                    "so many messages wait that the queue is first in, first out: this key stops it"
                );
            }
        }
    }

    /// The effects of the last attempt happened with its acknowledgement, or never.
    fn effects_closed(&self, job: &Job, is_acked: bool) {
        let effects = job.effects.as_ref();
        let Some(effects) = effects.filter(|all| !all.is_empty() && !all.is_void()) else {
            return;
        };
        let (messages, keys) = (effects.publications().len(), effects.written().len());
        if is_acked {
            self.metrics.published.inc_by(messages as u64);
            self.metrics.keys_written.inc_by(keys as u64);
            return;
        }
        self.metrics.effects_void.inc();
        if let Some(others) = self.pass("effects_void") {
            let message_id = printable(&job.claim.message.id);
            warn!(
                message_id,
                messages,
                keys,
                others,
                "the acknowledgement came too late: what the attempt published and wrote is void"
            );
        }
    }

    /// Count something that happened to a delivery. A burst of one kind is logged once a second.
    fn count<'a>(
        &self,
        counter: &Counter,
        kind: &'static str,
        job: impl Into<Option<&'a Job>>,
        text: &'static str,
    ) {
        counter.inc();
        if let Some(others) = self.pass(kind) {
            let job: Option<&Job> = job.into();
            let message_id = job.map(|job| printable(&job.claim.message.id));
            warn!(message_id, others, "{text}");
        }
    }

    /// A note of the ledger; `job` is its delivery, if it is about one.
    pub(super) fn note(&mut self, note: Note, job: Option<&Job>) {
        let message_id = || job.map(|job| printable(&job.claim.message.id));
        match note {
            Note::OrphansTaken(n) => {
                self.metrics.orphans_recovered.inc_by(n as u64);
                info!(orphans = n, "recovered orphans");
            }
            Note::RequeuedHere => {
                let delay = Duration::ZERO;
                self.metrics.disposition(&Disposition::Requeue { delay });
            }
            Note::Recorded => {
                self.metrics.recorded_starts.inc();
            }
            Note::Changed { gives_up: true, .. } => self.count(
                &self.metrics.reruns,
                "changed",
                job,
                "the values that it read changed before each acknowledgement: this counts as a nack",
            ),
            Note::Changed { .. } => {
                self.metrics.reruns.inc();
            }
            Note::Unfit { cause, .. } => {
                if let Some(others) = self.pass("unfit") {
                    warn!(
                        message_id = message_id(),
                        cause,
                        others,
                        "what an attempt publishes or writes does not fit: this counts as a nack"
                    );
                }
            }
            Note::SettlementRefused {
                cause,
                is_dead_letter,
                again,
                ..
            } => {
                self.metrics.settlements_refused.inc();
                self.refuses_settlements = true;
                let what = match is_dead_letter {
                    true => Cause::DeadLettersRefused,
                    false => Cause::SettlementsRefused,
                };
                self.health.impede(what, &*cause);
                if let Some(others) = self.pass("refused") {
                    let (refusals, again_ms) = (others + 1, millis(again));
                    warn!(
                        message_id = message_id(),
                        cause, refusals, again_ms, "redis refuses a settlement; it stays pending"
                    );
                }
            }
            Note::LeaseLost(_) => self.count(
                &self.metrics.leases_lost,
                "lease",
                job,
                "lost the lease of a running attempt",
            ),
            Note::LeasesRenewed(n) => {
                self.metrics.lease_renewals.inc_by(n as u64);
            }
            Note::IsolatedRunBegan(_) => {
                self.metrics.isolated_runs.inc();
                info!(
                    message_id = message_id(),
                    "runs isolated: it may have ended its last hosts"
                );
            }
            Note::IsolatedRunEnded { took, .. } => {
                info!(took_ms = millis(took), "the isolated run has ended");
            }
            Note::Halted {
                cause,
                detail,
                again,
            } => {
                self.health.impede(Cause::Handler, &*detail);
                let again_ms = millis(again);
                match cause {
                    HaltCause::Instance => {
                        error!(detail, again_ms, "no instance of the handler: stopped");
                    }
                    HaltCause::Panics => {
                        error!(
                            detail,
                            "the host panics: stopped until the handler is swapped"
                        );
                    }
                    HaltCause::Broken => {
                        error!(
                            detail,
                            again_ms, "the handler faults on everything: stopped"
                        );
                    }
                }
            }
            Note::Resumed => {
                self.health.clear(Cause::Handler);
                info!("the handler is run again");
            }
        }
    }

    /// No refused settlement waits any more. Returns whether Redis refused settlements until now.
    pub(super) fn settlements_accepted(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refuses_settlements);
        if refused {
            self.health.clear(Cause::DeadLettersRefused);
            self.health.clear(Cause::SettlementsRefused);
            info!("redis takes settlements again");
        }
        refused
    }

    /// Whether Redis refused a settlement that may still wait.
    pub(super) fn refuses_settlements(&self) -> bool {
        self.refuses_settlements
    }

    // The queue.

    pub(super) fn housekeeping_refused(&mut self, error: &Error) {
        self.metrics.redis_error(error);
        if !std::mem::replace(&mut self.refuses_housekeeping, true) {
            warn!(%error, hint = error.hint(), "redis refuses the housekeeping of this queue");
        }
    }

    pub(super) fn maintained(&mut self, done: &Maintenance, policy: &Policy) {
        if std::mem::take(&mut self.refuses_housekeeping) {
            info!("redis takes the housekeeping of this queue again");
        }
        for sweep in &done.unfinished {
            let sweep = sweep.label();
            self.metrics.housekeeping_unfinished(sweep);
            if let Some(others) = self.pass("unfinished") {
                info!(
                    sweep,
                    others, "housekeeping has more to do than one go may: it goes on at once"
                );
            }
        }
        let metrics = &self.metrics;
        metrics.retention_trimmed.inc_by(done.trimmed);
        metrics.cycles.inc_by(done.cycles);
        metrics.duplicates.inc_by(done.duplicates);
        metrics.dedup_marks_refused.inc_by(done.marks_refused);
        if done.journals_stay
            && let Some(others) = self.pass("journals_stay")
        {
            warn!(
                others,
                "old journals stay: the list has more values than are looked at, or one that cannot be read"
            );
        }
        if done.marks_refused > 0
            && let Some(others) = self.pass("marks_refused")
        {
            let messages = done.marks_refused;
            warn!(
                messages,
                others,
                "`dedup.max_ids` is reached: these messages are handled, and their duplicates will be, too"
            );
        }
        metrics.settlements_refused.inc_by(done.refusals);
        /// Count these, and say so if there are any.
        macro_rules! count {
            ($field:ident = $count:expr, $counter:expr, $text:literal) => {
                let $field = $count;
                if $field > 0 {
                    $counter($field);
                    warn!($field, $text);
                }
            };
        }
        count!(
            dropped = done.dead_letters_dropped,
            |n| metrics.dead_letters_trimmed.inc_by(n),
            "the dead-letter queue is full: its oldest entries were dropped"
        );
        count!(
            damaged = done.histories_damaged,
            |n| metrics.histories_damaged.inc_by(n),
            "histories of messages were damaged: what could be read was kept"
        );
        count!(
            overflowed = done.overflowed,
            |n| metrics.overflowed(n, policy),
            "more was unread than may be: the oldest were given up unrun"
        );
        let messages = done.other_group;
        if messages > 0 {
            metrics.other_group.inc_by(messages);
            debug!(messages, "replayed for another group");
        }
        match &done.dead_letters_refused {
            // No delivery of this host reports these dead letters.
            Some(cause) => {
                if self.health.impede(Cause::DeadLettersRefused, cause) {
                    warn!(
                        cause,
                        "redis refuses dead letters; what is over the length stays unread"
                    );
                }
            }
            // While a settlement is refused, that is the cause.
            None if self.refuses_settlements => {}
            None => {
                if self.health.clear(Cause::DeadLettersRefused) {
                    info!("redis takes what is over the length again");
                }
            }
        }
        let consumers = done.consumers_removed;
        if consumers > 0 {
            debug!(consumers, "removed consumers that were long gone");
        }
        if done.held_back && !self.held_back {
            warn!("the queue is longer than its retention says: what is over is unread or pending");
        }
        self.held_back = done.held_back;
    }

    pub(super) fn observed(&self, seen: &Observation) {
        let metrics = &self.metrics;
        set(&metrics.unread, seen.unread);
        set(&metrics.pending, seen.pending);
        set(&metrics.orphans, seen.orphans);
        set(&metrics.parked, seen.parked);
        set(&metrics.on_hold, seen.on_hold);
        set(&metrics.dead_letters, seen.dead_letters.unwrap_or(0));
        let oldest = seen.oldest_pending.unwrap_or_default();
        metrics.oldest_pending_seconds.set(oldest.as_secs_f64());
        set(&metrics.outbox_messages, seen.outbox);
        let oldest = seen.outbox_oldest.unwrap_or_default();
        metrics.outbox_oldest_seconds.set(oldest.as_secs_f64());
    }

    /// Count what the queue relayed since the last call.
    pub(super) fn relayed(&mut self, relayed: Relayed) {
        let counted = std::mem::replace(&mut self.relayed, relayed);
        let written = relayed.written - counted.written;
        self.metrics.outbox_relayed.inc_by(written);
        let refusals = relayed.refusals - counted.refusals;
        self.metrics.outbox_refusals.inc_by(refusals);
        set(&self.metrics.outbox_blocked, relayed.blocked);
    }

    /// Deliveries were missing in Redis although their leases last.
    pub(super) fn brought_back(&self, replies: &[(Key, Reply)]) {
        let back = replies.iter().filter(|(_, reply)| *reply == Reply::Done);
        let back = back.count();
        if back > 0 {
            warn!(
                back,
                "the consumer of this host was deleted: its messages are pending again"
            );
        }
    }

    /// The entries that stay in outboxes when this host ends.
    pub(super) fn left_in_outboxes(&self, messages: u64) {
        if messages > 0 {
            warn!(
                messages,
                "left in outboxes: any host of the queue relays them, this one after its next start"
            );
        }
    }

    pub(super) fn repaired(&self, repair: &Repair) {
        match repair.repaired {
            Repaired::Intact => {
                let held = repair.held.len();
                let back = repair.held.iter().filter(|reply| **reply == Reply::Done);
                let back = back.count();
                info!(held, back, "the group was gone, and is there again");
                return;
            }
            Repaired::Group => {
                warn!("the group was gone: made again behind the last entry read");
            }
            Repaired::Stream => warn!("the stream was gone: made again, empty, with its group"),
        }
        self.metrics.groups_recreated.inc();
    }

    /// Count the requests of the queue to its server since the last call.
    pub(super) fn contact(&mut self, contact: Contact) {
        let counted = std::mem::replace(&mut self.contact, contact);
        let connections = contact.connections_opened - counted.connections_opened;
        self.metrics.reconnects.inc_by(connections);
        let forgotten = contact.scripts_forgotten - counted.scripts_forgotten;
        if forgotten > 0 {
            self.metrics.scripts_forgotten(forgotten);
        }
        let redirections = contact.redirections - counted.redirections;
        if redirections > 0 {
            self.metrics.redirections(redirections);
        }
        let gaps = contact.gaps - counted.gaps;
        if gaps > 0 {
            let gap = contact.gap.saturating_sub(counted.gap);
            self.metrics.subscription_gaps.inc_by(gaps);
            let seconds = &self.metrics.subscription_gap_seconds;
            seconds.inc_by(gap.as_secs_f64());
            if let Some(others) = self.pass("gap") {
                let gap_ms = millis(gap);
                warn!(
                    gap_ms,
                    others, "subscribed again: what was published meanwhile is lost"
                );
            }
        }
        let dropped = contact.buffer_dropped - counted.buffer_dropped;
        self.metrics.buffer_dropped.inc_by(dropped);
        self.dropped_unlogged += dropped;
        if self.dropped_unlogged > 0 && self.pass("overflow").is_some() {
            let dropped = std::mem::take(&mut self.dropped_unlogged);
            warn!(dropped, "the buffer is full: messages were dropped");
        }
    }

    /// The queue is paused, or not.
    pub(super) fn paused(&self, paused: bool) {
        set(&self.metrics.paused, u64::from(paused));
        self.status.paused(paused);
    }

    /// What runs and what is held, after each turn of the loop.
    pub(super) fn turn(&self, running: usize, batches: u64, splits: u64, held: usize) {
        set(&self.metrics.in_flight, running as u64);
        self.metrics.batches.inc_by(batches);
        self.metrics.batch_splits.inc_by(splits);
        set(&self.metrics.held, held as u64);
    }

    /// Whether a line about a single message may be logged now; as [`Throttle::pass`].
    fn message_line(&self, kind: &'static str) -> Option<u64> {
        self.message_lines.pass(kind, Instant::now())
    }

    fn pass(&self, kind: &'static str) -> Option<u64> {
        self.throttle.pass(kind, Instant::now())
    }
}

fn set(gauge: &Gauge, value: u64) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}
/// The answer to the producer of a message that was settled so, if there was one.
fn answered(job: &Job, how: &Closed) -> Option<reply::Status> {
    let replies = || {
        job.effects
            .as_ref()
            .is_some_and(|all| all.reply().is_some())
    };
    if !job.is_awaited && !replies() {
        return None;
    }
    match how {
        Closed::Settled(SettleAction::Acknowledge) => match &job.effects {
            Some(effects) => (!effects.is_void()).then_some(reply::Status::Acked),
            None => Some(reply::Status::Duplicate),
        },
        Closed::Settled(SettleAction::DeadLetter(_)) => Some(reply::Status::DeadLettered),
        Closed::Settled(SettleAction::Discard(_)) => Some(reply::Status::Discarded),
        // The command that has cancelled it answers.
        Closed::Cancelled => job.is_awaited.then_some(reply::Status::Cancelled),
        _ => None,
    }
}
