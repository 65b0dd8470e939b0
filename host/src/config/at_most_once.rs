//! What queues cannot do that forget what they hand out.

use crate::config::collect::Collected;
use crate::config::setting::Setting;
use crate::config::settings::{failures, queue};
use crate::config::value::Value;

impl Collected {
    /// Everything set that needs a queue which keeps what it hands out.
    pub(super) fn at_most_once(&mut self) {
        let needs_a_copy = |key: &str| {
            let settings = [
                failures::MAX_DELIVERIES.key(),
                failures::ON_CAP.key(),
                failures::ON_FAULT.key(),
                queue::MIN_IDLE.key(),
                queue::ORPHAN_SCAN.key(),
                queue::PARKED_SCAN.key(),
                queue::ATTEMPT_ACCOUNTING.key(),
                queue::MAX_LENGTH.key(),
            ];
            settings.contains(&key)
                || key.starts_with("dead_letter.")
                || key.starts_with("backoff.")
        };
        self.not_on_simple_lists();
        for (key, source) in self.given_where(needs_a_copy) {
            let what = format!(
                "`{key}` cannot be honoured: this queue forgets a message when it hands it out, so \
                 that nothing can be tried again, put off or dead-lettered"
            );
            let hint = "read a `stream`, or a `list` with `reliable`".to_owned();
            self.conflict(Some(&source), what, hint);
        }
    }

    /// A time to live counts from when a message was enqueued.
    fn not_on_simple_lists(&mut self) {
        if let (Some(source), Some(_)) =
            (self.source(&queue::TTL).cloned(), self.source(&queue::LIST))
        {
            let what = format!(
                "`{}` cannot be honoured: nobody knows when a value of a simple list was pushed",
                queue::TTL.key()
            );
            let hint = "let producers write the header `x-expires-at` (`hostler publish \
                        --expires-in`), or set `reliable`";
            self.conflict(Some(&source), what, hint.to_owned());
        }
    }

    /// A setting of the buffer between a subscription and its host.
    pub(super) fn only_subscribed<T: Value>(&mut self, setting: &'static Setting<T>) {
        if let Some(source) = self.source(setting).cloned() {
            let what = format!(
                "`{}` means nothing here: only what is published to a channel has to be buffered",
                setting.key()
            );
            let hint = "leave it out; `prefetch` says how far a host reads ahead".to_owned();
            self.conflict(Some(&source), what, hint);
        }
    }
}
