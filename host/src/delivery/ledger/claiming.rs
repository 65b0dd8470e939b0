//! A delivery has been claimed: hold it, replace an earlier holding, or send it on its way.

use std::time::Duration;

use super::{Action, Delivery, Ending, Held, Key, Ledger, Origin, State, Time, TurnedAway};
use crate::delivery::attempt::{Lane, Standing, Tally};
use crate::delivery::policy::Disposition;
use crate::delivery::rules::Rule;

impl<M> Ledger<M> {
    pub(super) fn accept_all(&mut self, now: Time, leased: Time, deliveries: Vec<Delivery<M>>) {
        for delivery in deliveries {
            self.accept(now, leased, delivery);
        }
    }

    /// A delivery has been claimed. Rule 4: if its id is held already, it replaces that holding,
    /// or waits for the end of what cannot be replaced; unless that holding is surely ours still:
    /// then the claim is the older one, and its answer comes late.
    pub(super) fn accept(&mut self, now: Time, leased: Time, delivery: Delivery<M>) {
        let min_idle = self.settings.min_idle;
        let Some(old) = self.held.get_mut(&delivery.id) else {
            self.hold(now, leased, delivery);
            return;
        };
        let is_with_us = match old.state {
            State::Waiting | State::Released | State::Recording { .. } | State::Running { .. } => {
                old.lost.is_none() && old.successor.is_none() && !old.doubtful
            }
            // We have sent it away, and it may have come back.
            State::Settling { .. } | State::Refused { .. } => false,
        };
        if is_with_us && now.saturating_sub(old.leased) < min_idle {
            self.generation += 1;
            self.out.push(Action::Ended {
                key: Key {
                    id: delivery.id,
                    generation: self.generation,
                },
                cargo: delivery.cargo,
                ending: Ending::Superseded,
            });
            return;
        }
        let key = Key {
            id: delivery.id,
            generation: old.generation,
        };
        let replaceable = match old.state {
            State::Waiting | State::Refused { .. } => true,
            State::Released => {
                self.out.push(Action::Revoke(key));
                false
            }
            State::Recording { .. } | State::Running { .. } | State::Settling { .. } => {
                !Rule::OneRunAtATime.holds()
            }
        };
        if replaceable {
            let delivery = delivery.again(old.tally.native, old.lane);
            self.end(key, Ending::Superseded);
            self.hold_again(now, leased, delivery);
        } else {
            old.successor = Some(Box::new((delivery, leased)));
        }
    }

    /// Hold what was claimed while it was held already. A settlement of the earlier holding may
    /// have come after that claim, and sent it away again.
    pub(super) fn hold_again(&mut self, now: Time, leased: Time, delivery: Delivery<M>) {
        let id = delivery.id;
        self.hold(now, leased, delivery);
        if let Some(held) = self.held.get_mut(&id) {
            held.doubtful = true;
        }
    }

    pub(super) fn hold(&mut self, now: Time, leased: Time, delivery: Delivery<M>) {
        let allowance = self.settings.policy.allowance;
        let fresh = delivery.origin == Origin::Fresh;
        let tally = Tally {
            header: delivery.header,
            native: delivery.native,
            fresh,
        };
        let lane = match delivery.origin {
            Origin::Orphan { .. } if Rule::SuspectsRunAlone.holds() => allowance.orphan_lane(tally),
            Origin::Fresh | Origin::Returned | Origin::Orphan { .. } => Lane::Normal,
        };
        self.generation += 1;
        let key = Key {
            id: delivery.id,
            generation: self.generation,
        };
        self.held.insert(
            delivery.id,
            Held {
                generation: self.generation,
                cargo: delivery.cargo,
                tally,
                before: if fresh { 0 } else { delivery.native },
                lane,
                state: State::Waiting,
                leased,
                doubtful: now.saturating_sub(leased) >= self.settings.min_idle / 2,
                lost: None,
                successor: None,
                was_refused: false,
            },
        );
        self.counts.waiting += 1;
        if let Some(turned_away) = delivery.turned_away {
            let disposition = match turned_away {
                TurnedAway::Rejected(reason, detail) => {
                    let attempts = allowance.attempts(tally);
                    self.settings.policy.turn_away(reason, detail, attempts)
                }
                TurnedAway::OtherGroup => Disposition::Acknowledge,
            };
            self.dispose(now, key, disposition);
        } else if let Standing::Exhausted { attempts } = allowance.standing(tally) {
            self.exhausted(now, key, attempts);
        } else if self.is_closing() || self.hands_back() && (self.is_halted() || self.is_tried()) {
            self.hand_back(key);
        } else {
            self.enqueue(key, lane);
        }
    }

    pub(super) fn enqueue(&mut self, key: Key, lane: Lane) {
        match lane {
            Lane::Normal => self.ready.push_back(key),
            Lane::Alone => self.alone.insert(self.alone_place(key), key),
        }
    }

    /// Those with the fewest charges run first: a message that kills its host time and again, and
    /// that no cap ends, comes behind every innocent that it has made a suspect.
    pub(super) fn alone_place(&self, key: Key) -> usize {
        let charges = |key| self.find(key).map_or(0, |held| held.tally.native);
        let own = charges(key);
        let more = |&other: &Key| charges(other) > own;
        self.alone.iter().position(more).unwrap_or(self.alone.len())
    }

    pub(super) fn exhausted(&mut self, now: Time, key: Key, attempts: u32) {
        let detail = "no start is left: its hosts died, or its retry-count header says so";
        let disposition = self.settings.policy.exhausted(attempts, detail.to_owned());
        self.dispose(now, key, disposition);
    }
}

impl<M> Delivery<M> {
    /// Claimed while it was held. The claim may be older than that holding, and its answer late:
    /// what this host has written down or suspects since counts too.
    pub(super) fn again(self, native: u32, lane: Lane) -> Self {
        let origin = match (lane, self.origin) {
            (Lane::Alone, Origin::Fresh | Origin::Returned) => Origin::Orphan {
                idle: Duration::ZERO,
            },
            (Lane::Normal, Origin::Fresh) => Origin::Returned,
            (_, origin) => origin,
        };
        let native = native.max(self.native);
        Self {
            native,
            origin,
            ..self
        }
    }
}
