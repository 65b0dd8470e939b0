//! Settings that could discard messages without explicit permission.

use crate::config::QueueKind;
use crate::config::choices::RouteTable;
use crate::config::collect::Collected;
use crate::config::setting::Definition;
use crate::config::settings::{self, dead_letters, queue};
use crate::delivery::policy::Reason;

impl Collected {
    /// Without a dead-letter queue, each reason for which a setting gives messages up needs a route to
    /// `discard`.
    ///
    /// Messages that every configuration turns away (too large, malformed) are discarded with a warning.
    pub(super) fn check_data_loss(&mut self, queue: Option<&QueueKind>) {
        let forgets = queue.is_some_and(QueueKind::is_at_most_once);
        if forgets || self.source(&dead_letters::DEAD_LETTER_KEY).is_some() {
            return;
        }
        let routes = self.value(&dead_letters::DEAD_LETTER_ROUTES);
        if routes.is_none() && self.source(&dead_letters::DEAD_LETTER_ROUTES).is_some() {
            // Routes that cannot be read may hold the missing one.
            return;
        }
        let routes = routes.unwrap_or_default();
        if let Some((reason, key)) = routes.first_key() {
            let what = format!(
                "`dead_letter.routes` has a key (`{reason}={key}`), but `dead_letter.key` is not \
                 set: other dead letters would have nowhere to go"
            );
            let hint = "give `--dead-letter KEY` as well; without it a route can only be `discard`";
            self.conflict(Some(&dead_letters::DEAD_LETTER_ROUTES), what, hint);
        }
        for setting in settings::all() {
            let reasons = match self.text(setting) {
                Some(_) if setting.key() == queue::CODEC.key() && self.reads_envelopes() => {
                    &[Reason::Malformed]
                }
                Some(text) => setting.losses(text),
                None => &[],
            };
            self.may_not_lose(setting, reasons, &routes);
        }
    }

    fn may_not_lose(
        &mut self,
        setting: &'static dyn Definition,
        reasons: &[Reason],
        routes: &RouteTable,
    ) {
        let lost: Vec<&str> = reasons
            .iter()
            .filter(|reason| !routes.0.contains_key(reason))
            .map(|reason| reason.label())
            .collect();
        if lost.is_empty() {
            return;
        }
        let what = format!(
            "`{}` needs `dead_letter.key`: it gives up messages (`{}`), and they would be lost",
            setting.key(),
            lost.join("`, `")
        );
        let on_purpose: Vec<String> = lost.iter().map(|r| format!("{r}=discard")).collect();
        let hint = format!(
            "give `--dead-letter KEY`, or `--dead-letter-routes {}` to lose them on purpose",
            on_purpose.join(",")
        );
        self.conflict(Some(setting), what, hint);
    }
}
