//! What does not go together, and what is missing: one check per group of settings.

use std::num::NonZeroU32;

use crate::config::choices::{BreakAt, Codec, Digest};
use crate::config::collect::Collected;
use crate::config::problem::{Problem, ProblemKind};
use crate::config::setting::Setting;
use crate::config::settings::{self, handler, process, queue};
use crate::config::value::Value;
use crate::config::{Handler, Process, QueueKind, Swap};
use crate::queue::pubsub::Buffer;
use crate::rollout::breaker;
use crate::rollout::canary::{self, Share};
use crate::rollout::verify;
use crate::wire::codec::BodyCodec;
use crate::wire::list::Framing;

impl Collected {
    pub(super) fn check_queue(&mut self) -> Option<QueueKind> {
        let set = self.queues_set();
        if set.len() != 1 {
            let what = if set.is_empty() {
                "no queue is set".to_owned()
            } else {
                format!("more than one queue is set: `{}`", set.join("`, `"))
            };
            let hint = "give exactly one of `stream` (with `group`), `list`, `channel`, `pattern` and `sharded_channel`";
            self.conflict(None, what, hint.to_owned());
        }
        self.only_with(&queue::GROUP, &queue::STREAM);
        self.only_with(&queue::GROUP_START, &queue::STREAM);
        self.only_with(&queue::RETENTION, &queue::STREAM);
        self.only_with(&queue::RELIABLE, &queue::LIST);
        self.only_with(&queue::RECOVERY_ZSET, &queue::LIST);
        self.only_with(&queue::RECOVERY_TTL, &queue::RECOVERY_ZSET);
        if set.len() == 1 && self.channel().is_none() {
            self.only_subscribed(&queue::BUFFER);
            self.only_subscribed(&queue::BUFFER_MEMORY);
            self.only_subscribed(&queue::ON_OVERFLOW);
        }
        self.check_form();
        let group = self.value(&queue::GROUP);
        if set == ["stream"] && self.source(&queue::GROUP).is_none() {
            let hint = "give `--group NAME`: hosts with the same group share the stream";
            self.conflict(None, "`stream` needs `group`".to_owned(), hint.to_owned());
        }
        if set.len() != 1 {
            return None;
        }
        if let Some(key) = self.value(&queue::STREAM) {
            return Some(QueueKind::Stream {
                key: key.into(),
                group: group?.into(),
                start: self.or_default(&queue::GROUP_START),
            });
        }
        if let Some(key) = self.value(&queue::LIST) {
            return Some(QueueKind::List {
                reliable: self.check_reliable(&key),
                framing: self.check_framing(),
                key: key.into(),
            });
        }
        let (name, subscription) = self.channel()?;
        Some(QueueKind::Channel {
            name: name.into(),
            subscription,
            framing: self.check_framing(),
            buffer: Buffer {
                messages: self.or_default::<NonZeroU32>(&queue::BUFFER).get() as usize,
                bytes: self.or_default(&queue::BUFFER_MEMORY).as_usize(),
                on_overflow: self.or_default(&queue::ON_OVERFLOW),
            },
        })
    }

    /// Streams have fields, all other queues have values.
    pub(super) fn check_form(&mut self) {
        if self.source(&queue::STREAM).is_some() {
            self.not_on_streams(&queue::FRAMING);
        } else if self.queues_set().len() == 1 {
            self.only_on_streams(&queue::BODY_FIELD);
            self.only_on_streams(&queue::MISSING_BODY);
        }
    }

    /// How values are read: `codec = "json"` alone says it for both directions.
    pub(super) fn check_framing(&self) -> Framing {
        match self.value(&queue::CODEC) {
            Some(Codec::Json) if self.source(&queue::FRAMING).is_none() => Framing::Json,
            _ => self.or_default(&queue::FRAMING),
        }
    }

    /// What every body must parse as.
    pub(super) fn check_codec(&mut self) -> Option<BodyCodec> {
        let is_stream = self.source(&queue::STREAM).is_some();
        let is_form = !is_stream && self.source(&queue::FRAMING).is_none();
        let codec = self.value(&queue::CODEC)?;
        if is_stream && codec == Codec::Frame {
            self.not_on_streams(&queue::CODEC);
        }
        if let framing @ (Framing::Raw | Framing::Json) = self.or_default(&queue::FRAMING)
            && codec == Codec::Frame
            && !is_stream
        {
            let source = self.source(&queue::CODEC).cloned();
            let what = format!(
                "`codec` `frame` contradicts `framing` `{}`: it would be ignored",
                framing.show()
            );
            self.conflict(source.as_ref(), what, "keep one of them".to_owned());
        }
        match codec {
            Codec::Frame => None,
            Codec::Json if is_form => None,
            Codec::Json => Some(BodyCodec::Json),
            Codec::MsgPack => Some(BodyCodec::MsgPack),
            Codec::Utf8 => Some(BodyCodec::Utf8),
        }
    }

    fn not_on_streams<T: Value>(&mut self, setting: &'static Setting<T>) {
        if let Some(source) = self.source(setting).cloned() {
            let what = format!(
                "`{}` means nothing to a stream: its entries have fields",
                setting.key()
            );
            let hint = "leave it out, or see `body_field`".to_owned();
            self.conflict(Some(&source), what, hint);
        }
    }

    fn only_on_streams<T: Value>(&mut self, setting: &'static Setting<T>) {
        if let Some(source) = self.source(setting).cloned() {
            let what = format!(
                "`{}` means nothing here: the values of lists and channels have no fields",
                setting.key()
            );
            let hint = "leave it out, or see `framing`".to_owned();
            self.conflict(Some(&source), what, hint);
        }
    }

    /// The settings that name a queue, as far as somebody set them.
    pub(super) fn queues_set(&self) -> Vec<&'static str> {
        [
            &queue::STREAM,
            &queue::LIST,
            &queue::CHANNEL,
            &queue::PATTERN,
            &queue::SHARDED_CHANNEL,
        ]
        .iter()
        .filter(|setting| self.source(setting).is_some())
        .map(|setting| setting.key())
        .collect()
    }

    pub(super) fn check_handler(&mut self) -> Option<Handler> {
        let file = self.value(&handler::HANDLER);
        if file.is_none() && self.source(&handler::HANDLER).is_none() {
            let hint = "give `--handler FILE.wasm`";
            self.conflict(None, "`handler` is not set".to_owned(), hint.to_owned());
        }
        let (timeout, cpu) = (
            self.or_default(&handler::TIMEOUT),
            self.or_default(&handler::CPU),
        );
        if let (Some(source), true) = (self.source(&handler::CPU), cpu > timeout) {
            let what = format!(
                "`cpu` ({}) is more than `timeout` ({}): it is never reached",
                cpu.show(),
                timeout.show()
            );
            self.warnings
                .push(Problem::new(source.clone(), ProblemKind::Conflict(what)));
        }
        Some(Handler {
            file: file?,
            digest: self.value(&handler::HANDLER_DIGEST),
        })
    }

    /// How another version takes over.
    pub(super) fn swap(&self, pin: Option<&Digest>) -> Swap {
        let at_least = |setting| self.or_default::<NonZeroU32>(setting).get();
        Swap {
            accept_deploys: self.or_default(&settings::swap::ACCEPT_DEPLOYS),
            terms: verify::Terms {
                pin: pin.map(|digest| digest.as_str().into()),
                selftests: self.value(&settings::swap::SELFTEST).unwrap_or_default().0,
            },
            canary: self.value(&settings::swap::CANARY).map(|share| {
                let rule = canary::Rule {
                    window: self.or_default(&settings::swap::CANARY_WINDOW),
                    min: at_least(&settings::swap::CANARY_MIN_MESSAGES).into(),
                    max_excess: self
                        .or_default::<Share>(&settings::swap::CANARY_MAX_EXCESS)
                        .as_f64(),
                };
                (share, rule)
            }),
            breaker: match self.or_default(&settings::swap::BREAKER) {
                BreakAt::Off => None,
                BreakAt::Share(share) => Some(breaker::Rule {
                    window: self.or_default(&settings::swap::BREAKER_WINDOW),
                    min: at_least(&settings::swap::BREAKER_MIN_MESSAGES) as usize,
                    rate: share.as_f64(),
                    timeout: self.or_default(&handler::TIMEOUT),
                }),
            },
            on_break: self.or_default(&settings::swap::ON_BREAK),
        }
    }

    pub(super) fn process(&mut self) -> Process {
        self.only_with(&process::UNTIL_EMPTY_TIMEOUT, &process::UNTIL_EMPTY);
        if self.or_default(&process::UNTIL_EMPTY) && self.channel().is_some() {
            let what = "`until_empty` cannot be honoured: a channel holds nothing, so that it is \
                        always empty and never done";
            let source = self.source(&process::UNTIL_EMPTY).cloned();
            let hint = "leave it out, and stop the host when you have seen enough";
            self.conflict(source.as_ref(), what.to_owned(), hint.to_owned());
        }
        Process {
            until_empty: self.or_default(&process::UNTIL_EMPTY),
            until_empty_timeout: self.value(&process::UNTIL_EMPTY_TIMEOUT),
            drain_timeout: self.or_default(&process::DRAIN_TIMEOUT),
            summary: self.or_default(&process::SUMMARY),
            admin: self.value(&process::ADMIN),
            log_format: self.or_default(&process::LOG_FORMAT),
            log_level: self.or_default(&process::LOG_LEVEL),
        }
    }

    /// A setting that has no effect for now: another one may still be made at run time.
    pub(super) fn idle_without<T: Value, U: Value>(
        &mut self,
        setting: &'static Setting<T>,
        other: &'static Setting<U>,
    ) {
        if let (Some(source), None) = (self.source(setting).cloned(), self.source(other)) {
            let what = format!("`{}` does nothing without `{}`", setting.key(), other.key());
            self.warnings
                .push(Problem::new(source, ProblemKind::Conflict(what)));
        }
    }

    /// A setting that makes no sense without another one.
    pub(super) fn only_with<T: Value, U: Value>(
        &mut self,
        setting: &'static Setting<T>,
        other: &'static Setting<U>,
    ) {
        if let (Some(source), None) = (self.source(setting).cloned(), self.source(other)) {
            let what = format!(
                "`{}` means nothing without `{}`",
                setting.key(),
                other.key()
            );
            let hint = format!("set `{}` as well, or neither", other.key());
            self.conflict(Some(&source), what, hint);
        }
    }

    /// A value that was read, but cannot be used.
    pub(super) fn bad_value<T: Value>(&mut self, setting: &'static Setting<T>, what: String) {
        let key = setting.key();
        let source = self.source(setting).cloned();
        self.problems
            .push(Problem::new(source, ProblemKind::Value { key, what }));
    }
}
