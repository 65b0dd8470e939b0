//! Keeps the queue of this host in the list of all queues.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use crate::config::Config;
use crate::redis::Class;
use crate::redis::connection::Link;
use crate::registry::{self, DEAD_LETTER, Listed};
use crate::telemetry::status::Status;

/// How often a host says that it serves its queue.
const LIST_EVERY: Duration = Duration::from_secs(15);
/// How many times it leaves that out when Redis has refused it.
const REFUSED_PAUSE: u32 = 40;

/// List the queue of this configuration again and again, for as long as the threads of attempts run.
pub(super) fn keep_listed(
    link: Link,
    config: &Config,
    status: Status,
) -> impl Future<Output = ()> + Send + use<> {
    let mut queue = Listed::new(config.queue.name(), &config.queue.place());
    async move {
        let mut ticks = interval(LIST_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pause = 0;
        loop {
            ticks.tick().await;
            if pause > 0 {
                pause -= 1;
                continue;
            }
            let rules = status.shown().rules;
            let rule = rules.into_iter().find(|rule| rule.setting == DEAD_LETTER);
            queue.dead_letter = rule.and_then(|rule| rule.value);
            if let Err(error) = registry::register(&link, &queue).await {
                // The user may lack the right: the queue is served all the same. A Redis that is away is
                // reported by the loop.
                debug!(%error, "could not list this queue");
                if error.class() == Class::Configuration {
                    pause = REFUSED_PAUSE;
                }
            }
        }
    }
}
