//! From a configuration to the settings of the queue and of the loop.

use std::sync::Arc;

use crate::config::Config;
use crate::delivery::ledger;
use crate::queue::kind::QueueOptions;
use crate::queue::limits::{Allows, Limit, limited};
use crate::runtime::{self, Rules, UntilEmpty, gate};
use crate::telemetry::limited::LimitShown;

/// The queue of this configuration.
pub fn queue_options(config: &Config) -> QueueOptions {
    let consumer = config.consumer.clone().unwrap_or_else(host_name);
    config.queue_options(&consumer)
}

/// The settings of the loop.
pub fn loop_settings(config: &Config) -> runtime::Settings {
    let defaults = runtime::Settings::new(config.policy.clone());
    runtime::Settings {
        ledger: ledger::Settings {
            paused: config.paused,
            checked_acks: !config.outlets.is_empty()
                || config.sandbox.grants.key_value.is_some()
                || config.dedup.is_some()
                || config.journal.is_some(),
            concurrency: config.sandbox.concurrency,
            prefetch_max: config.prefetch.get() as usize,
            min_idle: config.min_idle,
            orphan_scan: config.orphan_scan,
            due_scan: config.parked_scan,
            ..defaults.ledger
        },
        gate: gate::Limits {
            payload_max: config.max_payload.as_usize(),
            group: config.queue.group().map(Arc::from),
            ttl: config.ttl,
            codec: config.codec,
            required: config.require_headers.0.clone(),
            answers: !config.queue.is_at_most_once(),
        },
        drain_timeout: config.process.drain_timeout,
        until_empty: config.process.until_empty.then_some(UntilEmpty {
            timeout: config.process.until_empty_timeout,
        }),
        canary: config.swap.canary.map(|(_, rule)| rule),
        kept_after: config.swap.window,
        breaker: config.swap.breaker,
        on_break: config.swap.on_break,
        journals: config.journal.is_some(),
        limited: limited(&config.limits),
    }
}

/// The rules that may change under the running host.
pub fn live_rules(config: &Config, options: &QueueOptions) -> Rules {
    Rules {
        policy: config.policy.clone(),
        ttl: config.ttl,
        queue: options.rules(),
        paused: config.paused,
    }
}

/// A limit, as it is shown.
pub fn shown(limit: &Limit) -> LimitShown {
    let (pace, concurrency) = match limit.allows {
        Allows::Starts(pace) => (Some(pace), None),
        Allows::Attempts(most) => (None, Some(most)),
    };
    LimitShown {
        name: limit.name.to_string(),
        rate: pace.map(|pace| pace.rate.to_string()),
        burst: pace.map(|pace| pace.burst),
        concurrency,
        by: limit.by.as_ref().map(ToString::to_string),
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "hostler".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Collected, Input};
    use crate::queue::list::ListOptions;
    use crate::queue::pubsub::PubSubOptions;
    use crate::queue::simple_list::SimpleListOptions;
    use crate::queue::stream::StreamOptions;

    fn config(queue: &[(&'static str, &str)]) -> Config {
        let flags = [("redis", "redis://db"), ("handler", "h.wasm")];
        let flags = flags.iter().chain(queue);
        let input = Input {
            flags: flags
                .map(|(key, text)| (*key, (*text).to_owned()))
                .collect(),
            ..Input::default()
        };
        Collected::new(input).config().unwrap().value
    }

    #[test]
    fn documented_defaults_are_the_defaults_of_the_loop() {
        let config = config(&[("stream", "orders"), ("group", "g")]);
        let mut defaults = runtime::Settings::new(config.policy.clone());
        // The group has no default.
        let settings = loop_settings(&config);
        defaults.gate.group.clone_from(&settings.gate.group);
        assert_eq!(format!("{settings:?}"), format!("{defaults:?}"));
    }

    #[test]
    fn documented_defaults_are_the_defaults_of_the_queue() {
        let consumer = host_name();
        let stream = QueueOptions::Stream(StreamOptions {
            consumer: consumer.clone(),
            ..StreamOptions::new("orders", "g")
        });
        let list = QueueOptions::List(ListOptions {
            consumer: consumer.clone(),
            ..ListOptions::new("jobs")
        });
        let simple_list = QueueOptions::SimpleList(SimpleListOptions {
            consumer: consumer.clone(),
            ..SimpleListOptions::new("jobs")
        });
        let channel = QueueOptions::PubSub(PubSubOptions {
            consumer,
            ..PubSubOptions::new("news")
        });
        for (queue, expected) in [
            (&[("stream", "orders"), ("group", "g")][..], stream),
            (&[("list", "jobs"), ("reliable", "true")], list),
            (&[("list", "jobs")], simple_list),
            (&[("channel", "news")], channel),
        ] {
            let options = queue_options(&config(queue));
            assert_eq!(format!("{options:?}"), format!("{expected:?}"));
        }
    }

    #[test]
    fn the_machine_has_a_name() {
        assert!(!host_name().is_empty());
    }
}
