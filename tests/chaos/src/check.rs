//! The judge of a history. It knows what messages say, which faults there were, and what hostler promises;
//! it has no knowledge of hostler's code. Its words are those of Jepsen's checkers of queues: *lost*,
//! *unexpected*, *duplicated*, *recovered*.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::history::{Event, Fault, FaultKind, History, Kind, Published, What};
use crate::script::{Answer, Verdict};

/// How long after a fault its effects may last: clients connect again, leases end, records are repeated. In
/// milliseconds, beside the lease itself.
const AFTERMATH_MS: u64 = 10_000;
/// How much later than its signal a host may still start what it has in hand, in milliseconds.
const SIGNAL_MS: u64 = 1_000;
/// How much later than its deadline a draining host may end, in milliseconds.
const EXIT_MS: u64 = 2_000;
/// The exit code of a host that cannot load its handler.
const BAD_HANDLER: i32 = 65;
/// How many acknowledgements a host may have under way when it dies, beside those of its slots.
const UNCONFIRMED: u64 = 1_024;
/// Memory is compared over time only in runs of this length, in milliseconds.
const SOAK_MS: u64 = 10 * 60_000;

/// What hostler promises.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Invariant {
    /// I1: nothing is lost, and everything comes to an end.
    NoLoss,
    /// I2: nothing comes from nowhere.
    NothingFromNowhere,
    /// I3: nothing leaves without a verdict.
    VerdictFirst,
    /// I4: what runs again has a reason.
    Duplicates,
    /// I5: starts never exceed the cap, and no two attempts have one number.
    Cap,
    /// I6: no innocent is dead-lettered.
    NoInnocent,
    /// I7: dead letters are what was published, once.
    Fidelity,
    /// I8: a message is settled once.
    OneSettlement,
    /// I9: memory and descriptors are bounded.
    Bounds,
    /// I10: after the last fault, there is progress.
    Liveness,
    /// I11: a host that is asked to stop does so in time.
    Shutdown,
    /// I12: an attempt runs in one version, and only in one that was accepted.
    Swap,
    /// I13: the order is that of publishing.
    Order,
    /// I14: a message sees nothing of another one.
    Isolation,
    /// I15: secrets stay secret.
    Secrets,
}

impl Invariant {
    /// All of them, in order.
    pub const ALL: [Self; 15] = [
        Self::NoLoss,
        Self::NothingFromNowhere,
        Self::VerdictFirst,
        Self::Duplicates,
        Self::Cap,
        Self::NoInnocent,
        Self::Fidelity,
        Self::OneSettlement,
        Self::Bounds,
        Self::Liveness,
        Self::Shutdown,
        Self::Swap,
        Self::Order,
        Self::Isolation,
        Self::Secrets,
    ];

    /// Its number and its words.
    #[must_use]
    pub fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Self::NoLoss => (
                "I1",
                "nothing confirmed is lost, and everything comes to an end",
            ),
            Self::NothingFromNowhere => ("I2", "nothing comes out that no producer has published"),
            Self::VerdictFirst => ("I3", "nothing leaves the queue before a verdict"),
            Self::Duplicates => (
                "I4",
                "a message runs again only after a failure, or a fault under it",
            ),
            Self::Cap => ("I5", "starts never exceed the cap; no two have one number"),
            Self::NoInnocent => ("I6", "nothing is given up with attempts left"),
            Self::Fidelity => ("I7", "a dead letter is what was published, once"),
            Self::OneSettlement => ("I8", "a message is settled once"),
            Self::Bounds => ("I9", "memory and descriptors stay within bounds"),
            Self::Liveness => ("I10", "work goes on soon after a fault"),
            Self::Shutdown => ("I11", "a drain ends in time, and nothing starts in it"),
            Self::Swap => ("I12", "an attempt runs in one accepted version"),
            Self::Order => ("I13", "one slot handles messages in their order"),
            Self::Isolation => ("I14", "a fresh instance has seen no other message"),
            Self::Secrets => ("I15", "a password appears nowhere"),
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// The number of the message, if it is about one.
    pub message: Option<u32>,
    /// How.
    pub what: String,
}

/// What became of the messages.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Publishes that Redis confirmed.
    pub ok: u64,
    /// Publishes without an answer.
    pub unknown: u64,
    /// Publishes that Redis refused.
    pub failed: u64,
    /// Attempts.
    pub starts: u64,
    /// Messages that a handler has acknowledged.
    pub acked: u64,
    /// Messages that are dead letters.
    pub dead: u64,
    /// Confirmed publishes that never came to an end.
    pub lost: u64,
    /// Confirmed publishes that a fault of the server has destroyed.
    pub destroyed: u64,
    /// Messages that came out though no publisher, or none with success, has published them.
    pub unexpected: u64,
    /// Starts after an attempt that did not fail.
    pub duplicated: u64,
    /// Those of them that no fault explains.
    pub unexplained: u64,
    /// Publishes without an answer that came out.
    pub recovered: u64,
    /// Messages that faults took all attempts from.
    pub dead_early: u64,
    /// The longest time from the end of a fault to the next verdict, in milliseconds.
    pub recovery_ms: u64,
    /// How many attempts ended in a second, from the first start to the empty queue.
    #[serde(default)]
    pub rate: u64,
}

/// The judgement.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// What became of the messages.
    pub counts: Counts,
    /// What is wrong.
    pub violations: Vec<Violation>,
}

impl Judgement {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }

    fn wrong(&mut self, invariant: Invariant, message: Option<u32>, what: impl Into<String>) {
        self.violations.push(Violation {
            invariant,
            message,
            what: what.into(),
        });
    }
}

/// Judge a history.
#[must_use]
pub fn check(history: &History) -> Judgement {
    let mut judge = Judge::new(history);
    judge.messages();
    judge.exposure();
    judge.settlements();
    judge.bounds();
    judge.liveness();
    judge.shutdowns();
    judge.order();
    judge.secrets();
    judge.judgement
}

struct Judge<'a> {
    history: &'a History,
    /// The events of each message, in order of time.
    events: Vec<Vec<Event>>,
    /// The places of its dead letters.
    dead: BTreeMap<u32, Vec<usize>>,
    waiting: BTreeSet<u32>,
    /// The faults that may interrupt attempts.
    interrupting: Vec<Fault>,
    is_durable: bool,
    judgement: Judgement,
}

impl<'a> Judge<'a> {
    fn new(history: &'a History) -> Self {
        let mut judgement = Judgement::default();
        let mut events = vec![Vec::new(); history.messages.len()];
        for event in &history.events {
            match events.get_mut(event.message as usize) {
                Some(of) => of.push(*event),
                None => judgement.wrong(
                    Invariant::NothingFromNowhere,
                    Some(event.message),
                    "an attempt at a message that was never published",
                ),
            }
        }
        for of in &mut events {
            // A start comes before what it leads to, also within a millisecond.
            of.sort_by_key(|event| (event.at_ms, event.attempt));
        }
        let mut dead = BTreeMap::<u32, Vec<usize>>::new();
        for (place, letter) in history.harvest.dead.iter().enumerate() {
            dead.entry(letter.message).or_default().push(place);
        }
        let faults = history.faults.iter();
        Self {
            history,
            events,
            dead,
            waiting: history.harvest.waiting.iter().copied().collect(),
            interrupting: faults.copied().filter(|f| f.kind.interrupts()).collect(),
            is_durable: !history.faults.iter().any(|fault| fault.forgets()),
            judgement,
        }
    }

    fn wrong(&mut self, invariant: Invariant, message: u32, what: impl Into<String>) {
        self.judgement.wrong(invariant, Some(message), what);
    }

    /// I1 to I7, I12 and I14: what concerns one message.
    fn messages(&mut self) {
        for stranger in &self.history.harvest.strangers {
            let what = format!("{stranger} was never published");
            self.judgement.counts.unexpected += 1;
            self.judgement
                .wrong(Invariant::NothingFromNowhere, None, what);
        }
        let unpublished: Vec<u32> = self
            .dead
            .keys()
            .chain(&self.waiting)
            .copied()
            .filter(|&number| number as usize >= self.history.messages.len())
            .collect();
        for number in unpublished {
            self.judgement.counts.unexpected += 1;
            self.wrong(Invariant::NothingFromNowhere, number, "never published");
        }
        for number in 0..self.history.messages.len() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let events = std::mem::take(&mut self.events[number as usize]);
            self.published(number, &events);
            if self.history.settings.kind.at_least_once() {
                self.ended(number, &events);
                self.attempts(number, &events);
                self.dead_letters(number, &events);
            } else {
                self.at_most_once(number, &events);
            }
            self.versions(number, &events);
            self.events[number as usize] = events;
        }
        if !self.history.settings.kind.at_least_once() {
            self.losses_at_most_once();
        }
    }

    /// I2.
    fn published(&mut self, number: u32, events: &[Event]) {
        let sent = &self.history.messages[number as usize];
        let came_out = !events.is_empty() || self.dead.contains_key(&number);
        let counts = &mut self.judgement.counts;
        counts.starts += starts(events).count() as u64;
        match sent.published {
            Published::Ok => counts.ok += 1,
            Published::Unknown => {
                counts.unknown += 1;
                counts.recovered += u64::from(came_out);
            }
            Published::Failed => {
                counts.failed += 1;
                if came_out {
                    counts.unexpected += 1;
                    let what = "it came out, although Redis has refused it";
                    self.wrong(Invariant::NothingFromNowhere, number, what);
                }
            }
        }
        if starts(events).any(|start| start.at_ms + 1 < sent.at_ms) {
            let what = "it started before it was published";
            self.wrong(Invariant::NothingFromNowhere, number, what);
        }
    }

    /// Whether a handler got to this verdict.
    fn has_verdict(&self, number: u32, events: &[Event], verdict: Verdict) -> bool {
        let script = &self.history.messages[number as usize].script;
        ends(events).any(|end| script.verdict(end.attempt) == verdict)
    }

    /// I1 and I3: where the message is.
    fn ended(&mut self, number: u32, events: &[Event]) {
        let sent = &self.history.messages[number as usize];
        let is_dead = self.dead.contains_key(&number);
        let waits = self.waiting.contains(&number);
        if is_dead {
            self.judgement.counts.dead += 1;
        }
        if is_dead || waits {
            return;
        }
        if self.has_verdict(number, events, Verdict::Acked) {
            self.judgement.counts.acked += 1;
            return;
        }
        if sent.published != Published::Ok {
            // It may never have been there. A message that has started was there.
            if starts(events).next().is_some() && !self.may_be_destroyed(number) {
                self.judgement.counts.lost += 1;
                let what = "it started, and left without a verdict";
                self.wrong(Invariant::VerdictFirst, number, what);
            }
            return;
        }
        if self.may_be_destroyed(number) {
            self.judgement.counts.destroyed += 1;
            return;
        }
        self.judgement.counts.lost += 1;
        if starts(events).next().is_some() {
            let what = "it left the queue without a verdict that lets it go";
            self.wrong(Invariant::VerdictFirst, number, what);
        } else {
            self.wrong(Invariant::NoLoss, number, "lost: it never started");
        }
    }

    /// Whether a fault of the server may have destroyed it: it was published shortly before, and the server
    /// does not have it now.
    fn may_be_destroyed(&self, number: u32) -> bool {
        let at = self.history.messages[number as usize].at_ms;
        let kept = &self.history.harvest.kept;
        let is_there = kept.as_ref().is_some_and(|kept| kept.contains(&number));
        let by = |fault: &&Fault| {
            fault.forgets() && at + fault.forgets_ms >= fault.at_ms && at <= fault.until_ms
        };
        !is_there && self.history.faults.iter().any(|fault| by(&fault))
    }

    /// I4 and I5: how often it started, and why.
    fn attempts(&mut self, number: u32, events: &[Event]) {
        let history = self.history;
        let settings = &history.settings;
        let script = &history.messages[number as usize].script;
        let all: Vec<&Event> = starts(events).collect();
        let numbers: BTreeSet<u32> = all.iter().map(|start| start.attempt).collect();
        let forgets = history.faults.iter().filter(|f| f.forgets()).count();
        let most = settings.cap as usize * (1 + forgets);
        if all.len() > most {
            let what = format!("{} starts with a cap of {}", all.len(), settings.cap);
            self.wrong(Invariant::Cap, number, what);
        }
        if let Some(beyond) = numbers.iter().find(|&&attempt| attempt > settings.cap) {
            let what = format!("attempt {beyond} with a cap of {}", settings.cap);
            self.wrong(Invariant::Cap, number, what);
        }
        if self.is_durable && numbers.len() < all.len() {
            let attempts: Vec<u32> = all.iter().map(|start| start.attempt).collect();
            let what = format!("two starts with one number: {attempts:?}");
            self.wrong(Invariant::Cap, number, what);
        }
        for pair in all.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            let end = ends(events).find(|end| is_of(end, first));
            let failed = end.is_some_and(|end| {
                script.verdict(end.attempt) == Verdict::Failed && end.at_ms <= second.at_ms
            });
            if failed {
                continue;
            }
            self.judgement.counts.duplicated += 1;
            let explains = |fault: &Fault| {
                let until = fault.until_ms + settings.min_idle_ms + AFTERMATH_MS;
                fault.at_ms <= second.at_ms
                    && until >= first.at_ms
                    && fault.host.is_none_or(|host| host == first.host)
            };
            if !self.interrupting.iter().any(explains) {
                self.judgement.counts.unexplained += 1;
                let what = format!(
                    "attempt {} follows attempt {}, which had not failed, without a fault of host {}",
                    second.attempt, first.attempt, first.host
                );
                self.wrong(Invariant::Duplicates, number, what);
            }
        }
    }

    /// I4 over all messages: no more runs again than was under way.
    fn exposure(&mut self) {
        let settings = &self.history.settings;
        if !settings.kind.at_least_once() {
            return;
        }
        let hosts: BTreeSet<u16> = self.history.events.iter().map(|event| event.host).collect();
        let one = u64::from(settings.concurrency) + UNCONFIRMED;
        let each = |fault: &Fault| match fault.host {
            Some(_) => one,
            None => one * hosts.len() as u64,
        };
        let most: u64 = self.interrupting.iter().map(each).sum();
        let forgets = self.interrupting.iter().any(|fault| fault.forgets());
        let duplicated = self.judgement.counts.duplicated;
        if duplicated > most && !forgets {
            let what = format!("{duplicated} starts again, where {most} may have been under way");
            self.judgement.wrong(Invariant::Duplicates, None, what);
        }
    }

    /// I6, I7, I8 and I14: its dead letters.
    fn dead_letters(&mut self, number: u32, events: &[Event]) {
        let Some(places) = self.dead.get(&number).cloned() else {
            return;
        };
        let history = self.history;
        let script = &history.messages[number as usize].script;
        let forgets = history.faults.iter().filter(|f| f.forgets()).count();
        if places.len() > 1 + forgets {
            let what = format!("{} dead letters", places.len());
            self.wrong(Invariant::Fidelity, number, what);
        }
        if self.waiting.contains(&number) && self.is_durable {
            let what = "it is a dead letter, and waits";
            self.wrong(Invariant::OneSettlement, number, what);
        }
        let body = script.body();
        for place in places {
            let letter = &history.harvest.dead[place];
            if (letter.length as usize, letter.crc) != (body.len(), crc32fast::hash(&body)) {
                self.wrong(
                    Invariant::Fidelity,
                    number,
                    "its dead letter has another body",
                );
            }
            match &*letter.reason {
                "dropped" => self.dropped(number, events, place),
                "max-deliveries" => self.given_up(number, events, place),
                other => {
                    let what = format!("dead-lettered as `{other}`");
                    self.wrong(Invariant::Fidelity, number, what);
                }
            }
        }
    }

    fn dropped(&mut self, number: u32, events: &[Event], place: usize) {
        let history = self.history;
        let letter = &history.harvest.dead[place];
        let script = &history.messages[number as usize].script;
        if !self.has_verdict(number, events, Verdict::Dropped) {
            let what = "dead-lettered as dropped, and no handler has dropped it";
            self.wrong(Invariant::VerdictFirst, number, what);
        } else if script.verdict(letter.attempts) != Verdict::Dropped {
            let what = format!("it says that attempt {} dropped it", letter.attempts);
            self.wrong(Invariant::Fidelity, number, what);
        }
        let counted = script.step(letter.attempts).answer == Answer::Count;
        if counted && history.settings.fresh_instances && letter.detail != "1" {
            let what = format!("its instance has seen {} messages", letter.detail);
            self.wrong(Invariant::Isolation, number, what);
        }
    }

    fn given_up(&mut self, number: u32, events: &[Event], place: usize) {
        let history = self.history;
        let cap = history.settings.cap;
        let sent = &history.messages[number as usize];
        let letter = &history.harvest.dead[place];
        if letter.attempts != cap {
            let what = format!("given up after {} attempts of {cap}", letter.attempts);
            self.wrong(Invariant::NoInnocent, number, what);
        }
        let started: BTreeSet<u32> = starts(events).map(|start| start.attempt).collect();
        if started.is_empty() {
            self.wrong(Invariant::NoInnocent, number, "given up without a start");
            return;
        }
        let fails = |end: &&Event| sent.script.verdict(end.attempt) == Verdict::Failed;
        let failed: BTreeSet<u32> = ends(events).filter(fails).map(|end| end.attempt).collect();
        // Every other attempt was taken by a fault: on a host that has had it, or of all hosts.
        let last = events.iter().map(|event| event.at_ms).max().unwrap_or(0);
        let until = last + history.settings.min_idle_ms + AFTERMATH_MS;
        let lease = history.settings.min_idle_ms.max(1);
        let charges = |fault: &Fault| match fault.kind {
            // It comes and goes all the time, and is noted as one.
            FaultKind::Starved => 1 + (fault.until_ms - fault.at_ms) / lease,
            _ => 1,
        };
        let faults = self.interrupting.iter();
        let faults = faults.filter(|fault| fault.until_ms >= sent.at_ms && fault.at_ms <= until);
        if failed.len() as u64 + faults.map(charges).sum::<u64>() < u64::from(cap) {
            let what = format!(
                "given up after {} failures and too few faults, with a cap of {cap}",
                failed.len()
            );
            self.wrong(Invariant::NoInnocent, number, what);
        }
        if sent.script.end(cap).1 != Verdict::Failed {
            self.judgement.counts.dead_early += 1;
        }
    }

    /// I4 and I5 of the queues that promise at most once.
    fn at_most_once(&mut self, number: u32, events: &[Event]) {
        let is_channel = self.history.settings.kind == Kind::Channel;
        let mut seen = BTreeSet::new();
        for start in starts(events) {
            let place = if is_channel { start.host } else { 0 };
            if !seen.insert(place) {
                self.judgement.counts.duplicated += 1;
                self.judgement.counts.unexplained += 1;
                let what = "it started twice on a queue that promises at most once";
                self.wrong(Invariant::Duplicates, number, what);
            }
        }
        let sent = &self.history.messages[number as usize];
        if self.waiting.contains(&number) || sent.published != Published::Ok {
            return;
        }
        match seen.is_empty() {
            true => self.judgement.counts.lost += 1,
            false => self.judgement.counts.acked += 1,
        }
    }

    /// I1 of the queues that promise at most once: only a fault loses messages.
    fn losses_at_most_once(&mut self) {
        let settings = &self.history.settings;
        let lost = self.judgement.counts.lost;
        let held = u64::from(settings.concurrency.max(settings.prefetch));
        let faults = self.history.faults.iter();
        let loses = faults.filter(|f| f.kind.interrupts()).count() as u64;
        let most = match settings.kind {
            // A message of a channel is not kept while no subscriber listens.
            Kind::Channel if loses > 0 => u64::MAX,
            _ => loses * (held + UNCONFIRMED),
        };
        if lost > most {
            let what = format!("{lost} messages are lost, where at most {most} were held");
            self.judgement.wrong(Invariant::NoLoss, None, what);
        }
    }

    /// I12.
    fn versions(&mut self, number: u32, events: &[Event]) {
        let mut of = BTreeMap::<(u16, u32), BTreeSet<u64>>::new();
        for event in events {
            if let What::Version(version) = event.what {
                of.entry((event.host, event.attempt))
                    .or_default()
                    .insert(version);
            }
        }
        for ((_, attempt), versions) in of {
            if versions.len() > 1 {
                let what = format!("attempt {attempt} ran in {versions:?}");
                self.wrong(Invariant::Swap, number, what);
            }
            if !versions.is_subset(&self.history.settings.versions) {
                let what = format!("attempt {attempt} ran in {versions:?}, which no host accepted");
                self.wrong(Invariant::Swap, number, what);
            }
        }
    }

    /// I1 and I8 over all messages: what hosts say of themselves.
    fn settlements(&mut self) {
        let history = self.history;
        if history.drained_ms.is_none() || !self.waiting.is_empty() {
            let what = format!(
                "the queue was not drained: {} messages wait",
                history.harvest.waiting.len()
            );
            self.judgement.wrong(
                Invariant::NoLoss,
                history.harvest.waiting.first().copied(),
                what,
            );
        }
        let Some(acked) = history.harvest.acked else {
            return;
        };
        let settled = acked + history.harvest.dead.len() as u64;
        let counts = &self.judgement.counts;
        let published = counts.ok + counts.recovered;
        let is_calm = self.interrupting.is_empty() && history.settings.kind.at_least_once();
        if is_calm && settled != published {
            let what = format!("{settled} settlements of {published} messages");
            self.judgement.wrong(Invariant::OneSettlement, None, what);
        }
    }

    /// I9.
    fn bounds(&mut self) {
        let settings = &self.history.settings;
        let mut wrong = Vec::new();
        // When each host was seen, and its memory.
        let mut seen = BTreeMap::<u16, Vec<(u64, u64)>>::new();
        for sample in &self.history.samples {
            for &(host, rss, fds) in &sample.hosts {
                if rss > settings.host_rss_kib {
                    wrong.push(format!(
                        "host {host} uses {rss} KiB, more than {}",
                        settings.host_rss_kib
                    ));
                }
                if fds > settings.host_fds {
                    wrong.push(format!(
                        "host {host} has {fds} descriptors, more than {}",
                        settings.host_fds
                    ));
                }
                seen.entry(host).or_default().push((sample.at_ms, rss));
            }
        }
        for (host, seen) in seen {
            let (Some((since, _)), Some((until, end))) = (seen.first(), seen.last()) else {
                continue;
            };
            let half = (until - since) / 2;
            // In its first half a host grows to its size: each slot keeps the memory of its largest handler.
            let early = seen.iter().filter(|(at, _)| *at <= since + half);
            let begin = early.map(|(_, rss)| *rss).max().unwrap_or(*end);
            let most = settings.slope_kib * half / SOAK_MS;
            if 2 * half >= SOAK_MS && *end > begin + most {
                wrong.push(format!("host {host} grew from {begin} to {end} KiB"));
            }
        }
        let redis = self.history.samples.iter().map(|sample| sample.redis_kib);
        let redis = redis.max().unwrap_or(0);
        if redis > settings.redis_kib {
            wrong.push(format!(
                "the server uses {redis} KiB, more than {}",
                settings.redis_kib
            ));
        }
        wrong.truncate(20);
        for what in wrong {
            self.judgement.wrong(Invariant::Bounds, None, what);
        }
    }

    /// I10.
    fn liveness(&mut self) {
        let history = self.history;
        let settings = &history.settings;
        // When a handler ended, and when its message was published.
        let mut verdicts: Vec<(u64, u64)> = ends(&history.events)
            .map(|end| {
                let sent = history.messages.get(end.message as usize);
                (end.at_ms, sent.map_or(0, |sent| sent.at_ms))
            })
            .collect();
        verdicts.sort_unstable();
        let mut longest = 0;
        for fault in history.faults.iter().filter(|f| f.kind.interrupts()) {
            let next = verdicts.partition_point(|&(at, _)| at < fault.until_ms);
            // If the next message was published later, there was nothing to do: nothing to recover.
            if let Some(&(next, published)) = verdicts.get(next)
                && published <= fault.until_ms
            {
                longest = longest.max(next - fault.until_ms);
            }
        }
        self.judgement.counts.recovery_ms = longest;
        let most = 2 * (settings.min_idle_ms + settings.backoff_max_ms) + AFTERMATH_MS;
        if longest > most {
            let what = format!("{longest} ms from the end of a fault to the next verdict");
            self.judgement.wrong(Invariant::Liveness, None, what);
        }
        if let Some(drained) = history.drained_ms {
            // Where no process gets a CPU, nothing can be fast.
            let starved = covered(
                &history.faults,
                FaultKind::Starved,
                history.healed_ms,
                drained,
            );
            let took = drained.saturating_sub(history.healed_ms + starved);
            if took > settings.drain_queue_ms {
                let what = format!("{took} ms from the last fault to an empty queue");
                self.judgement.wrong(Invariant::Liveness, None, what);
            }
            self.rate(drained);
        }
    }

    /// I10: how fast the queue was emptied.
    fn rate(&mut self, drained: u64) {
        let history = self.history;
        let begun = starts(&history.events).map(|start| start.at_ms).min();
        let begun = begun.unwrap_or(drained);
        let ended = ends(&history.events).count() as u64;
        let took = drained.saturating_sub(begun).max(1);
        self.judgement.counts.rate = ended * 1_000 / took;
        // Where no process gets a CPU, nothing can be fast.
        let starved = covered(&history.faults, FaultKind::Starved, begun, drained);
        let rate = ended * 1_000 / took.saturating_sub(starved).max(1);
        let least = history.settings.least_rate;
        if rate < least {
            let what = format!("{rate} messages in a second, less than {least}");
            self.judgement.wrong(Invariant::Liveness, None, what);
        }
    }

    /// I11.
    fn shutdowns(&mut self) {
        let deadline = self.history.settings.drain_timeout_ms;
        let mut messages = self.history.messages.iter();
        let kills = self.history.settings.aborts || messages.any(|sent| sent.script.kills_host);
        for exit in &self.history.exits {
            // A host that starts while the file of its handler is a bad one.
            let refuses = exit.code == Some(BAD_HANDLER)
                && self.history.faults.iter().any(|fault| {
                    matches!(fault.kind, FaultKind::BadSwap | FaultKind::HalfWritten)
                        && fault.at_ms <= exit.at_ms
                        && exit.at_ms <= fault.until_ms + EXIT_MS
                });
            if !(exit.aborted && kills || refuses) {
                let what = format!("host {} ended by itself: {}", exit.host, exit.how);
                self.judgement.wrong(Invariant::Shutdown, None, what);
            }
        }
        for drain in &self.history.drains {
            let host = drain.host;
            let stopped = self.interrupting.iter().any(|fault| {
                fault.host.is_none_or(|hit| hit == host)
                    && fault.at_ms <= drain.ended_ms
                    && fault.until_ms >= drain.at_ms
            });
            let took = drain.ended_ms.saturating_sub(drain.at_ms);
            let mut wrong = Vec::new();
            if took > deadline + EXIT_MS && !stopped {
                wrong.push(format!("host {host} took {took} ms to stop"));
            }
            match drain.code {
                Some(0) => {}
                None if drain.unstarted => {}
                Some(75) if stopped || took >= deadline => {}
                code => wrong.push(format!(
                    "host {host} was asked to stop and ended with {code:?}"
                )),
            }
            let late = |event: &&Event| event.host == host && event.at_ms > drain.at_ms + SIGNAL_MS;
            // A host of a queue at most once runs what it has in hand: no other host has it.
            let hands_back = self.history.settings.kind.at_least_once();
            if hands_back
                && !stopped
                && let Some(start) = starts(&self.history.events).find(late)
            {
                wrong.push(format!(
                    "host {host} started message {} {} ms after it was asked to stop",
                    start.message,
                    start.at_ms - drain.at_ms
                ));
            }
            for what in wrong {
                self.judgement.wrong(Invariant::Shutdown, None, what);
            }
        }
    }

    /// I13.
    fn order(&mut self) {
        if !self.history.settings.ordered || !self.interrupting.is_empty() {
            return;
        }
        let firsts = starts(&self.history.events).filter(|start| start.attempt == 1);
        let mut before: Option<u32> = None;
        for start in firsts {
            if let Some(before) = before
                && start.message < before
            {
                let what = format!("it started behind message {before}");
                self.judgement
                    .wrong(Invariant::Order, Some(start.message), what);
                return;
            }
            before = Some(start.message);
        }
    }

    /// I15.
    fn secrets(&mut self) {
        for place in &self.history.harvest.leaks {
            let what = format!("a password is in {place}");
            self.judgement.wrong(Invariant::Secrets, None, what);
        }
    }
}

fn starts(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.what == What::Start)
}

fn ends(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.what == What::End)
}

/// Whether two events belong to the same attempt.
fn is_of(one: &Event, other: &Event) -> bool {
    (one.host, one.attempt) == (other.host, other.attempt)
}

/// For how long of this time there was a fault of this kind, in milliseconds.
fn covered(faults: &[Fault], kind: FaultKind, from: u64, to: u64) -> u64 {
    let of_kind = faults.iter().filter(|fault| fault.kind == kind);
    let mut spans: Vec<(u64, u64)> = of_kind
        .map(|fault| (fault.at_ms.max(from), fault.until_ms.min(to)))
        .collect();
    spans.sort_unstable();
    let (mut covered, mut until) = (0, from);
    for (begin, end) in spans {
        covered += end.saturating_sub(begin.max(until));
        until = until.max(end);
    }
    covered
}

/// How many faults there were of each kind.
#[must_use]
pub fn by_kind(faults: &[Fault]) -> BTreeMap<FaultKind, u64> {
    let mut counts = BTreeMap::new();
    for fault in faults {
        *counts.entry(fault.kind).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests;
