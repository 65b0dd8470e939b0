//! The model of the executor: a queue of what was released, and slots that take from it. It keeps
//! one rule of its own: nothing starts unasked whose lease was not confirmed within `min_idle`.

use super::super::held::State;
use super::super::{Event, Key, Mode, Time};
use super::audit::{Begin, Cause};
use super::scenario::{Delay, Nature, ms};
use super::store::{Entry, HostId};
use super::world::{Step, World, entry_of};
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::rules::Rule;

#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    Free,
    /// It has asked for leave.
    Asking(Key),
    /// It has leave, and the handler starts in a moment.
    Starting {
        key: Key,
        attempt: u32,
        token: u64,
        checked: Time,
    },
    Running {
        key: Key,
        token: u64,
    },
}

impl Slot {
    /// What runs in it, or is about to.
    pub(super) fn entry(&self) -> Option<Entry> {
        match self {
            Self::Running { key, .. } | Self::Starting { key, .. } => Some(entry_of(*key)),
            Self::Free | Self::Asking(_) => None,
        }
    }
}

impl World<'_> {
    /// Free slots take what was released.
    pub(super) fn take(&mut self, host: HostId) {
        while let Some(slot) = self.slot(host, |slot| matches!(slot, Slot::Free)) {
            let Some((key, attempt, leased)) = self.hosts[host].queue.pop_front() else {
                return;
            };
            let gate = self.scenario.plans[entry_of(key)].gate;
            if let Some(reason) = gate.and_then(|gate| gate.at_start(self.now)) {
                let detail = "model".to_owned();
                self.tell(
                    host,
                    Event::TurnedAway {
                        key,
                        reason,
                        detail,
                    },
                );
                continue;
            }
            let is_leased = self.now.saturating_sub(leased) < self.scenario.min_idle;
            match attempt {
                Some(attempt) if is_leased || !Rule::LeaseBeforeStart.holds() => {
                    self.begin_start(host, slot, key, attempt, self.now);
                }
                _ => {
                    self.hosts[host].slots[slot] = Slot::Asking(key);
                    self.tell(host, Event::SlotReady(key));
                }
            }
        }
    }

    fn begin_start(&mut self, host: HostId, slot: usize, key: Key, attempt: u32, checked: Time) {
        let token = self.token();
        self.hosts[host].slots[slot] = Slot::Starting {
            key,
            attempt,
            token,
            checked,
        };
        let delay = self.hop();
        self.after(delay, Step::Start(host, token));
    }

    pub(super) fn go(&mut self, host: HostId, key: Key, attempt: u32, given: Time) {
        let slot = self.slot(host, |slot| matches!(slot, Slot::Asking(k) if *k == key));
        match slot {
            Some(slot) => self.begin_start(host, slot, key, attempt, given),
            None => self
                .audit
                .violate(|| format!("host {host}: leave to start {key:?}, and no slot asked")),
        }
    }

    pub(super) fn deny(&mut self, host: HostId, key: Key) {
        let slot = self.slot(host, |slot| matches!(slot, Slot::Asking(k) if *k == key));
        match slot {
            Some(slot) => {
                self.hosts[host].slots[slot] = Slot::Free;
                self.take(host);
            }
            None => self
                .audit
                .violate(|| format!("host {host}: {key:?} denied, and no slot asked")),
        }
    }

    pub(super) fn start(&mut self, host: HostId, token: u64) {
        let slot = self.slot(
            host,
            |slot| matches!(slot, Slot::Starting { token: t, .. } if *t == token),
        );
        let Some(slot) = slot else { return };
        let Slot::Starting {
            key,
            attempt,
            checked,
            ..
        } = self.hosts[host].slots[slot]
        else {
            return;
        };
        let entry = entry_of(key);
        let has_leave = self.hosts[host]
            .ledger
            .holdings
            .find_in(key, is_running)
            .is_some();
        if has_leave && token.is_multiple_of(23) && !self.scenario.faults.is_calm() {
            // It had leave, and its lease is too old by now.
            self.trace(|| format!("host {host} does not use its leave for message {entry}"));
            self.hosts[host].slots[slot] = Slot::Free;
            self.tell(host, Event::Unstarted(key));
            self.take(host);
            return;
        }
        if self.hosts[host].broken_until > self.now {
            self.finished(host, slot, key, fault(FaultKind::Instantiation), None);
            return;
        }
        self.trace(|| format!("host {host} starts message {entry}, attempt {attempt}"));
        if let Mode::Isolated { key: suspect, .. } = self.hosts[host].ledger.mode
            && suspect.id != key.id
        {
            self.audit
                .violate(|| format!("message {entry} starts beside {}", entry_of(suspect)));
        }
        let begin = Begin {
            host,
            entry,
            attempt,
            at: self.now,
            frozen: self.hosts[host].woke >= checked || self.may_have_jumped(),
        };
        if !begin.frozen {
            self.audit.paced(self.scenario, entry, self.now);
        }
        let reach = self.scenario.min_idle * 4;
        let hosts = &self.hosts;
        self.audit
            .started(self.scenario, &self.store, begin, |other, since| {
                hosts[other].disturbed + reach >= since
            });
        let count = self.hosts[host].ledger.holdings.find(key);
        let count = count.map_or(0, |held| held.counts.native);
        self.hosts[host].counts.insert(entry, count);
        if let Some(key) = self.scenario.key_of(entry) {
            let number = self.store.number(key);
            self.hosts[host].read.insert(entry, (key, number));
        }
        let plan = self.scenario.plans[entry];
        if plan.nature == Nature::Killer {
            self.kill(host, Cause::Killer(entry));
            return;
        }
        self.hosts[host].slots[slot] = Slot::Running { key, token };
        if !begin.frozen {
            // It may have stood still, beyond its lease, between its leave and its start.
            self.check_permits();
        }
        if plan.calls > 0 {
            self.begin_calls(host, key, token);
            return;
        }
        let delay = plan.takes + self.hop();
        self.after(delay, Step::End(host, token));
    }

    /// An attempt ends without an outcome, if it runs.
    pub(super) fn cut_off(&mut self, host: HostId, key: Key) {
        let is_its = |slot: &Slot| matches!(slot, Slot::Running { key: k, .. } if *k == key);
        let Some(slot) = self.slot(host, is_its) else {
            return;
        };
        let entry = entry_of(key);
        let runs = &mut self.audit.lives[entry].runs;
        runs.retain(|&(other, _)| other != host);
        self.trace(|| format!("host {host} cuts message {entry} off"));
        self.hosts[host].slots[slot] = Slot::Free;
        self.tell(host, Event::CutOff(key));
    }

    pub(super) fn end_attempt(&mut self, host: HostId, token: u64) {
        let slot = self.slot(
            host,
            |slot| matches!(slot, Slot::Running { token: t, .. } if *t == token),
        );
        let Some(slot) = slot else { return };
        let Slot::Running { key, .. } = self.hosts[host].slots[slot] else {
            return;
        };
        let entry = entry_of(key);
        let plan = self.scenario.plans[entry];
        let life = &mut self.audit.lives[entry];
        if let Some(place) = life.runs.iter().position(|&(other, _)| other == host) {
            life.runs.swap_remove(place);
        }
        let mut hold = None;
        let outcome = match plan.nature {
            Nature::Ack { nacks } if life.nacks >= nacks && life.asked >= plan.holds => {
                life.acked = true;
                Outcome::Ack
            }
            Nature::Unfit => {
                life.acked = true;
                Outcome::Ack
            }
            Nature::Drop => {
                life.dropped = true;
                Outcome::Drop(None)
            }
            Nature::Ack { .. } | Nature::Never | Nature::Killer => {
                if plan.holds > life.asked {
                    life.asked += 1;
                    let after = ms(100) + plan.takes;
                    hold = Some(after);
                    // Beyond the bound it is charged.
                    life.nacks += u32::from(life.held >= self.scenario.limit.holds.max);
                } else {
                    life.nacks += 1;
                }
                match plan.delay {
                    _ if hold.is_some() => Outcome::NackRequeue(None),
                    Delay::Asked(delay) => Outcome::NackRequeue(Some(delay)),
                    Delay::Backoff => Outcome::NackRequeue(None),
                    Delay::Trap => fault(FaultKind::Trap),
                }
            }
        };
        self.trace(|| format!("host {host} ends message {entry}: {outcome:?}"));
        self.finished(host, slot, key, outcome, hold);
    }

    pub(super) fn finished(
        &mut self,
        host: HostId,
        slot: usize,
        key: Key,
        outcome: Outcome,
        hold: Option<Time>,
    ) {
        self.hosts[host].slots[slot] = Slot::Free;
        self.hosts[host].ended.push_back(self.now);
        let jitter = self.rng.f64();
        self.tell(
            host,
            Event::Finished {
                key,
                outcome,
                told: None,
                hold,
                acts: false,
                is_current: true,
                jitter,
            },
        );
        self.take(host);
    }

    fn slot(&self, host: HostId, wanted: impl Fn(&Slot) -> bool) -> Option<usize> {
        self.hosts[host].slots.iter().position(wanted)
    }
}

fn is_running(state: &State) -> bool {
    matches!(state, State::Running { .. })
}

pub(super) fn fault(kind: FaultKind) -> Outcome {
    Outcome::Fault(Fault::new(kind, "model"))
}
