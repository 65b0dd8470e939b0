//! Which start comes next, what must be recorded before it, and which deliveries run isolated.
//!
//! Redis counts deliveries, not starts. Two numbers say how many starts are charged to a message:
//! the count that Redis keeps for its delivery (*native count*), and the starts charged before it
//! came to this queue (*header*). `docs/attempts.md` explains the rules.

use crate::delivery::hold::HoldLimits;
use crate::delivery::rules::Rule;

/// How starts are counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Accounting {
    /// The count that Redis gives a first delivery stands for its first start, whether it starts or
    /// not. This needs no extra write per message. A host that dies also charges the messages that it
    /// had only prefetched.
    #[default]
    Lazy,
    /// Every start is recorded. A message that was handed out and never started is not charged. All
    /// hosts of a group must use the same accounting.
    Exact,
}

/// How often a message may start, and how its starts are counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeliveryLimit {
    /// The most starts; `None` = no cap.
    pub cap: Option<u32>,
    /// How starts are counted.
    pub accounting: Accounting,
    /// The queue forgets what it hands out: a message starts once, and cannot go back.
    pub at_most_once: bool,
    /// How often a message may be held, and for how long.
    pub holds: HoldLimits,
}

/// The counts of one delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AttemptCounts {
    /// Starts charged before the message came to this queue.
    pub header: u32,
    /// The count that Redis keeps. It never falls because of a hold.
    pub native: u32,
    /// How many of its starts ended with a hold: they are not charged.
    pub held: u32,
    /// Handed out for the first time, and not started yet. Under [`Accounting::Lazy`] its native count
    /// of 1 stands for the start that is still to come.
    pub fresh: bool,
}

/// What may happen next to a delivery that this host holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextStart {
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
    /// With nothing else in flight on its host: the message may have killed the last one.
    Isolated,
}

impl DeliveryLimit {
    /// After how many starts a message is given up; 0 = never. Handlers see this number.
    pub fn starts_max(&self) -> u32 {
        if self.at_most_once {
            1
        } else {
            self.cap.unwrap_or(0)
        }
    }

    /// The starts that are left to this queue after those of the header.
    fn budget(&self, header: u32) -> Option<u32> {
        self.cap.map(|cap| cap.saturating_sub(header))
    }

    /// Whether the native count runs one ahead of the starts. Then a count of 1 or less proves that the
    /// message never started. This holds everywhere under exact accounting. It also holds if the first
    /// delivery is already the last: otherwise a message that was handed back could start twice although
    /// its cap is 1.
    fn runs_ahead(&self, header: u32) -> bool {
        let last = self.budget(header) == Some(1) && Rule::LastStartIsTwo.holds();
        self.accounting == Accounting::Exact || last
    }

    /// Whether a start may be recorded before a slot is free for it. A crash would charge it, although the
    /// message has not started. Exact accounting excludes that, and so does rule 1 for a message with one start.
    pub fn may_record_ahead(&self, header: u32) -> bool {
        !self.at_most_once && !self.runs_ahead(header)
    }

    /// The starts that this queue has charged.
    fn charged(&self, counts: AttemptCounts) -> u32 {
        let charged = if self.runs_ahead(counts.header) {
            counts.native.saturating_sub(1)
        } else if counts.fresh {
            0
        } else {
            counts.native
        };
        charged.saturating_sub(counts.held)
    }

    /// Whether a start with these counts may end with another hold.
    pub fn may_hold(&self, counts: AttemptCounts) -> bool {
        !self.at_most_once && counts.held < self.holds.max && Rule::HoldsAreFree.holds()
    }

    /// The starts charged to a message so far, including those of its header.
    pub fn attempts(&self, counts: AttemptCounts) -> u32 {
        let charged = self.charged(counts);
        let charged = self
            .budget(counts.header)
            .map_or(charged, |budget| charged.min(budget));
        counts.header.saturating_add(charged)
    }

    /// What may happen next.
    pub fn next_start(&self, counts: AttemptCounts) -> NextStart {
        let charged = self.charged(counts);
        if self
            .budget(counts.header)
            .is_some_and(|budget| charged >= budget)
        {
            return NextStart::Exhausted {
                attempts: self.attempts(counts),
            };
        }
        let ahead = u32::from(self.runs_ahead(counts.header));
        let write = charged
            .saturating_add(1)
            .saturating_add(ahead)
            .saturating_add(counts.held);
        NextStart::Start(Start {
            attempt: counts.header.saturating_add(charged).saturating_add(1),
            record: (write != counts.native).then_some(write),
        })
    }

    /// The lane of a delivery whose host died (a *suspect*, if it may have started).
    ///
    /// A delivery with one charge runs beside others, so that a host killed by a deploy does not stall
    /// its successors. A delivery with two charges, or with one start left, runs isolated, so that a
    /// message that kills hosts takes no other message with it.
    pub fn orphan_lane(&self, counts: AttemptCounts) -> Lane {
        let charged = self.charged(counts);
        let one_left = self
            .budget(counts.header)
            .is_some_and(|budget| budget.saturating_sub(charged) <= 1);
        if charged >= 2 || (charged >= 1 && one_left) {
            Lane::Isolated
        } else {
            Lane::Normal
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(header: u32, native: u32, fresh: bool) -> AttemptCounts {
        AttemptCounts {
            header,
            native,
            held: 0,
            fresh,
        }
    }

    fn limit(cap: Option<u32>) -> DeliveryLimit {
        DeliveryLimit {
            cap,
            ..DeliveryLimit::default()
        }
    }

    fn start(attempt: u32, record: Option<u32>) -> NextStart {
        NextStart::Start(Start { attempt, record })
    }

    #[test]
    fn a_first_delivery_needs_no_record() {
        assert_eq!(limit(None).next_start(counts(0, 1, true)), start(1, None));
        assert_eq!(
            limit(Some(2)).next_start(counts(0, 1, true)),
            start(1, None)
        );
        assert_eq!(
            limit(Some(9)).next_start(counts(3, 1, true)),
            start(4, None)
        );
    }

    #[test]
    fn every_later_start_is_recorded() {
        assert_eq!(
            limit(None).next_start(counts(0, 1, false)),
            start(2, Some(2))
        );
        assert_eq!(
            limit(Some(5)).next_start(counts(1, 3, false)),
            start(5, Some(4))
        );
        // Handed back before it ever started.
        assert_eq!(
            limit(Some(5)).next_start(counts(0, 0, false)),
            start(1, Some(1))
        );
    }

    #[test]
    fn the_recorded_count_is_2_if_the_first_delivery_is_the_last() {
        for native in [0, 1] {
            for fresh in [false, true] {
                assert_eq!(
                    limit(Some(1)).next_start(counts(0, native, fresh)),
                    start(1, Some(2))
                );
                assert_eq!(
                    limit(Some(4)).next_start(counts(3, native, fresh)),
                    start(4, Some(2))
                );
            }
        }
        assert_eq!(
            limit(Some(1)).next_start(counts(0, 2, false)),
            NextStart::Exhausted { attempts: 1 }
        );
        assert_eq!(
            limit(Some(4)).next_start(counts(3, 2, false)),
            NextStart::Exhausted { attempts: 4 }
        );
    }

    #[test]
    fn a_header_can_use_the_whole_cap() {
        assert_eq!(
            limit(Some(3)).next_start(counts(3, 1, true)),
            NextStart::Exhausted { attempts: 3 }
        );
        assert_eq!(
            limit(Some(3)).next_start(counts(u32::MAX, 1, true)),
            NextStart::Exhausted { attempts: u32::MAX }
        );
    }

    #[test]
    fn exact_accounting_charges_only_recorded_starts() {
        let exact = DeliveryLimit {
            cap: Some(3),
            accounting: Accounting::Exact,
            ..DeliveryLimit::default()
        };
        assert_eq!(exact.next_start(counts(0, 1, true)), start(1, Some(2)));
        assert_eq!(exact.next_start(counts(0, 1, false)), start(1, Some(2)));
        assert_eq!(exact.next_start(counts(0, 3, false)), start(3, Some(4)));
        assert_eq!(
            exact.next_start(counts(0, 4, false)),
            NextStart::Exhausted { attempts: 3 }
        );
        assert_eq!(exact.orphan_lane(counts(0, 1, false)), Lane::Normal);
    }

    #[test]
    fn a_suspect_with_two_charges_or_one_start_left_runs_isolated() {
        let lane = |cap, header, native| limit(cap).orphan_lane(counts(header, native, false));
        assert_eq!(lane(None, 0, 1), Lane::Normal);
        assert_eq!(lane(None, 0, 2), Lane::Isolated);
        assert_eq!(lane(Some(5), 0, 1), Lane::Normal);
        assert_eq!(lane(Some(2), 0, 1), Lane::Isolated);
        assert_eq!(lane(Some(5), 3, 1), Lane::Isolated);
        // Never started: not a suspect.
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

    fn any_allowance() -> impl Strategy<Value = DeliveryLimit> {
        let cap = prop_oneof![Just(None), (0..8_u32).prop_map(Some)];
        let accounting = prop_oneof![Just(Accounting::Lazy), Just(Accounting::Exact)];
        (cap, accounting).prop_map(|(cap, accounting)| DeliveryLimit {
            cap,
            accounting,
            at_most_once: false,
            holds: HoldLimits::default(),
        })
    }

    proptest! {
        #[test]
        fn starts_never_exceed_the_cap_and_every_charge_has_its_cause(
            limit in any_allowance(),
            header in prop_oneof![Just(0), 0..8_u32],
            turns in prop::collection::vec(any_turn(), 0..24),
        ) {
            let mut now = counts(header, 1, true);
            let mut last = header;
            // Starts, and deaths that charged the message without one.
            let (mut starts, mut wasted, mut first_hand_out) = (0, 0, 0);
            for turn in turns {
                let NextStart::Start(next) = limit.next_start(now) else {
                    break;
                };
                let unrecorded = AttemptCounts { fresh: false, ..now };
                let recorded = counts(header, next.record.unwrap_or(now.native), false);
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
                        let charges = limit.attempts(unrecorded) - limit.attempts(now);
                        first_hand_out += charges;
                        last += charges;
                        unrecorded
                    }
                    Turn::HandBack if now.fresh => counts(header, 0, false),
                    Turn::HandBack => now,
                };
                prop_assert_eq!(limit.attempts(now), last);
                let is_dead = matches!(turn, Turn::DieRunning | Turn::DieRecorded | Turn::DieHolding);
                if is_dead && limit.orphan_lane(now) == Lane::Isolated {
                    prop_assert!(last > header, "an uncharged delivery is not a suspect");
                }
                if is_dead && limit.orphan_lane(now) == Lane::Normal {
                    let left = limit.cap.map(|cap| cap - last);
                    prop_assert!(last < header + 2 && (last == header || left != Some(1)));
                }
            }
            let budget = limit.cap.map(|cap| cap.saturating_sub(header));
            prop_assert!(budget.is_none_or(|budget| starts + wasted + first_hand_out <= budget));
            prop_assert!(first_hand_out <= 1, "only the first hand-out may be charged unstarted");
            if limit.accounting == Accounting::Exact || budget == Some(1) {
                prop_assert_eq!(first_hand_out, 0, "handing out costs nothing");
            }
            match limit.next_start(now) {
                NextStart::Start(next) => prop_assert_eq!(next.attempt, last + 1),
                NextStart::Exhausted { attempts } => {
                    prop_assert_eq!(Some(starts + wasted + first_hand_out), budget);
                    prop_assert_eq!(attempts, last);
                }
            }
        }

        #[test]
        fn any_counts_are_handled(
            limit in any_allowance(),
            header in any::<u32>(),
            native in any::<u32>(),
            fresh in any::<bool>(),
        ) {
            let counts = counts(header, native, fresh);
            let attempts = limit.attempts(counts);
            prop_assert!(attempts >= header);
            if let NextStart::Start(start) = limit.next_start(counts) {
                prop_assert!(limit.cap.is_none_or(|cap| start.attempt <= cap));
            } else {
                prop_assert!(limit.cap.is_some_and(|cap| attempts >= cap));
            }
            limit.orphan_lane(counts);
        }
    }
}
