//! What would lose messages although nobody said that they may be lost.

use crate::config::QueueKind;
use crate::config::choices::RouteTable;
use crate::config::collect::Collected;
use crate::config::setting::Setting;
use crate::config::settings::{dead_letters, failures, queue};
use crate::config::value::Value;
use crate::delivery::policy::{OnFault, Reason};
use crate::wire::list::Framing;
use crate::wire::stream::MissingBody;

impl Collected {
    /// Without a dead-letter queue a setting gives up only what may be lost on purpose. Whether
    /// bodies must parse is known by who has read the codec.
    ///
    /// What is turned away by default (too large, malformed whatever the settings are) is discarded,
    /// with a warning.
    pub(super) fn check_losses(&mut self, queue: Option<&QueueKind>, bodies_must_parse: bool) {
        let forgets = queue.is_some_and(QueueKind::is_at_most_once);
        if forgets || self.source(&dead_letters::DEAD_LETTER_KEY).is_some() {
            return;
        }
        let source = self.source(&dead_letters::DEAD_LETTER_ROUTES).cloned();
        let routes = self.value(&dead_letters::DEAD_LETTER_ROUTES);
        if routes.is_none() && source.is_some() {
            // What cannot be read may hold what seems to be missing.
            return;
        }
        let routes = routes.unwrap_or_default();
        if let Some((reason, key)) = routes.first_key() {
            let what = format!(
                "`dead_letter.routes` has a key (`{reason}={key}`), but `dead_letter.key` is not \
                 set: where should everything else go?"
            );
            let hint = "give `--dead-letter KEY` as well; without it a route can only be `discard`";
            self.conflict(source.as_ref(), what, hint.to_owned());
        }
        if self.or_default(&failures::ON_FAULT) == OnFault::DeadLetter {
            let faults = [Reason::Trap, Reason::Timeout, Reason::MemoryLimit];
            self.may_not_lose(&failures::ON_FAULT, &faults, &routes);
        }
        if bodies_must_parse {
            self.may_not_lose(&queue::CODEC, &[Reason::DecodeFailed], &routes);
        }
        if self.or_default(&queue::MISSING_BODY) == MissingBody::Malformed {
            self.may_not_lose(&queue::MISSING_BODY, &[Reason::Malformed], &routes);
        }
        if self.source(&queue::STREAM).is_none()
            && matches!(self.check_framing(), Framing::Frame | Framing::Json)
        {
            // `codec = "json"` alone says it as well.
            match self.source(&queue::FRAMING) {
                Some(_) => self.may_not_lose(&queue::FRAMING, &[Reason::Malformed], &routes),
                None => self.may_not_lose(&queue::CODEC, &[Reason::Malformed], &routes),
            }
        }
        self.may_not_lose(&queue::REQUIRE_HEADERS, &[Reason::Malformed], &routes);
        self.may_not_lose(&queue::TTL, &[Reason::Expired], &routes);
        self.may_not_lose(&queue::MAX_LENGTH, &[Reason::MaxLen], &routes);
    }

    /// A setting that gives messages up for these reasons.
    fn may_not_lose<T: Value>(
        &mut self,
        setting: &'static Setting<T>,
        reasons: &[Reason],
        routes: &RouteTable,
    ) {
        let Some(source) = self.source(setting).cloned() else {
            return;
        };
        let lost: Vec<&str> = reasons
            .iter()
            .copied()
            .filter(|reason| !routes.0.contains_key(reason))
            .map(Reason::label)
            .collect();
        if lost.is_empty() {
            return;
        }
        let what = format!(
            "`{}` needs `dead_letter.key`: what it gives up (`{}`) would be lost",
            setting.key(),
            lost.join("`, `")
        );
        let on_purpose: Vec<String> = lost.iter().map(|r| format!("{r}=discard")).collect();
        let hint = format!(
            "give `--dead-letter KEY`, or `--dead-letter-routes {}` to lose it on purpose",
            on_purpose.join(",")
        );
        self.conflict(Some(&source), what, hint);
    }
}
