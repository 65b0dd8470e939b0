//! The rules of failing messages and dead letters: what does not go together, and what is missing.

use crate::config::collect::Collected;
use crate::config::settings::{dead_letters, failures, queue};
use crate::config::value::Value;
use crate::config::{DeadLetter, QueueKind};
use crate::delivery::attempt::DeliveryLimit;
use crate::delivery::backoff::Backoff;
use crate::delivery::policy::{DeadLetterRules, OnCap, Policy, Reason};
use crate::queue::dead_letter_queue::{OnFull, Routes};

impl Collected {
    pub(super) fn check_dead_letter(&mut self, queue: Option<&QueueKind>) -> Option<DeadLetter> {
        self.idle_without(
            &dead_letters::DEAD_LETTER_MAX_LEN,
            &dead_letters::DEAD_LETTER_KEY,
        );
        self.idle_without(
            &dead_letters::DEAD_LETTER_ON_FULL,
            &dead_letters::DEAD_LETTER_KEY,
        );
        self.idle_without(
            &dead_letters::DEAD_LETTER_CYCLE_KEY,
            &dead_letters::DEAD_LETTER_KEY,
        );
        let key = self.value(&dead_letters::DEAD_LETTER_KEY)?;
        let routes = self.routes(queue);
        let source = self.source(&dead_letters::DEAD_LETTER_KEY).cloned();
        if queue.is_some_and(|queue| **queue.name() == *key) {
            let what = format!("`dead_letter.key` is the queue itself (`{key}`)");
            let hint = format!("give another key, such as `{key}:dead`");
            self.conflict(source.as_ref(), what, hint);
        }
        Some(DeadLetter {
            key: key.into(),
            routes,
            max_len: self.or_default(&dead_letters::DEAD_LETTER_MAX_LEN),
            on_full: self.or_default(&dead_letters::DEAD_LETTER_ON_FULL),
        })
    }

    fn routes(&mut self, queue: Option<&QueueKind>) -> Routes {
        let table = self.value(&dead_letters::DEAD_LETTER_ROUTES);
        let table = table.unwrap_or_default();
        let cycle = self.value(&dead_letters::DEAD_LETTER_CYCLE_KEY);
        if queue.is_some_and(|queue| cycle.as_deref() == Some(&**queue.name())) {
            let source = self.source(&dead_letters::DEAD_LETTER_CYCLE_KEY).cloned();
            let what = "`dead_letter.cycle_key` is the queue itself: the cycle would go on";
            let hint = "give another key, or leave it out".to_owned();
            self.conflict(source.as_ref(), what.to_owned(), hint);
        }
        Routes {
            discarded: table.discarded(),
            by_reason: table
                .0
                .into_iter()
                .filter_map(|(reason, key)| Some((reason, key?)))
                .collect(),
            cycle,
        }
    }

    pub(super) fn check_policy(
        &mut self,
        queue: Option<&QueueKind>,
        dead_letter: Option<&DeadLetter>,
    ) -> Policy {
        let cap = self.value(&failures::MAX_DELIVERIES);
        let on_cap = self.or_default(&failures::ON_CAP);
        self.idle_without(&failures::ON_CAP, &failures::MAX_DELIVERIES);
        let source = self.source(&failures::MAX_DELIVERIES).cloned();
        let dead_letter_given = self.source(&dead_letters::DEAD_LETTER_KEY).is_some();
        let routes = self.value(&dead_letters::DEAD_LETTER_ROUTES);
        let discarded = routes.unwrap_or_default().discarded();
        if queue.is_some_and(QueueKind::is_at_most_once) {
            self.at_most_once();
        } else if cap.is_some()
            && on_cap == OnCap::DeadLetter
            && !dead_letter_given
            && !discarded.contains(Reason::MaxDeliveries)
            && !self.is_partial
        {
            let what = "`max_deliveries` needs `dead_letter.key`: where should the message go?";
            let hint = "give `--dead-letter KEY`, or `--on-cap discard` to lose it on purpose";
            self.conflict(source.as_ref(), what.to_owned(), hint.to_owned());
        }
        let backoff = Backoff {
            first: self.or_default(&failures::BACKOFF_FIRST),
            factor: self.or_default(&failures::BACKOFF_FACTOR),
            max: self.or_default(&failures::BACKOFF_MAX),
            jitter: self.or_default(&failures::BACKOFF_JITTER),
        };
        if backoff.first > backoff.max {
            let given = self
                .source(&failures::BACKOFF_FIRST)
                .or(self.source(&failures::BACKOFF_MAX));
            let source = given.cloned();
            let what = format!(
                "`backoff.first` ({}) is more than `backoff.max` ({})",
                backoff.first.show(),
                backoff.max.show()
            );
            self.conflict(
                source.as_ref(),
                what,
                "the first wait is the shortest".to_owned(),
            );
        }
        Policy {
            limit: DeliveryLimit {
                cap: cap.map(Into::into),
                accounting: self.or_default(&queue::ATTEMPT_ACCOUNTING),
                at_most_once: false,
            },
            on_cap,
            on_fault: self.or_default(&failures::ON_FAULT),
            has_dead_letter: dead_letter.is_some(),
            dead_letters: DeadLetterRules {
                discarded,
                stop_when_refused: dead_letter.is_some_and(|d| d.on_full == OnFull::Stop),
            },
            backoff,
        }
    }
}
