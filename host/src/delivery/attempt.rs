//! Which start comes next, what must be recorded before it, and who runs alone.
//!
//! Redis counts deliveries, not starts. The count that it keeps for a delivery (*native count*)
//! and the starts charged before the message came to this queue (*header*) tell the starts charged
//! so far; the rules below say how. `docs/attempts.md` explains each rule by what goes wrong
//! without it.

use crate::delivery::rules::Rule;

/// How starts are counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Accounting {
    /// The count that Redis gives a first delivery stands for its first start, started or not:
    /// no extra write per message, and a host that dies charges what it had only prefetched.
    #[default]
    Lazy,
    /// Every start is recorded: a hand-out that never started costs nothing. All hosts of a group
    /// must agree on it.
    Exact,
}

/// How often a message may start, and how its starts are counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Allowance {
    /// Starts in all; `None` = no cap.
    pub cap: Option<u32>,
    /// How starts are counted.
    pub accounting: Accounting,
    /// The queue forgets what it hands out: a delivery starts once, and nothing goes back.
    pub at_most_once: bool,
}

/// The counts of one delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tally {
    /// Starts charged before the message came to this queue.
    pub header: u32,
    /// The count that Redis keeps.
    pub native: u32,
    /// Handed out for the first time and not started yet: under [`Accounting::Lazy`] its native
    /// count of 1 stands for the start that is still to come.
    pub fresh: bool,
}

/// What may happen next to a delivery that this host holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// It may be started, once its start is recorded.
    Start(Start),
    /// It has no start left.
    Exhausted {
        /// Starts charged in all.
        attempts: u32,
    },
}

/// The next start of a delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Start {
    /// Which start this is, 1-based.
    pub attempt: u32,
    /// The native count to write before the handler runs; `None` = the count already stands for it.
    pub record: Option<u32>,
}

/// Where a delivery may run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lane {
    /// Beside other deliveries.
    Normal,
    /// With nothing else in flight on its host: it may be what killed the last one.
    Alone,
}

impl Allowance {
    /// After how many starts a message is given up; 0 = never. What handlers are told.
    pub fn starts_max(&self) -> u32 {
        if self.at_most_once {
            1
        } else {
            self.cap.unwrap_or(0)
        }
    }

    /// Starts left to this queue after those of the header.
    fn budget(&self, header: u32) -> Option<u32> {
        self.cap.map(|cap| cap.saturating_sub(header))
    }

    /// Whether the native count runs one ahead of the starts: then a count of 1 or less proves
    /// that the message never started. So it is where the first delivery is already the last
    /// (without it, an entry handed back at a cap of 1 could start twice), and everywhere under
    /// exact accounting.
    fn runs_ahead(&self, header: u32) -> bool {
        let last = self.budget(header) == Some(1) && Rule::LastStartIsTwo.holds();
        self.accounting == Accounting::Exact || last
    }

    /// Starts charged by this queue.
    fn charged(&self, tally: Tally) -> u32 {
        if self.runs_ahead(tally.header) {
            tally.native.saturating_sub(1)
        } else if tally.fresh {
            0
        } else {
            tally.native
        }
    }

    /// Starts charged to a message so far, its header included.
    pub fn attempts(&self, tally: Tally) -> u32 {
        let charged = self.charged(tally);
        let charged = self
            .budget(tally.header)
            .map_or(charged, |budget| charged.min(budget));
        tally.header.saturating_add(charged)
    }

    /// What may happen next.
    pub fn standing(&self, tally: Tally) -> Standing {
        let charged = self.charged(tally);
        if self
            .budget(tally.header)
            .is_some_and(|budget| charged >= budget)
        {
            return Standing::Exhausted {
                attempts: self.attempts(tally),
            };
        }
        let ahead = u32::from(self.runs_ahead(tally.header));
        let write = charged.saturating_add(1).saturating_add(ahead);
        Standing::Start(Start {
            attempt: tally.header.saturating_add(charged).saturating_add(1),
            record: (write != tally.native).then_some(write),
        })
    }

    /// The lane of a delivery whose host died (a *suspect*, if it may have started).
    ///
    /// One charge runs with the others, so that a host killed by a deploy does not stall its
    /// successors; two charges, or one start left, run alone, so that a message that kills hosts
    /// takes no innocent with it.
    pub fn orphan_lane(&self, tally: Tally) -> Lane {
        let charged = self.charged(tally);
        let one_left = self
            .budget(tally.header)
            .is_some_and(|budget| budget.saturating_sub(charged) <= 1);
        if charged >= 2 || (charged >= 1 && one_left) {
            Lane::Alone
        } else {
            Lane::Normal
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(header: u32, native: u32, fresh: bool) -> Tally {
        Tally {
            header,
            native,
            fresh,
        }
    }

    fn allowance(cap: Option<u32>) -> Allowance {
        Allowance {
            cap,
            ..Allowance::default()
        }
    }

    fn start(attempt: u32, record: Option<u32>) -> Standing {
        Standing::Start(Start { attempt, record })
    }

    #[test]
    fn a_first_delivery_needs_no_record() {
        assert_eq!(allowance(None).standing(tally(0, 1, true)), start(1, None));
        assert_eq!(
            allowance(Some(2)).standing(tally(0, 1, true)),
            start(1, None)
        );
        assert_eq!(
            allowance(Some(9)).standing(tally(3, 1, true)),
            start(4, None)
        );
    }

    #[test]
    fn every_later_start_is_recorded() {
        assert_eq!(
            allowance(None).standing(tally(0, 1, false)),
            start(2, Some(2))
        );
        assert_eq!(
            allowance(Some(5)).standing(tally(1, 3, false)),
            start(5, Some(4))
        );
        // Handed back before it ever started.
        assert_eq!(
            allowance(Some(5)).standing(tally(0, 0, false)),
            start(1, Some(1))
        );
    }

    #[test]
    fn where_the_first_delivery_is_the_last_a_recorded_start_is_2() {
        for native in [0, 1] {
            for fresh in [false, true] {
                assert_eq!(
                    allowance(Some(1)).standing(tally(0, native, fresh)),
                    start(1, Some(2))
                );
                assert_eq!(
                    allowance(Some(4)).standing(tally(3, native, fresh)),
                    start(4, Some(2))
                );
            }
        }
        assert_eq!(
            allowance(Some(1)).standing(tally(0, 2, false)),
            Standing::Exhausted { attempts: 1 }
        );
        assert_eq!(
            allowance(Some(4)).standing(tally(3, 2, false)),
            Standing::Exhausted { attempts: 4 }
        );
    }

    #[test]
    fn a_header_can_use_the_whole_cap() {
        assert_eq!(
            allowance(Some(3)).standing(tally(3, 1, true)),
            Standing::Exhausted { attempts: 3 }
        );
        assert_eq!(
            allowance(Some(3)).standing(tally(u32::MAX, 1, true)),
            Standing::Exhausted { attempts: u32::MAX }
        );
    }

    #[test]
    fn exact_accounting_charges_only_recorded_starts() {
        let exact = Allowance {
            cap: Some(3),
            accounting: Accounting::Exact,
            ..Allowance::default()
        };
        assert_eq!(exact.standing(tally(0, 1, true)), start(1, Some(2)));
        assert_eq!(exact.standing(tally(0, 1, false)), start(1, Some(2)));
        assert_eq!(exact.standing(tally(0, 3, false)), start(3, Some(4)));
        assert_eq!(
            exact.standing(tally(0, 4, false)),
            Standing::Exhausted { attempts: 3 }
        );
        assert_eq!(exact.orphan_lane(tally(0, 1, false)), Lane::Normal);
    }

    #[test]
    fn two_charges_or_one_start_left_run_alone() {
        let lane = |cap, header, native| allowance(cap).orphan_lane(tally(header, native, false));
        assert_eq!(lane(None, 0, 1), Lane::Normal);
        assert_eq!(lane(None, 0, 2), Lane::Alone);
        assert_eq!(lane(Some(5), 0, 1), Lane::Normal);
        assert_eq!(lane(Some(2), 0, 1), Lane::Alone);
        assert_eq!(lane(Some(5), 3, 1), Lane::Alone);
        // Never started: no suspect.
        assert_eq!(lane(Some(5), 0, 0), Lane::Normal);
        assert_eq!(lane(Some(1), 0, 1), Lane::Normal);
    }

    /// One thing that happens to a message.
    #[derive(Clone, Copy, Debug)]
    enum Turn {
        /// It starts, and fails.
        Fail,
        /// It starts, and its host dies.
        DieRunning,
        /// Its host dies between the record and the start.
        DieRecorded,
        /// Its host dies before it does anything with it.
        DieHolding,
        /// It is handed back unstarted, before the record or after it.
        HandBack,
    }

    fn any_turn() -> impl Strategy<Value = Turn> {
        prop_oneof![
            3 => Just(Turn::Fail),
            1 => Just(Turn::DieRunning),
            1 => Just(Turn::DieRecorded),
            1 => Just(Turn::DieHolding),
            2 => Just(Turn::HandBack),
        ]
    }

    fn any_allowance() -> impl Strategy<Value = Allowance> {
        let cap = prop_oneof![Just(None), (0..8_u32).prop_map(Some)];
        let accounting = prop_oneof![Just(Accounting::Lazy), Just(Accounting::Exact)];
        (cap, accounting).prop_map(|(cap, accounting)| Allowance {
            cap,
            accounting,
            at_most_once: false,
        })
    }

    proptest! {
        #[test]
        fn starts_never_exceed_the_cap_and_every_charge_has_its_cause(
            allowance in any_allowance(),
            header in prop_oneof![Just(0), 0..8_u32],
            turns in prop::collection::vec(any_turn(), 0..24),
        ) {
            let mut now = tally(header, 1, true);
            let mut last = header;
            // Starts, and deaths that charged the message without one.
            let (mut starts, mut wasted, mut first_hand_out) = (0, 0, 0);
            for turn in turns {
                let Standing::Start(next) = allowance.standing(now) else {
                    break;
                };
                let unrecorded = Tally { fresh: false, ..now };
                let recorded = tally(header, next.record.unwrap_or(now.native), false);
                prop_assert_eq!(next.attempt, last + 1, "attempts are counted one by one");
                prop_assert!(next.record.is_none_or(|write| write > now.native));
                prop_assert!(next.record.is_some() || now.fresh, "only a first start is unrecorded");
                now = match turn {
                    Turn::Fail | Turn::DieRunning => {
                        starts += 1;
                        last += 1;
                        recorded
                    }
                    Turn::DieRecorded => {
                        wasted += 1;
                        last += 1;
                        recorded
                    }
                    Turn::DieHolding => {
                        let charges = allowance.attempts(unrecorded) - allowance.attempts(now);
                        first_hand_out += charges;
                        last += charges;
                        unrecorded
                    }
                    Turn::HandBack if now.fresh => tally(header, 0, false),
                    Turn::HandBack => now,
                };
                prop_assert_eq!(allowance.attempts(now), last);
                let is_dead = matches!(turn, Turn::DieRunning | Turn::DieRecorded | Turn::DieHolding);
                if is_dead && allowance.orphan_lane(now) == Lane::Alone {
                    prop_assert!(last > header, "what was never charged is no suspect");
                }
                if is_dead && allowance.orphan_lane(now) == Lane::Normal {
                    let left = allowance.cap.map(|cap| cap - last);
                    prop_assert!(last < header + 2 && (last == header || left != Some(1)));
                }
            }
            let budget = allowance.cap.map(|cap| cap.saturating_sub(header));
            prop_assert!(budget.is_none_or(|budget| starts + wasted + first_hand_out <= budget));
            prop_assert!(first_hand_out <= 1, "only the first hand-out may be charged unstarted");
            if allowance.accounting == Accounting::Exact || budget == Some(1) {
                prop_assert_eq!(first_hand_out, 0, "handing out costs nothing");
            }
            match allowance.standing(now) {
                Standing::Start(next) => prop_assert_eq!(next.attempt, last + 1),
                Standing::Exhausted { attempts } => {
                    prop_assert_eq!(Some(starts + wasted + first_hand_out), budget);
                    prop_assert_eq!(attempts, last);
                }
            }
        }

        #[test]
        fn no_count_is_too_large(
            allowance in any_allowance(),
            header in any::<u32>(),
            native in any::<u32>(),
            fresh in any::<bool>(),
        ) {
            let tally = tally(header, native, fresh);
            let attempts = allowance.attempts(tally);
            prop_assert!(attempts >= header);
            if let Standing::Start(start) = allowance.standing(tally) {
                prop_assert!(allowance.cap.is_none_or(|cap| start.attempt <= cap));
            } else {
                prop_assert!(allowance.cap.is_some_and(|cap| attempts >= cap));
            }
            allowance.orphan_lane(tally);
        }
    }
}
