//! How a component is run.

use std::num::NonZeroU32;

use crate::config::choices::{CompileCache, Recording};
use crate::config::collect::Collected;
use crate::config::program::complete;
use crate::config::settings::{dead_letters, grants, handler, limits, program, queue};
use crate::delivery::effect::EffectLimits;
use crate::grants::publish::rules::outlets;
use crate::grants::secrets::rules::SecretSource;
use crate::grants::{Grants, Providers, Rules};
use crate::runtime::Batching;
use crate::sandbox;
use crate::values::ByteSize;

/// The bodies of a batch may take this part of the memory of an instance: a handler needs the rest.
const BATCH_MEMORY_SHARE: usize = 8;

impl Collected {
    /// How the component is run. A setting that is among the problems has its default.
    pub(super) fn sandbox_settings(&mut self) -> sandbox::Settings {
        let providers = self.check_providers();
        self.settings_with(providers.as_ref())
    }

    /// What is granted outside the sandbox. Headers name secrets that are granted, too.
    pub(super) fn check_providers(&mut self) -> Option<Providers> {
        let http = self.value(&grants::HTTP).unwrap_or_default();
        let mut secrets = self.value(&grants::SECRETS).unwrap_or_default();
        for secret in &mut secrets {
            if let SecretSource::Variable(name, value) = &mut secret.source {
                *value = self.secret_variable(name);
            }
        }
        for rule in &http {
            for (header, template) in rule.added() {
                for name in template.secrets() {
                    if secrets.iter().all(|secret| secret.name != name) {
                        let rule = &*rule.name;
                        let what = format!(
                            "the header `{header}` of the rule `{rule}` names the secret `{name}`, which \
                             is not in `[grant.secret]`"
                        );
                        let hint =
                            format!("write `{name} = {{ file = \"...\" }}` in `[grant.secret]`");
                        self.conflict(Some(&grants::HTTP), what, hint);
                    }
                }
            }
        }
        let rules = Rules {
            http,
            tcp: self.value(&grants::TCP).unwrap_or_default(),
            secrets,
            keys: self.source(&grants::KEY_VALUE).is_some(),
            group: self.value(&queue::GROUP),
        };
        (!rules.is_empty()).then(|| Providers::new(rules))
    }

    /// How the component is run, with these grants outside the sandbox.
    ///
    /// # Panics
    /// Never: a test reads all defaults.
    pub(super) fn settings_with(&self, providers: Option<&Providers>) -> sandbox::Settings {
        let size = |setting| self.or_default::<ByteSize>(setting);
        let count = |setting| {
            let count = self.or_default::<NonZeroU32>(setting).get();
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        let recording: Recording = self.or_default(&dead_letters::RECORDING);
        sandbox::Settings {
            limits: sandbox::Limits {
                wall: self.or_default(&handler::TIMEOUT),
                cpu: self.or_default(&handler::CPU),
                memory: size(&handler::MEMORY).as_usize(),
                table_elements: count(&limits::TABLE_ELEMENTS),
                stack: size(&limits::STACK).as_usize(),
                transfer: size(&limits::TRANSFER).as_usize(),
                outcome_text: size(&limits::OUTCOME_TEXT).as_usize(),
                handles: count(&limits::HANDLES),
                requests: count(&limits::REQUESTS),
                random: size(&limits::RANDOM).0,
                log_attempt: size(&limits::LOG_ATTEMPT).as_usize(),
                log_line: size(&limits::LOG_LINE).as_usize(),
                log_rate: size(&limits::LOG_RATE).as_usize(),
                log_tail: size(&dead_letters::LOG).as_usize(),
                component: size(&limits::COMPONENT).0,
                compile_time: self.or_default(&limits::COMPILE_TIME),
                compile_memory: size(&limits::COMPILE_MEMORY).0,
                effects: EffectLimits {
                    count: count(&grants::PUBLISH_MESSAGES),
                    bytes: size(&grants::PUBLISH_BYTES).as_usize(),
                    host_bytes: size(&grants::PUBLISH_PENDING).as_usize(),
                    hops: NonZeroU32::get(self.or_default(&grants::PUBLISH_HOPS)).into(),
                    follow_ups: NonZeroU32::get(self.or_default(&grants::PUBLISH_FOLLOW_UPS))
                        .into(),
                },
            },
            concurrency: count(&handler::CONCURRENCY),
            reuse: self.or_default(&handler::REUSE).get(),
            reuse_memory: self.value(&handler::REUSE_MEMORY).map(ByteSize::as_usize),
            reuse_idle: self.or_default(&handler::REUSE_IDLE),
            grants: Grants {
                config: self.value(&grants::CONFIG),
                publish: self.value(&grants::PUBLISH).as_ref().map(outlets),
                key_value: self.value(&grants::KEY_VALUE),
                journal: self.value(&grants::JOURNAL),
                files: self.value(&grants::FILES).unwrap_or_default(),
                provided: providers.map(Providers::provided).unwrap_or_default(),
            },
            holds: (!self.is_at_most_once()).then(|| self.hold_limits()),
            record_calls: recording != Recording::Off,
            record_answers: recording == Recording::Full,
            program: self.program(),
            snapshot: self.or_default(&handler::SNAPSHOT),
            cache: self.compile_cache(),
            ..sandbox::Settings::default()
        }
    }

    /// How a program is called.
    fn program(&self) -> sandbox::Program {
        sandbox::Program {
            args: self.or_default(&program::ARGS),
            exit_codes: complete(self.or_default(&program::EXIT_CODES)),
            stdout: self.or_default(&program::STDOUT),
        }
    }

    /// The most messages in one call of a handler of batches.
    pub fn batch_size(&self) -> usize {
        self.or_default(&handler::BATCH_SIZE).get() as usize
    }

    /// How messages are gathered for a handler of batches.
    pub(super) fn batching(&self) -> Batching {
        let memory = self.or_default::<ByteSize>(&handler::MEMORY).as_usize();
        Batching {
            size: self.batch_size(),
            wait: self.or_default(&handler::BATCH_WAIT),
            bytes: memory / BATCH_MEMORY_SHARE,
        }
    }

    fn compile_cache(&self) -> Option<sandbox::Cache> {
        let dir = match self.value(&handler::COMPILE_CACHE) {
            Some(CompileCache::Off) => return None,
            Some(CompileCache::Dir(dir)) => dir,
            None => self.user_cache.as_ref()?.join("hostler"),
        };
        Some(sandbox::Cache {
            dir,
            max_bytes: self.or_default::<ByteSize>(&handler::COMPILE_CACHE_MAX).0,
        })
    }
}
