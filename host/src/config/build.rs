//! The configurations that commands go by: checked values, or all problems.

use crate::config::collect::Collected;
use crate::config::problem::{Error, Problem, ProblemKind};
use crate::config::settings::{development, failures, handler, queue};
use crate::config::{
    Bench, Config, DeadLetter, Destination, Development, Loaded, QueueKind, Redis, Trying,
};
use crate::sandbox;
use crate::wire::stream;

impl Collected {
    /// The whole configuration, for `run`.
    ///
    /// # Errors
    /// Every problem: of single values, and of all of them together.
    pub fn config(mut self) -> Result<Loaded<Config>, Error> {
        let redis = self.check_redis();
        let queue = self.check_queue();
        let codec = self.check_codec();
        let handler = self.check_handler();
        let dead_letter = self.check_dead_letter(queue.as_ref());
        let policy = self.check_policy(queue.as_ref(), dead_letter.as_ref());
        self.check_losses(queue.as_ref(), codec.is_some());
        let process = self.process();
        let config = match (redis, queue, handler) {
            (Some(redis), Some(queue), Some(handler)) if self.problems.is_empty() => Config {
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
                swap: self.swap(handler.digest.as_ref()),
                handler,
                sandbox: self.sandbox_settings(),
                batching: self.batching(),
                policy,
                dead_letter,
                max_payload: self.or_default(&handler::MAX_PAYLOAD),
                prefetch: self.or_default(&handler::PREFETCH),
                process,
                development: Development {
                    build: self.value(&development::BUILD),
                    watch: self.or_default(&development::WATCH),
                },
            },
            _ => return Err(self.error()),
        };
        Ok(Loaded {
            value: config,
            warnings: self.warnings,
        })
    }

    /// Only how to reach Redis: for the commands that look at queues. Values of other settings
    /// that cannot be read are told as well.
    ///
    /// # Errors
    /// Every problem.
    pub fn redis(mut self) -> Result<Loaded<Redis>, Error> {
        match self.check_redis() {
            Some(redis) if self.problems.is_empty() => Ok(Loaded {
                value: redis,
                warnings: self.warnings,
            }),
            _ => Err(self.error()),
        }
    }

    /// How to reach Redis, and how components are run.
    ///
    /// # Errors
    /// Every problem.
    pub fn redis_and_sandbox(mut self) -> Result<Loaded<(Redis, sandbox::Settings)>, Error> {
        match self.check_redis() {
            Some(redis) if self.problems.is_empty() => Ok(Loaded {
                value: (redis, self.sandbox_settings()),
                warnings: self.warnings,
            }),
            _ => Err(self.error()),
        }
    }

    /// How to reach Redis, and which queue is meant.
    ///
    /// # Errors
    /// Every problem.
    pub fn redis_and_queue(
        mut self,
    ) -> Result<Loaded<(Redis, QueueKind, Option<DeadLetter>)>, Error> {
        let redis = self.check_redis();
        let queue = self.check_queue();
        let dead_letter = self.check_dead_letter(queue.as_ref());
        if queue.as_ref().is_some_and(QueueKind::is_at_most_once) {
            self.at_most_once();
        }
        match (redis, queue) {
            (Some(redis), Some(queue)) if self.problems.is_empty() => Ok(Loaded {
                value: (redis, queue, dead_letter),
                warnings: self.warnings,
            }),
            _ => Err(self.error()),
        }
    }

    /// How to reach Redis, and where messages go.
    ///
    /// # Errors
    /// Every problem.
    pub fn redis_and_destination(mut self) -> Result<Loaded<(Redis, Destination)>, Error> {
        let redis = self.check_redis();
        let destination = self.check_destination();
        match (redis, destination) {
            (Some(redis), Some(destination)) if self.problems.is_empty() => Ok(Loaded {
                value: (redis, destination),
                warnings: self.warnings,
            }),
            _ => Err(self.error()),
        }
    }

    /// What a benchmark goes by.
    ///
    /// # Errors
    /// Every problem.
    pub fn bench(mut self) -> Result<Loaded<Bench>, Error> {
        let redis = self.check_redis();
        let handler = self.check_handler();
        match (redis, handler) {
            (Some(redis), Some(handler)) if self.problems.is_empty() => Ok(Loaded {
                value: Bench {
                    redis,
                    handler,
                    sandbox: self.sandbox_settings(),
                    batching: self.batching(),
                    prefetch: self.or_default(&handler::PREFETCH),
                },
                warnings: self.warnings,
            }),
            _ => Err(self.error()),
        }
    }

    /// How to reach Redis, and how a component is tried on dead letters.
    ///
    /// # Errors
    /// Every problem.
    pub fn trying(self) -> Result<Loaded<(Redis, Trying)>, Error> {
        let trying = Trying {
            sandbox: self.sandbox_settings(),
            max_payload: self.or_default(&handler::MAX_PAYLOAD),
            max_attempts: self.value(&failures::MAX_DELIVERIES).map_or(0, Into::into),
            reading: stream::Options {
                body_field: self.or_default(&queue::BODY_FIELD).into(),
                missing_body: self.or_default(&queue::MISSING_BODY),
            },
        };
        let Loaded { value, warnings } = self.redis()?;
        Ok(Loaded {
            value: (value, trying),
            warnings,
        })
    }

    /// Whether the rules that may change under a host are right, for this queue.
    ///
    /// # Errors
    /// Every problem.
    pub fn rules(mut self, queue: &QueueKind) -> Result<Option<DeadLetter>, Error> {
        let dead_letter = self.check_dead_letter(Some(queue));
        self.check_policy(Some(queue), dead_letter.as_ref());
        if self.problems.is_empty() {
            Ok(dead_letter)
        } else {
            Err(self.error())
        }
    }

    /// Whether policies are right by themselves, for a queue of this kind if it is known. What a
    /// host has of its own is not: it may make them wrong, and then that host ignores them.
    ///
    /// # Errors
    /// Every problem.
    pub fn policies_alone(mut self, queue: Option<&QueueKind>) -> Result<(), Error> {
        self.is_partial = true;
        let dead_letter = self.check_dead_letter(queue);
        self.check_policy(queue, dead_letter.as_ref());
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    /// Only how components are run.
    ///
    /// # Errors
    /// Every value that cannot be read.
    pub fn sandbox(self) -> Result<sandbox::Settings, Error> {
        if self.problems.is_empty() {
            Ok(self.sandbox_settings())
        } else {
            Err(self.error())
        }
    }

    fn error(mut self) -> Error {
        // What cannot be read may hold what seems to be missing.
        let is_unread = |p: &Problem| {
            matches!(
                p.kind,
                ProblemKind::Unreadable { .. } | ProblemKind::Syntax { .. }
            )
        };
        if self.problems.iter().any(is_unread) {
            self.problems
                .retain(|p| p.source.is_some() || !matches!(p.kind, ProblemKind::Conflict(_)));
        }
        Error {
            problems: self.problems,
        }
    }
}
