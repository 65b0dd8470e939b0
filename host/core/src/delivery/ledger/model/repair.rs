//! The model of the driver while the group is missing, or is not the one that the host knows: the host
//! asks nothing, probes, and takes back what it holds before it settles anything.

use super::super::{Event, Key, Reply, Time};
use super::driver::Command;
use super::scenario::ms;
use super::store::HostId;
use super::world::{Step, World};
use crate::delivery::rules::Rule;

/// The longest pause before a probe.
const PAUSE: Time = ms(50);

impl World<'_> {
    /// The group was missing for this command, or was made again.
    pub(super) fn missing(&mut self, host: HostId, command: Command) {
        if matches!(command, Command::Probe) {
            self.repair(host);
            return;
        }
        let h = &mut self.hosts[host];
        h.must_repair |= Rule::RepairBeforeSettling.holds();
        if !std::mem::replace(&mut h.offline, true) {
            self.apply(host, Event::Offline);
            self.probe_later(host);
        }
        self.fail(host, command);
    }

    pub(super) fn probe_later(&mut self, host: HostId) {
        let pause = self.jitter(PAUSE);
        self.after(pause, Step::Probe(host));
    }

    pub(super) fn probe(&mut self, host: HostId) {
        self.issue(host, Command::Probe);
    }

    /// The group is there.
    pub(super) fn probed(&mut self, host: HostId) {
        if self.hosts[host].must_repair {
            self.repair(host);
        } else {
            self.online(host);
        }
    }

    fn repair(&mut self, host: HostId) {
        let h = &self.hosts[host];
        let mut held: Vec<(Key, u32)> = h.ledger.pending().map(|(key, n, _)| (key, n)).collect();
        held.sort_unstable_by_key(|(key, _)| key.generation);
        let seen = match Rule::UnansweredReadsComeAgain.holds() {
            true => h.read_from(self.now),
            false => h.seen,
        };
        self.issue(host, Command::Repair { held, seen });
    }

    pub(super) fn repaired(
        &mut self,
        host: HostId,
        leased: Time,
        mark: u64,
        replies: Vec<(Key, Reply)>,
    ) {
        let h = &mut self.hosts[host];
        h.mark = mark;
        h.must_repair = false;
        self.apply(host, Event::Readopted { leased, replies });
        self.online(host);
    }

    fn online(&mut self, host: HostId) {
        self.hosts[host].offline = false;
        self.apply(host, Event::Online);
        for command in std::mem::take(&mut self.hosts[host].backlog) {
            self.issue(host, command);
        }
    }
}
