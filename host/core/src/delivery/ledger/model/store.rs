//! What Redis knows of the group: unread entries, the pending list, the set of parked deliveries,
//! and what was settled. Each operation is one script, so it is one step; counts, owners and idle
//! times change exactly as the scripts change them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Admission, Origin, Permits, Reply, SettleAction, Time};
use super::journal::Line;
use super::scenario::Scenario;
use crate::delivery::flow::RESERVED_MS;
use crate::delivery::policy::Reason;
use crate::delivery::rules::Rule;

/// How long a host waits before it asks for a permit again.
const PERMIT_PAUSE: Time = Time::from_millis(20);

/// Which message; also its place in the stream.
pub(super) type Entry = usize;
/// Which process. A process that starts anew is another one.
pub(super) type HostId = usize;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Owner {
    Parked,
    Host(HostId),
}

/// One line of the pending list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) owner: Owner,
    pub(super) count: u32,
    /// No host has touched it since.
    pub(super) since: Time,
    /// Whether its owner has raised the count since it claimed it.
    pub(super) raised: bool,
}

/// What a claim hands out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    pub(super) entry: Entry,
    pub(super) native: u32,
    /// How many of its starts ended with a hold.
    pub(super) held: u32,
    pub(super) origin: Origin,
    /// For an orphan: whose it was, and whether that one had raised the count.
    pub(super) from: Option<(HostId, bool)>,
    /// When its start was reserved for, if it was.
    pub(super) reserved: Option<Time>,
}

/// What the set of parked deliveries says of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) at: Time,
    /// The count that it keeps.
    pub(super) count: u32,
    /// A host has taken it, and has not shown that it knows that.
    pub(super) is_taken: bool,
    /// It was parked until the start that its limits have reserved for it.
    pub(super) is_reserved: bool,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Acknowledged,
    /// Acknowledged together with what its attempt published.
    Acted,
    DeadLettered(Reason, u32),
    Discarded(Reason, u32),
    Trimmed,
    Cancelled,
}

/// The consumers of a group that are no hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group {
    /// The mark of the group; hosts leave it where another program has made the group.
    pub(super) mark: Option<u64>,
    /// Not all parked deliveries are pending.
    unparked: bool,
}

/// The group is missing, or is not the one that the host knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing;

/// What was handed out, and when the next delivery is due.
type Due = (Vec<Handed>, Option<Time>);

#[derive(Debug, Default)]
pub(super) struct Store {
    /// The entries, and how many of them the group has handed out.
    stream: Vec<Entry>,
    pub(super) read: usize,
    pub(super) group: Option<Group>,
    marks: u64,
    pub(super) pending: BTreeMap<Entry, Pending>,
    pub(super) due: BTreeMap<Entry, Record>,
    /// What hosts have taken, whose records a client has deleted, and that they have not shown to know since.
    pub(super) unrecorded: BTreeSet<Entry>,
    /// What was acknowledged when it was another host's.
    late: BTreeSet<Entry>,
    /// What was taken from a host, in the group with this mark.
    taken: BTreeSet<(HostId, Entry, Option<u64>)>,
    /// Calls that send deliveries away and are void if their number is lower. In Redis one number
    /// for each host does it, because a host sends one such call at a time.
    pub(super) fences: BTreeMap<(HostId, Entry), u64>,
    /// What hosts have acknowledged with effects. Redis keeps what the last request of each has.
    acted: BTreeSet<(HostId, Entry)>,
    /// How many starts of messages ended with a hold (`held`).
    pub(super) holds: BTreeMap<Entry, u32>,
    /// The journals of messages: by number of the call.
    pub(super) journals: BTreeMap<Entry, BTreeMap<u32, Line>>,
    pub(super) deleted: BTreeSet<Entry>,
    pub(super) settled: Vec<(Entry, Fate)>,
    /// The numbers of handlers, and how often each was added to.
    pub(super) numbers: BTreeMap<usize, (u64, u64)>,
    /// The dead-letter queue takes nothing.
    pub(super) dead_letters_refused: bool,
    /// Out of memory: only what frees memory passes.
    pub(super) out_of_memory: bool,
    /// When all starts are paid for that a limit has allowed, in microseconds.
    paid: BTreeMap<usize, u64>,
    /// The permits of each host, and until when.
    permits: BTreeMap<HostId, (Permits, Time)>,
    min_idle: Time,
    /// Claims of what was parked have a record.
    records: bool,
}

impl Store {
    pub(super) fn new(min_idle: Time, records: bool) -> Self {
        Self {
            min_idle,
            records,
            ..Self::default()
        }
    }

    pub(super) fn publish(&mut self, entry: Entry) {
        self.stream.push(entry);
    }

    pub(super) fn has_unread(&self) -> bool {
        self.read < self.stream.len()
    }

    /// How many entries there are up to this one.
    pub(super) fn place_behind(&self, entry: Entry) -> usize {
        let place = self.stream.iter().position(|&other| other == entry);
        place.map_or(0, |place| place + 1)
    }

    /// The entries that the group has not handed out.
    pub(super) fn unread(&self) -> &[Entry] {
        &self.stream[self.read..]
    }

    /// Whether the group has not handed out this entry, published or not, or cancelled.
    pub(super) fn is_unread(&self, entry: Entry) -> bool {
        !self.stream[..self.read].contains(&entry)
    }

    /// What the group has handed out behind so many entries.
    pub(super) fn handed_out(&self, behind: usize) -> Vec<Entry> {
        let entries = self.stream[..self.read].iter();
        entries.skip(behind).copied().collect()
    }

    /// `XGROUP DESTROY`.
    pub(super) fn destroy_group(&mut self) {
        self.group = None;
        self.pending.clear();
    }

    /// `XGROUP DELCONSUMER`. Returns what it held.
    pub(super) fn delete_consumer(&mut self, owner: Owner) -> Vec<Entry> {
        let held = self.pending.iter().filter(|(_, p)| p.owner == owner);
        let held: Vec<_> = held.map(|(&entry, _)| entry).collect();
        self.pending.retain(|_, p| p.owner != owner);
        // The next script that parks, or takes, notices that it is not there.
        if owner == Owner::Parked
            && let Some(group) = &mut self.group
        {
            group.unparked |= !self.due.is_empty();
        }
        held
    }

    /// `DEL` of the set of parked deliveries. Returns what it held.
    pub(super) fn delete_parked_set(&mut self) -> Vec<Entry> {
        let records = std::mem::take(&mut self.due);
        let taken = records.iter().filter(|(_, record)| record.is_taken);
        self.unrecorded.extend(taken.map(|(&entry, _)| entry));
        records.into_keys().collect()
    }

    /// A host has shown that it knows this delivery.
    fn forget_record(&mut self, entry: Entry) {
        self.due.remove(&entry);
        self.unrecorded.remove(&entry);
    }

    /// `XGROUP CREATE`, behind so many entries.
    pub(super) fn create_group(&mut self, read: usize) {
        self.group = Some(Group::default());
        self.read = read;
    }

    /// `repair.lua`, by a host that has seen so many entries. Returns the mark of the group.
    pub(super) fn repair(&mut self, seen: usize) -> u64 {
        if self.group.is_none() {
            self.create_group(seen);
        }
        let has_parked = !self.due.is_empty();
        let group = self.group.get_or_insert_default();
        match group.mark {
            Some(mark) => mark,
            None => {
                self.marks += 1;
                group.unparked = has_parked;
                group.mark = Some(self.marks);
                self.marks
            }
        }
    }

    /// `readopt.lua`.
    pub(super) fn readopt(&mut self, now: Time, host: HostId, entry: Entry, count: u32) -> Reply {
        match self.pending.get(&entry).map(|held| held.owner) {
            Some(owner) if owner == Owner::Host(host) => {
                self.forget_record(entry);
                Reply::Done
            }
            Some(_) => Reply::Stolen,
            None if Rule::ActedStaysSettled.holds() && self.acted.contains(&(host, entry)) => {
                Reply::Gone
            }
            None if self.late.contains(&entry) => Reply::Gone,
            None if self.taken.contains(&(host, entry, self.mark())) => Reply::Gone,
            None if self.drop_deleted(entry) => Reply::Trimmed,
            None => {
                self.force(now, Owner::Host(host), entry, count);
                self.forget_record(entry);
                Reply::Done
            }
        }
    }

    /// `park_again.lua`, for one delivery: its host may die before the next one.
    pub(super) fn park_one_again(&mut self, now: Time) {
        if !self.is_unparked() {
            return;
        }
        let is_missing = |(entry, record): &(&Entry, &Record)| {
            let is_kept = !record.is_taken || Rule::RecordsOutliveAnswers.holds();
            is_kept && !self.pending.contains_key(entry) && !self.is_unread(**entry)
        };
        let mut missing = self.due.iter().filter(is_missing).map(|(&entry, _)| entry);
        let (first, more) = (missing.next(), missing.next().is_some());
        if let Some(group) = &mut self.group {
            group.unparked = more;
        }
        if let Some(entry) = first {
            let count = self.due.get(&entry).map_or(1, |record| record.count);
            if self.drop_deleted(entry) {
                self.due.remove(&entry);
            } else {
                self.force(now, Owner::Parked, entry, count);
            }
        }
    }

    /// Whether the record of a delivery that is not pending brings it up again (`take_due.lua`). If not, it counts as one that
    /// was acknowledged by hand.
    pub(super) fn is_recorded(&self, entry: Entry) -> bool {
        let is_whole = self
            .group
            .is_some_and(|group| group.mark.is_some() && !group.unparked);
        self.due
            .get(&entry)
            .is_some_and(|record| record.is_taken || !is_whole)
    }

    /// Whether some parked deliveries may not be pending.
    fn is_unparked(&self) -> bool {
        Rule::ParkedAgain.holds() && self.group.is_some_and(|group| group.unparked)
    }

    fn mark(&self) -> Option<u64> {
        self.group.and_then(|group| group.mark)
    }

    /// The clock of the server jumps forward.
    pub(super) fn jump(&mut self, by: Time) {
        for held in self.pending.values_mut() {
            held.since = held.since.saturating_sub(by);
        }
        for record in self.due.values_mut() {
            record.at = record.at.saturating_sub(by);
        }
    }

    /// `XCLAIM FORCE` of a delivery that is not pending.
    fn force(&mut self, now: Time, owner: Owner, entry: Entry, count: u32) {
        let held = Pending {
            owner,
            count,
            since: now,
            raised: true,
        };
        self.pending.insert(entry, held);
    }

    /// `parts/epoch.lua`: whether the group is the one that a host knows by this mark.
    pub(super) fn is_known(&self, mark: u64) -> bool {
        !Rule::GoneIsProven.holds() || self.group.is_some_and(|group| group.mark == Some(mark))
    }

    /// `XREADGROUP >`.
    pub(super) fn fetch(&mut self, now: Time, host: HostId, want: usize) -> Vec<Handed> {
        let mut handed = Vec::new();
        while handed.len() < want {
            let Some(&entry) = self.stream.get(self.read) else {
                break;
            };
            self.read += 1;
            if self.deleted.contains(&entry) {
                self.settled.push((entry, Fate::Trimmed));
                continue;
            }
            self.pending.insert(
                entry,
                Pending {
                    owner: Owner::Host(host),
                    count: 1,
                    since: now,
                    raised: true,
                },
            );
            handed.push(Handed {
                entry,
                native: 1,
                held: self.held(entry),
                origin: Origin::Fresh,
                from: None,
                reserved: None,
            });
        }
        handed
    }

    /// `take_due.lua`. With `records`, the record of what it returns stays until a renewal, a start or a
    /// settlement shows that its host knows it.
    pub(super) fn take_due(
        &mut self,
        now: Time,
        host: HostId,
        mark: u64,
        max: usize,
    ) -> Result<Due, Missing> {
        if self.out_of_memory {
            return Ok((Vec::new(), None));
        }
        let mut due: Vec<_> = self.due.iter().map(|(&e, r)| (r.at, e)).collect();
        due.sort_unstable();
        let mut handed = Vec::new();
        for (_, entry) in due.into_iter().filter(|&(at, _)| at <= now).take(max) {
            if !self.pending.contains_key(&entry) {
                if !self.is_known(mark) {
                    return Err(Missing);
                }
                // Else it was acknowledged by hand.
                let record = self.due[&entry];
                let is_lost = match record.is_taken {
                    true => Rule::RecordsOutliveAnswers.holds(),
                    false => self.is_unparked(),
                };
                if is_lost && !self.is_unread(entry) {
                    self.force(now, Owner::Parked, entry, record.count);
                }
            }
            let record = self.due.remove(&entry);
            let owner = self.pending.get(&entry).map(|held| held.owner);
            if owner == Some(Owner::Parked) {
                let reserved = record.filter(|record| record.is_reserved);
                let reserved = reserved.map(|record| record.at);
                let claimed = self.claim(now, host, entry, Origin::Returned);
                handed.extend(claimed.map(|claimed| Handed {
                    reserved,
                    ..claimed
                }));
            } else {
                self.keep_record(now, entry);
            }
        }
        let next = self.due.values().map(|record| record.at).min();
        let next = next.map(|at| at.saturating_sub(now));
        Ok((handed, next))
    }

    /// `admit.lua`: deliveries with the limit of each, and when their starts were reserved for; and the permits of others.
    pub(super) fn admit(
        &mut self,
        now: Time,
        scenario: &Scenario,
        host: HostId,
        asked: &[(Entry, Option<Time>)],
        permits: Permits,
    ) -> Vec<Admission> {
        self.permits.retain(|_, (_, until)| *until > now);
        let before = self.permits.get(&host).map(|(permits, _)| permits.number);
        if before.is_some_and(|number| number > permits.number) && Rule::LaterNumbersStand.holds() {
            return vec![Admission::Wait(PERMIT_PAUSE); asked.len()];
        }
        let others = self.permits.iter().filter(|(other, _)| **other != host);
        let others: usize = others.map(|(_, (permits, _))| permits.held).sum();
        let most = scenario.permits.unwrap_or(usize::MAX);
        let mut room = most.saturating_sub(others + permits.held);
        let before = room;
        let at = u64::try_from(now.as_micros()).unwrap();
        let has_keys = scenario.pace.is_some_and(|(_, keys)| keys > 0);
        let mut stopped = None;
        let mut admit = |&(entry, reserved): &(Entry, Option<Time>)| {
            if room == 0 {
                stopped = stopped.or(Some(PERMIT_PAUSE));
            }
            if let Some(wait) = stopped {
                return Admission::Wait(wait);
            }
            let is_kept = |due: Time| now.saturating_sub(due) <= Time::from_millis(RESERVED_MS);
            let is_kept = has_keys && reserved.is_some_and(is_kept);
            let Some((pace, limit)) = scenario.paced(entry).filter(|_| !is_kept) else {
                room -= 1;
                return Admission::Granted;
            };
            let paid = self.paid.entry(limit).or_default();
            let grace = if has_keys { 0 } else { pace.grace() };
            let wait = Time::from_micros(pace.start(*paid, at, 1, grace) - at);
            if wait.is_zero() || has_keys {
                *paid = pace.paid(*paid, at, 1, grace);
            }
            if wait.is_zero() {
                room -= 1;
                Admission::Granted
            } else if has_keys {
                Admission::Later(wait)
            } else {
                stopped = Some(wait);
                Admission::Wait(wait)
            }
        };
        let admissions = asked.iter().map(&mut admit).collect();
        let held = permits.held + before - room;
        let until = now + permits.lease;
        if scenario.permits.is_some() {
            self.permits
                .insert(host, (Permits { held, ..permits }, until));
        }
        admissions
    }

    /// How many permits Redis counts for a host.
    pub(super) fn permits_of(&self, host: HostId) -> usize {
        self.permits
            .get(&host)
            .map_or(0, |(permits, _)| permits.held)
    }

    /// `keep_records` of `parts/claim.lua`: if the delivery is pending, a record brings it up again after a while.
    fn keep_record(&mut self, now: Time, entry: Entry) {
        let held = self.pending.get(&entry);
        if let Some(&Pending { count, .. }) = held
            && self.records
        {
            let record = Record {
                at: now + self.min_idle * 2,
                count,
                is_taken: true,
                is_reserved: false,
            };
            self.due.insert(entry, record);
            self.unrecorded.remove(&entry);
        }
    }

    /// `orphans.lua`, in this order of consumers; then `sweep.lua`. `mark`: of the group that this host knows.
    pub(super) fn take_orphans(
        &mut self,
        now: Time,
        host: HostId,
        mark: u64,
        max: usize,
        order: impl Fn(HostId) -> u64,
    ) -> Vec<Handed> {
        if self.out_of_memory {
            return Vec::new();
        }
        // Each host comes back with another name.
        let is_taken = |other: HostId| other != host && Rule::OrphansOfEveryName.holds();
        let mut listed: Vec<_> = self
            .pending
            .iter()
            .filter_map(|(&entry, p)| match p.owner {
                Owner::Host(other) if is_taken(other) && self.idle(now, p) >= self.min_idle => {
                    Some((order(other), entry))
                }
                _ => None,
            })
            .collect();
        listed.sort_unstable();
        let mut handed = Vec::new();
        for (_, entry) in listed.into_iter().take(max) {
            let idle = self.idle(now, &self.pending[&entry]);
            let taken = self.claim(now, host, entry, Origin::Orphan { idle });
            if Rule::TakeoversAreNoted.holds()
                && let Some((other, _)) = taken.and_then(|taken| taken.from)
            {
                self.taken.insert((other, entry, Some(mark)));
            }
            handed.extend(taken);
        }
        let stranded: Vec<_> = self
            .pending
            .iter()
            .filter(|(entry, p)| p.owner == Owner::Parked && !self.due.contains_key(entry))
            .map(|(&entry, _)| entry)
            .collect();
        if Rule::StrandedParkedAreDue.holds() {
            let room = max.saturating_sub(handed.len());
            for entry in stranded.into_iter().take(room) {
                handed.extend(self.claim(now, host, entry, Origin::Returned));
            }
        }
        handed
    }

    /// The first half of a claim in two commands, as without [`Rule::ClaimsKeepCounts`].
    pub(super) fn list_orphans(
        &self,
        now: Time,
        host: HostId,
        max: usize,
        order: impl Fn(HostId) -> u64,
    ) -> Vec<(Entry, u32)> {
        let mut listed: Vec<_> = self
            .pending
            .iter()
            .filter_map(|(&entry, p)| match p.owner {
                Owner::Host(other) if other != host && self.idle(now, p) >= self.min_idle => {
                    Some((order(other), entry, p.count))
                }
                _ => None,
            })
            .collect();
        listed.sort_unstable();
        let listed = listed.into_iter().take(max);
        listed.map(|(_, entry, count)| (entry, count)).collect()
    }

    /// The second half: `XCLAIM min_idle RETRYCOUNT`, with the count that was listed.
    pub(super) fn claim_listed(
        &mut self,
        now: Time,
        host: HostId,
        listed: &[(Entry, u32)],
    ) -> Vec<Handed> {
        let mut handed = Vec::new();
        for &(entry, count) in listed {
            if let Some(p) = self.pending.get(&entry).copied()
                && p.owner != Owner::Host(host)
                && p.owner != Owner::Parked
                && self.idle(now, &p) >= self.min_idle
            {
                let idle = self.idle(now, &p);
                if let Some(p) = self.pending.get_mut(&entry) {
                    p.count = count;
                }
                handed.extend(self.claim(now, host, entry, Origin::Orphan { idle }));
            }
        }
        handed
    }

    /// What a host owns and no host has touched for half a `min_idle`.
    pub(super) fn own_idle(&self, now: Time, host: HostId) -> Vec<Entry> {
        if !Rule::AdoptUnknown.holds() || self.out_of_memory {
            return Vec::new();
        }
        let half = self.min_idle / 2;
        self.pending
            .iter()
            .filter(|(_, p)| p.owner == Owner::Host(host) && self.idle(now, p) >= half)
            .map(|(&entry, _)| entry)
            .collect()
    }

    /// `adopt.lua`.
    pub(super) fn adopt(&mut self, now: Time, host: HostId, entries: &[Entry]) -> Vec<Handed> {
        let mut handed = Vec::new();
        for &entry in entries {
            let half = self.min_idle / 2;
            if let Some(p) = self.pending.get(&entry)
                && p.owner == Owner::Host(host)
                && self.idle(now, p) >= half
            {
                let idle = self.idle(now, p);
                handed.extend(self.claim(now, host, entry, Origin::Orphan { idle }));
            }
        }
        handed
    }

    /// `record.lua`.
    pub(super) fn record(
        &mut self,
        now: Time,
        host: HostId,
        entry: Entry,
        (expect, write): (u32, u32),
        again: bool,
    ) -> Reply {
        if self.out_of_memory {
            return Reply::Refused("out of memory".to_owned());
        }
        let Some(&held) = self.pending.get(&entry) else {
            return Reply::Gone;
        };
        let fits = held.count == expect || again && held.count == write;
        let ours = held.owner == Owner::Host(host) && fits;
        if !ours && Rule::RecordsCheck.holds() {
            return Reply::Stolen;
        }
        if self.drop_deleted(entry) {
            return Reply::Trimmed;
        }
        self.pending.insert(
            entry,
            Pending {
                owner: Owner::Host(host),
                count: write,
                since: now,
                raised: held.raised || write > held.count,
            },
        );
        self.forget_record(entry);
        Reply::Done
    }

    /// `XACK`: no owner check; or `acknowledge_late.lua`.
    pub(super) fn acknowledge(&mut self, host: HostId, entry: Entry, is_late: bool) {
        let held = self.pending.remove(&entry);
        if held.is_some() {
            self.settled.push((entry, Fate::Acknowledged));
        }
        if is_late && Rule::LateAcksAreNoted.holds() {
            self.due.remove(&entry);
            self.forget_journal(entry);
            // Not pending, it may have gone with the consumer of its next owner.
            if held.is_none_or(|held| held.owner != Owner::Host(host)) {
                self.late.insert(entry);
            }
        }
    }

    /// `cancel.lua`, `cancel_unread.lua`. False: it is settled, or not published yet.
    pub(super) fn cancel(&mut self, entry: Entry) -> bool {
        let is_unread = self.unread().contains(&entry);
        match self.pending.remove(&entry) {
            Some(held) => {
                self.due.remove(&entry);
                self.unrecorded.remove(&entry);
                self.holds.remove(&entry);
                self.forget_journal(entry);
                if held.owner != Owner::Parked && Rule::CancelsAreNoted.holds() {
                    self.late.insert(entry);
                }
            }
            None if is_unread => self.stream.retain(|&other| other != entry),
            None => return false,
        }
        self.settled.push((entry, Fate::Cancelled));
        true
    }

    /// How many of its starts ended with a hold.
    pub(super) fn held(&self, entry: Entry) -> u32 {
        self.holds.get(&entry).copied().unwrap_or(0)
    }

    /// What an attempt reads at its start.
    pub(super) fn number(&self, key: usize) -> u64 {
        self.numbers.get(&key).map_or(0, |&(number, _)| number)
    }

    /// `acknowledge.lua`, `park.lua`, `leave.lua`, `dead_letter.lua`, `discard.lua`.
    pub(super) fn settle(
        &mut self,
        now: Time,
        host: HostId,
        entry: Entry,
        count: u32,
        action: &SettleAction,
        // The number that the attempt has read, and will have added to; whether a key has another type.
        (read, is_unfit): (Option<(usize, u64)>, bool),
    ) -> Reply {
        let Some(&held) = self.pending.get(&entry) else {
            return Reply::Gone;
        };
        if self.out_of_memory {
            return Reply::Refused("out of memory".to_owned());
        }
        let is_reserved =
            matches!(action, SettleAction::HandBack { after, .. } if !after.is_zero());
        // A hand-back is parked.
        let action = &match action {
            SettleAction::HandBack { keep, after } => SettleAction::Park {
                keep: *keep,
                after: *after,
            },
            action => action.clone(),
        };
        if let Some((keep, _)) = action.parking()
            && held.owner == Owner::Parked
            && held.count == keep
        {
            return Reply::Done;
        }
        let left = match action {
            SettleAction::Leave { keep } => held.count == *keep,
            _ => false,
        };
        if held.owner != Owner::Host(host) || (held.count != count && !left) {
            return Reply::Stolen;
        }
        match action {
            SettleAction::Park { keep, after } | SettleAction::Hold { keep, after, .. } => {
                if self.drop_deleted(entry) {
                    return Reply::Trimmed;
                }
                if let SettleAction::Hold { .. } = action {
                    *self.holds.entry(entry).or_default() += 1;
                }
                let record = Record {
                    at: now + *after,
                    count: *keep,
                    is_taken: false,
                    is_reserved,
                };
                self.due.insert(entry, record);
                self.pending.insert(
                    entry,
                    Pending {
                        owner: Owner::Parked,
                        count: *keep,
                        since: now,
                        raised: false,
                    },
                );
            }
            SettleAction::HandBack { .. } => unreachable!("it became a park above"),
            SettleAction::Leave { keep } => {
                if self.drop_deleted(entry) {
                    return Reply::Trimmed;
                }
                self.pending.insert(
                    entry,
                    Pending {
                        count: *keep,
                        since: now.saturating_sub(self.min_idle),
                        raised: false,
                        ..held
                    },
                );
            }
            SettleAction::Acknowledge => {
                if is_unfit {
                    return Reply::Unfit("it has another type".to_owned());
                }
                if self.dead_letters_refused {
                    return Reply::Refused("the effects cannot be written".to_owned());
                }
                if let Some((key, before)) = read {
                    if Rule::ValuesAreCompared.holds() && before != self.number(key) {
                        return Reply::Changed;
                    }
                    let number = self.numbers.entry(key).or_default();
                    *number = (before + 1, number.1 + 1);
                }
                self.pending.remove(&entry);
                self.due.remove(&entry);
                self.holds.remove(&entry);
                self.forget_journal(entry);
                self.acted.insert((host, entry));
                self.settled.push((entry, Fate::Acted));
            }
            SettleAction::DeadLetter(rejection) => {
                if self.dead_letters_refused {
                    return Reply::Refused("the dead-letter queue is full".to_owned());
                }
                self.pending.remove(&entry);
                self.due.remove(&entry);
                self.holds.remove(&entry);
                self.forget_journal(entry);
                let fate = Fate::DeadLettered(rejection.reason, rejection.attempts);
                self.settled.push((entry, fate));
            }
            SettleAction::Discard(rejection) => {
                self.pending.remove(&entry);
                self.due.remove(&entry);
                self.holds.remove(&entry);
                self.forget_journal(entry);
                let fate = Fate::Discarded(rejection.reason, rejection.attempts);
                self.settled.push((entry, fate));
            }
        }
        Reply::Done
    }

    /// `fence.lua`: not even a server out of memory refuses it.
    pub(super) fn void_before(&mut self, host: HostId, entry: Entry, call: u64) {
        let fence = self.fences.entry((host, entry)).or_default();
        *fence = call.max(*fence);
    }

    /// What `park.lua` and `leave.lua` ask first.
    pub(super) fn is_void(&self, host: HostId, entry: Entry, call: u64) -> bool {
        let fence = self.fences.get(&(host, entry));
        Rule::RepeatsVoid.holds() && fence.is_some_and(|&fence| call < fence)
    }

    /// `renew.lua`.
    pub(super) fn renew(&mut self, now: Time, host: HostId, entry: Entry) -> Reply {
        let Some(&held) = self.pending.get(&entry) else {
            return Reply::Gone;
        };
        if held.owner != Owner::Host(host) && Rule::RenewalChecks.holds() {
            return Reply::Stolen;
        }
        if self.drop_deleted(entry) {
            return Reply::Trimmed;
        }
        self.pending.insert(
            entry,
            Pending {
                owner: Owner::Host(host),
                since: now,
                ..held
            },
        );
        self.forget_record(entry);
        Reply::Done
    }

    pub(super) fn idle(&self, now: Time, pending: &Pending) -> Time {
        now.saturating_sub(pending.since)
    }

    fn claim(&mut self, now: Time, host: HostId, entry: Entry, origin: Origin) -> Option<Handed> {
        if self.drop_deleted(entry) {
            return None;
        }
        let held = self.pending.get_mut(&entry)?;
        let from = match held.owner {
            Owner::Host(other) => Some((other, held.raised)),
            Owner::Parked => None,
        };
        held.owner = Owner::Host(host);
        held.since = now;
        held.raised = false;
        let native = held.count;
        self.taken.remove(&(host, entry, self.mark()));
        if origin == Origin::Returned || self.due.contains_key(&entry) {
            self.keep_record(now, entry);
        }
        Some(Handed {
            entry,
            native,
            held: self.held(entry),
            origin,
            from,
            reserved: None,
        })
    }

    /// Claiming an entry that was deleted takes it off the pending list.
    fn drop_deleted(&mut self, entry: Entry) -> bool {
        let deleted = self.deleted.contains(&entry);
        if deleted {
            self.pending.remove(&entry);
            self.settled.push((entry, Fate::Trimmed));
            self.forget_journal(entry);
        }
        deleted
    }
}
