//! Calls that leave Redis, and the journal of their answers: what hosts do, what the scripts do, and what must hold.
//!
//! An attempt makes its calls one after another, each with the same name in every attempt. It asks the journal first
//! (*intend*), then sends the request, then records the answer, and only then goes on.

use std::collections::BTreeMap;

use super::super::Key;
use super::driver::Command;
use super::executor::Slot;
use super::scenario::{Unknown, ms};
use super::store::{Entry, HostId, Owner, Store};
use super::world::{Step, World, entry_of};
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::rules::Rule;

/// One call of an attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Call {
    pub(super) key: Key,
    /// The attempt that makes it, and which of its calls it is.
    pub(super) token: u64,
    pub(super) nth: u32,
    /// The idempotency key that it is sent with, unless the journal has another one.
    pub(super) idempotency: u64,
}

/// What the journal has about a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    idempotency: u64,
    /// The attempt that wrote the intent; none once another one has sent the request as well.
    by: Option<u64>,
    answer: Option<u64>,
}

/// What the journal says before a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Intended {
    /// The request may leave, with this idempotency key.
    Send(u64),
    /// An earlier attempt had this answer.
    Recorded(u64),
    /// An earlier attempt may have sent it.
    Unknown,
    /// The delivery is not this host's, or Redis refuses to write.
    Lost,
}

/// One call of a message as an onlooker sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Witness {
    /// How often the request has left.
    sent: u32,
    /// How often it may leave: once, once more for each attempt that began while an intent was open, and once more for
    /// each intent that was removed.
    extra: u32,
    removed: u32,
    idempotency: Option<u64>,
    /// The answer that a handler has seen, and that is to stay.
    seen: Option<u64>,
}

impl Store {
    /// `journal_intend.lua`.
    pub(super) fn intend(
        &mut self,
        host: HostId,
        count: u32,
        call: &Call,
        unknown: Unknown,
    ) -> Intended {
        let entry = entry_of(call.key);
        // No run has shown that the count must be asked for, too: one attempt at a time runs on a host.
        let owner = self.pending.get(&entry).filter(|held| held.count == count);
        let owns = owner.is_some_and(|held| held.owner == Owner::Host(host));
        if !owns || self.out_of_memory {
            return Intended::Lost;
        }
        let journal = self.journals.entry(entry).or_default();
        let Some(line) = journal.get_mut(&call.nth) else {
            let line = Line {
                idempotency: call.idempotency,
                by: Some(call.token),
                answer: None,
            };
            if Rule::IntentsComeFirst.holds() {
                journal.insert(call.nth, line);
            }
            return Intended::Send(call.idempotency);
        };
        match (line.answer, unknown) {
            (Some(answer), _) => Intended::Recorded(answer),
            (None, _) if line.by == Some(call.token) => Intended::Send(line.idempotency),
            (None, Unknown::Fail) => Intended::Unknown,
            (None, Unknown::Again) => {
                line.by = line.by.filter(|_| !Rule::OpenIntentsStay.holds());
                Intended::Send(line.idempotency)
            }
        }
    }

    /// `journal_answer.lua`. Returns the answer that stands, and whether an intent was removed.
    pub(super) fn answered(
        &mut self,
        call: &Call,
        answer: u64,
        is_kept: bool,
    ) -> (Option<u64>, bool) {
        let entry = entry_of(call.key);
        let Some(journal) = self.journals.get_mut(&entry) else {
            return (None, false);
        };
        let Some(line) = journal.get_mut(&call.nth) else {
            return (None, false);
        };
        if line.answer.is_some() && Rule::FirstAnswerStands.holds() {
            return (line.answer, false);
        }
        if is_kept {
            line.answer = Some(answer);
            return (line.answer, false);
        }
        let is_own = line.by == Some(call.token) || !Rule::OpenIntentsStay.holds();
        if is_own {
            journal.remove(&call.nth);
        }
        (None, is_own)
    }

    /// Which calls of a message may have been made, without a known answer.
    fn open(&self, entry: Entry) -> Vec<u32> {
        let journal = self.journals.get(&entry).into_iter().flatten();
        let open = journal.filter(|(_, line)| line.answer.is_none());
        open.map(|(&nth, _)| nth).collect()
    }

    /// The message leaves the queue: its journal goes.
    pub(super) fn forget_journal(&mut self, entry: Entry) {
        if Rule::ExitsTakeTheJournal.holds() {
            self.journals.remove(&entry);
        }
    }
}

/// The calls of all messages.
pub(super) type Witnesses = BTreeMap<(Entry, u32), Witness>;

impl World<'_> {
    /// An attempt begins: what is open now may be sent once more.
    pub(super) fn begin_calls(&mut self, host: HostId, key: Key, token: u64) {
        let entry = entry_of(key);
        for nth in self.store.open(entry) {
            let witness = self.witnesses.entry((entry, nth)).or_default();
            witness.extra += u32::from(witness.seen.is_none());
        }
        self.next_call(host, key, token, 0);
    }

    /// The next call of an attempt, or its end.
    pub(super) fn next_call(&mut self, host: HostId, key: Key, token: u64, nth: u32) {
        let plan = self.scenario.plans[entry_of(key)];
        if nth >= plan.calls {
            let delay = plan.takes / (plan.calls + 1) + self.hop();
            self.after(delay, Step::End(host, token));
            return;
        }
        let count = self.hosts[host].counts.get(&entry_of(key)).copied();
        let call = Call {
            key,
            token,
            nth,
            idempotency: self.token(),
        };
        let count = count.unwrap_or(0);
        self.issue(host, Command::Intend { call, count });
    }

    /// The journal has answered before a call.
    pub(super) fn intended(&mut self, host: HostId, call: Call, intended: Intended) {
        match intended {
            Intended::Send(idempotency) => {
                let call = Call {
                    idempotency,
                    ..call
                };
                let delay = self.hop();
                self.after(delay, Step::Send(host, call));
            }
            Intended::Recorded(answer) => self.sees(host, call, Some(answer)),
            Intended::Unknown => self.cut_short(host, call, Outcome::Drop(None)),
            Intended::Lost => self.fails(host, call),
        }
    }

    /// The request leaves.
    pub(super) fn send(&mut self, host: HostId, call: Call) {
        let entry = entry_of(call.key);
        let Call {
            nth, idempotency, ..
        } = call;
        self.trace(|| format!("host {host} sends {call:?}"));
        let life = &self.audit.lives[entry];
        let is_excused = self.audit.regrouped || life.again || life.excused;
        let witness = self.witnesses.entry((entry, nth)).or_default();
        witness.sent += 1;
        let before = *witness.idempotency.get_or_insert(idempotency);
        let witness = *witness;
        let extra = match self.scenario.unknown {
            Unknown::Again => witness.extra,
            Unknown::Fail => 0,
        };
        let holds = witness.sent <= 1 + extra + witness.removed;
        self.audit.require(holds || is_excused, || {
            format!("message {entry}: call {nth} leaves once too often: {witness:?}")
        });
        self.audit.require(before == idempotency || is_excused, || {
            format!("message {entry}: call {nth} leaves with another idempotency key: {witness:?}")
        });
        let plan = self.scenario.plans[entry];
        let delay = plan.takes / (plan.calls + 1) + self.jitter(ms(20));
        self.after(delay, Step::Respond(host, call));
    }

    /// The answer is here: it is recorded before the handler sees it, also if its attempt has ended meanwhile.
    pub(super) fn respond(&mut self, host: HostId, call: Call) {
        let answer = self.token();
        let is_kept = !answer.is_multiple_of(4);
        let answered = Command::Answered {
            call,
            answer,
            is_kept,
        };
        if !Rule::AnswersAreRecordedFirst.holds() {
            self.sees(host, call, is_kept.then_some(answer));
        }
        self.issue(host, answered);
    }

    /// Redis has recorded an answer, or not.
    pub(super) fn perform_answered(
        &mut self,
        call: Call,
        answer: u64,
        is_kept: bool,
    ) -> Option<u64> {
        let entry = entry_of(call.key);
        let (stands, is_removed) = self.store.answered(&call, answer, is_kept);
        if is_removed {
            let witness = self.witnesses.entry((entry, call.nth)).or_default();
            witness.removed += 1;
            witness.idempotency = None;
        }
        let life = &self.audit.lives[entry];
        let is_over = life.fate.is_some() || life.again || life.excused || self.audit.regrouped;
        self.audit
            .require(!is_kept || stands.is_some() || is_over, || {
                format!("message {entry}: the answer to {call:?} is not recorded")
            });
        stands.or(is_kept.then_some(answer))
    }

    /// The handler sees an answer; `None`: one that is not kept, after which it fails.
    pub(super) fn sees(&mut self, host: HostId, call: Call, answer: Option<u64>) {
        let entry = entry_of(call.key);
        let Some(answer) = answer else {
            self.fails(host, call);
            return;
        };
        let is_excused = self.audit.regrouped || self.audit.lives[entry].again;
        let is_settled = self.audit.lives[entry].fate.is_some();
        let witness = self.witnesses.entry((entry, call.nth)).or_default();
        let before = match is_settled {
            true => witness.seen.unwrap_or(answer),
            false => *witness.seen.get_or_insert(answer),
        };
        self.audit
            .require(before == answer || is_excused || is_settled, || {
                format!("message {entry}: call {} has two answers", call.nth)
            });
        if self.is_making(host, call) {
            self.next_call(host, call.key, call.token, call.nth + 1);
        }
    }

    fn is_making(&self, host: HostId, call: Call) -> bool {
        let slots = &self.hosts[host].slots;
        slots
            .iter()
            .any(|slot| matches!(slot, Slot::Running { token, .. } if *token == call.token))
    }

    fn fails(&mut self, host: HostId, call: Call) {
        if self.is_making(host, call) {
            let life = &mut self.audit.lives[entry_of(call.key)];
            life.nacks += 1;
            life.outside += 1;
            self.cut_short(host, call, super::executor::fault(FaultKind::Trap));
        }
    }

    /// An attempt ends before its last call.
    fn cut_short(&mut self, host: HostId, call: Call, outcome: Outcome) {
        let entry = entry_of(call.key);
        let token = call.token;
        let slots = self.hosts[host].slots.iter();
        let place = slots
            .enumerate()
            .find(|(_, slot)| matches!(slot, Slot::Running { token: t, .. } if *t == token));
        let Some(slot) = place.map(|(place, _)| place) else {
            return;
        };
        let life = &mut self.audit.lives[entry];
        life.dropped |= matches!(outcome, Outcome::Drop(_));
        if let Some(place) = life.runs.iter().position(|&(other, _)| other == host) {
            life.runs.swap_remove(place);
        }
        self.trace(|| format!("host {host} cuts message {entry} short: {outcome:?}"));
        self.finished(host, slot, call.key, outcome, None);
    }

    /// After an exit no journal is left.
    pub(super) fn check_journals(&mut self) {
        let left: Vec<Entry> = self.store.journals.keys().copied().collect();
        for entry in left {
            let life = &self.audit.lives[entry];
            let is_over = life.fate.is_some() && !life.again && !life.excused;
            let holds = !is_over || self.audit.regrouped;
            self.audit.require(holds, || {
                format!("message {entry}: it has left, and its journal stays")
            });
        }
    }
}
