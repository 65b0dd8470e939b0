//! The configuration that each command needs: checked values, or all problems.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::config::collect::Collected;
use crate::config::problem::{Error, Problem, ProblemKind};
use crate::config::settings::{development, failures, grants, handler, queue, reply};
use crate::config::{Bench, Config, DeadLetter, Development, Loaded, QueueKind, Redis, Trying};
use crate::grants::Providers;
use crate::outgoing::outbox;
use crate::publish::Destination;
use crate::sandbox;
use crate::wire::stream;

/// Errors hold every problem: of single values, and of all of them together.
impl Collected {
    /// The whole configuration, for `run`.
    pub fn config(mut self) -> Result<Loaded<Config>, Error> {
        let redis = self.check_redis();
        let queue = self.check_queue();
        let codec = self.check_codec();
        let handler = self.check_handler();
        let dead_letter = self.check_dead_letter(queue.as_ref());
        let policy = self.check_policy(queue.as_ref(), dead_letter.as_ref());
        self.check_data_loss(queue.as_ref());
        self.check_recordings(dead_letter.as_ref());
        self.check_publish(queue.as_ref(), dead_letter.as_ref());
        self.check_keys(queue.as_ref());
        let dedup = self.check_dedup(queue.as_ref());
        let journal = self.check_journal(queue.as_ref());
        let schedules = self.check_schedules(queue.as_ref());
        let process = self.check_process();
        let telemetry = self.check_telemetry();
        let providers = self.check_providers();
        let (Some(redis), Some(queue), Some(handler)) = (redis, queue, handler) else {
            return Err(self.error());
        };
        let config = Config {
            redis,
            queue,
            consumer: self.value(&queue::CONSUMER),
            min_idle: self.or_default(&queue::MIN_IDLE),
            orphan_scan: self.or_default(&queue::ORPHAN_SCAN),
            parked_scan: self.or_default(&queue::PARKED_SCAN),
            retention: self.or_default(&queue::RETENTION),
            body_field: self.or_default(&queue::BODY_FIELD),
            missing_body: self.or_default(&queue::MISSING_BODY),
            codec,
            require_headers: self.value(&queue::REQUIRE_HEADERS).unwrap_or_default(),
            ttl: self.value(&queue::TTL),
            max_length: self.value(&queue::MAX_LENGTH),
            paused: self.or_default(&queue::PAUSED),
            swap: self.swap(handler.digest.as_ref()),
            handler,
            sandbox: self.settings_with(providers.as_ref()),
            providers,
            batching: self.batching(),
            dedup,
            journal,
            schedules,
            limits: self.limits(),
            reply_keep: self.or_default(&reply::KEEP),
            outlets: Arc::new(self.value(&grants::PUBLISH).unwrap_or_default()),
            outbox: outbox::Rules {
                mode: self.or_default(&grants::PUBLISH_OUTBOX),
                max: NonZeroU64::get(self.or_default(&grants::PUBLISH_OUTBOX_MAX)),
            },
            policy,
            dead_letter,
            max_payload: self.or_default(&handler::MAX_PAYLOAD),
            prefetch: self.or_default(&handler::PREFETCH),
            process,
            telemetry,
            development: Development {
                build: self.value(&development::BUILD),
                folder: self.folder.clone().unwrap_or_else(|| ".".into()),
                watch: self.or_default(&development::WATCH),
            },
        };
        self.loaded(config)
    }

    /// How to reach Redis: for the commands that look at queues. Values of other settings that cannot be read
    /// are problems as well.
    pub fn redis(mut self) -> Result<Loaded<Redis>, Error> {
        let redis = self.check_redis();
        self.found(redis)
    }

    /// How to reach Redis, and how components are run.
    pub fn redis_and_sandbox(mut self) -> Result<Loaded<(Redis, sandbox::Settings)>, Error> {
        let redis = self.check_redis();
        let sandbox = self.sandbox_settings();
        self.found(redis.map(|redis| (redis, sandbox)))
    }

    /// How to reach Redis, and the queue with its dead-letter queue.
    pub fn redis_and_queue(
        mut self,
    ) -> Result<Loaded<(Redis, QueueKind, Option<DeadLetter>)>, Error> {
        let redis = self.check_redis();
        let queue = self.check_queue();
        let dead_letter = self.check_dead_letter(queue.as_ref());
        let found = redis.zip(queue);
        self.found(found.map(|(redis, queue)| (redis, queue, dead_letter)))
    }

    /// How to reach Redis, and where messages go.
    pub fn redis_and_destination(mut self) -> Result<Loaded<(Redis, Destination)>, Error> {
        let redis = self.check_redis();
        let destination = self.check_destination();
        self.found(redis.zip(destination))
    }

    /// The configuration of a benchmark.
    pub fn bench(mut self) -> Result<Loaded<Bench>, Error> {
        let redis = self.check_redis();
        let handler = self.check_handler();
        let sandbox = self.sandbox_settings();
        let bench = redis.zip(handler).map(|(redis, handler)| Bench {
            redis,
            handler,
            sandbox,
            batching: self.batching(),
            prefetch: self.or_default(&handler::PREFETCH),
        });
        self.found(bench)
    }

    /// How to reach Redis, and how a component is tried on dead letters.
    pub fn trying(mut self) -> Result<Loaded<(Redis, Trying)>, Error> {
        let redis = self.check_redis();
        let trying = Trying {
            sandbox: self.sandbox_settings(),
            max_payload: self.or_default(&handler::MAX_PAYLOAD),
            max_attempts: self.value(&failures::MAX_DELIVERIES).map_or(0, Into::into),
            reading: stream::Options {
                body_field: self.or_default(&queue::BODY_FIELD).into(),
                missing_body: self.or_default(&queue::MISSING_BODY),
            },
        };
        self.found(redis.map(|redis| (redis, trying)))
    }

    /// Checks the rules that may change while a host runs, for this queue.
    pub fn rules(mut self, queue: &QueueKind) -> Result<Option<DeadLetter>, Error> {
        let dead_letter = self.check_rules(Some(queue));
        self.loaded(dead_letter).map(|loaded| loaded.value)
    }

    /// Checks policies by themselves, for a queue of this kind if it is known. The other settings of a host are
    /// not known: if they contradict the policies, the host ignores the policies.
    pub fn policies_alone(mut self, queue: Option<&QueueKind>) -> Result<(), Error> {
        self.is_partial = true;
        self.check_rules(queue);
        self.loaded(()).map(|_| ())
    }

    /// How components are run.
    ///
    /// # Errors
    /// Every value that cannot be read.
    pub fn sandbox(self) -> Result<sandbox::Settings, Error> {
        self.sandbox_and_providers().map(|(sandbox, _)| sandbox)
    }

    /// The same, and what is granted outside the sandbox.
    ///
    /// # Errors
    /// Every value that cannot be read.
    pub fn sandbox_and_providers(
        mut self,
    ) -> Result<(sandbox::Settings, Option<Providers>), Error> {
        let providers = self.check_providers();
        let sandbox = self.settings_with(providers.as_ref());
        self.loaded((sandbox, providers)).map(|loaded| loaded.value)
    }

    /// This value, unless there are problems.
    fn loaded<T>(self, value: T) -> Result<Loaded<T>, Error> {
        self.found(Some(value))
    }

    /// This value, which is there unless there are problems.
    fn found<T>(self, value: Option<T>) -> Result<Loaded<T>, Error> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(Loaded {
                value,
                warnings: self.warnings,
            }),
            _ => Err(self.error()),
        }
    }

    fn error(self) -> Error {
        // A file that cannot be read may hold the settings that seem to be missing or to contradict others.
        use ProblemKind::{Conflict, Syntax, Unreadable};
        let is_unread = |p: &Problem| matches!(p.kind, Unreadable { .. } | Syntax { .. });
        let mut problems = self.problems;
        if problems.iter().any(is_unread) {
            problems.retain(|p| !matches!(p.kind, Conflict(_)));
        }
        Error { problems }
    }
}
