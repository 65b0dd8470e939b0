//! The checks of several settings together, beyond the constraints of single settings: the queue, the
//! handler, dead letters, failures, the process.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use crate::config::choices::{BreakAt, Codec, Digest, Recording};
use crate::config::collect::Collected;
use crate::config::limits::LimitRule;
use crate::config::reach::{read_headers, read_token};
use crate::config::setting::{Definition, Kind, Kinds};
use crate::config::settings::{
    self, dead_letters, dedup, failures, flow, grants, handler, hold, process, queue, reply,
    schedule, swap, telemetry,
};
use crate::config::{Dashboard, DeadLetter, Handler, Process, QueueKind, Reliable, Swap};
use crate::delivery::attempt::DeliveryLimit;
use crate::delivery::backoff::Backoff;
use crate::delivery::hold::HoldLimits;
use crate::delivery::key_value::KeyRules;
use crate::delivery::policy::{DeadLetterRules, OnCap, Policy, Reason};
use crate::delivery::recording::RECORDING_MAX;
use crate::grants::http::rules::HttpRule;
use crate::grants::key_value::rules::wanted;
use crate::outgoing::dedup::Dedup;
use crate::publish::{Channel, Destination, List, Stream};
use crate::queue::dead_letter_queue::{OnFull, Routes};
use crate::queue::journal;
use crate::queue::limits::Limit;
use crate::queue::list::Recovery;
use crate::queue::pubsub::{Buffer, Subscription};
use crate::queue::stream::Retention;
use crate::rollout::breaker;
use crate::rollout::canary::{self, Share};
use crate::rollout::verify;
use crate::schedule::{Overlap, ScheduleRule};
use crate::telemetry::otlp;
use crate::telemetry::otlp::dropped::Signal;
use crate::values::{ByteSize, Value};
use crate::wire;
use crate::wire::codec::BodyCodec;
use crate::wire::keys;
use crate::wire::list::Framing;

/// The bytes of recordings that a dead-letter queue may have without a warning.
const RECORDINGS_QUIET: u64 = 1 << 30;

impl QueueKind {
    /// The kind, as far as settings differ.
    fn of_settings(&self) -> Kind {
        match self {
            Self::Stream { .. } => Kind::Stream,
            Self::List { reliable, .. } if reliable.is_some() => Kind::ReliableList,
            Self::List { .. } => Kind::SimpleList,
            Self::Channel { .. } => Kind::Subscription,
        }
    }
}

impl Collected {
    /// The queue: exactly one, with the settings that it needs.
    pub(super) fn check_queue(&mut self) -> Option<QueueKind> {
        let set = self.queues_set();
        if set.len() != 1 {
            let what = if set.is_empty() {
                "no queue is set".to_owned()
            } else {
                format!("more than one queue is set: `{}`", set.join("`, `"))
            };
            let hint = "give exactly one of `stream` (with `group`), `list`, `channel`, `pattern` and `sharded_channel`";
            self.conflict(None, what, hint);
        }
        let sections = [
            &queue::SECTION,
            &failures::SECTION,
            &hold::SECTION,
            &reply::SECTION,
            &dead_letters::SECTION,
            &dedup::SECTION,
            &grants::SECTION,
        ];
        self.check(self.kind(), &sections);
        let group = self.value(&queue::GROUP);
        if set == ["stream"] && self.source(&queue::GROUP).is_none() {
            let hint = "give `--group NAME`: hosts with the same group share the stream";
            self.conflict(None, "`stream` needs `group`", hint);
        }
        if set.len() != 1 {
            return None;
        }
        for setting in [&queue::STREAM, &queue::LIST, &queue::RECOVERY_ZSET] {
            if let Some(key) = self.value(setting) {
                self.refuse_own_key(setting, &key);
            }
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
                framing: self.framing(),
                key: key.into(),
            });
        }
        let (name, subscription) = self.channel()?;
        Some(QueueKind::Channel {
            name: name.into(),
            subscription,
            framing: self.framing(),
            buffer: Buffer {
                messages: self.or_default::<NonZeroU32>(&queue::BUFFER).get() as usize,
                bytes: self.or_default(&queue::BUFFER_MEMORY).as_usize(),
                on_overflow: self.or_default(&queue::ON_OVERFLOW),
            },
        })
    }

    /// A key that hostler keeps for a queue is no key that a setting may name.
    fn refuse_own_key(&mut self, setting: &'static dyn Definition, key: &str) {
        if keys::is_own(key) {
            let name = setting.key();
            let what = format!("`{name}` is a key that hostler itself keeps for a queue (`{key}`)");
            self.conflict(Some(setting), what, "give another key");
        }
    }

    /// The settings that name a queue, as far as they were set.
    fn queues_set(&self) -> Vec<&'static str> {
        let names: [&'static dyn Definition; 5] = [
            &queue::STREAM,
            &queue::LIST,
            &queue::CHANNEL,
            &queue::PATTERN,
            &queue::SHARDED_CHANNEL,
        ];
        let is_set = |setting: &&dyn Definition| self.source(*setting).is_some();
        names
            .into_iter()
            .filter(is_set)
            .map(Definition::key)
            .collect()
    }

    /// Whether the queue takes no message back.
    pub(super) fn is_at_most_once(&self) -> bool {
        matches!(self.kind(), Some(Kind::SimpleList | Kind::Subscription))
    }

    /// The kind of queue, if exactly one is set.
    fn kind(&self) -> Option<Kind> {
        match self.queues_set()[..] {
            ["stream"] => Some(Kind::Stream),
            ["list"] if self.or_default(&queue::RELIABLE) => Some(Kind::ReliableList),
            ["list"] => Some(Kind::SimpleList),
            [_] => Some(Kind::Subscription),
            _ => None,
        }
    }

    /// The channel or pattern that is set.
    fn channel(&self) -> Option<(String, Subscription)> {
        let kinds = [
            (&queue::CHANNEL, Subscription::Channel),
            (&queue::PATTERN, Subscription::Pattern),
            (&queue::SHARDED_CHANNEL, Subscription::Sharded),
        ];
        let mut kinds = kinds.into_iter();
        kinds.find_map(|(setting, kind)| Some((self.value(setting)?, kind)))
    }

    /// How a list is read reliably; `None` = it is a simple list.
    fn check_reliable(&mut self, key: &str) -> Option<Reliable> {
        if !self.or_default(&queue::RELIABLE) {
            return None;
        }
        let zset = self.value(&queue::RECOVERY_ZSET);
        let dead_letter = self.value(&dead_letters::DEAD_LETTER_KEY);
        if let Some(zset) = zset.as_deref()
            && (zset == key || Some(zset) == dead_letter.as_deref())
        {
            let what = format!("`recovery_zset` is another key of this queue (`{zset}`)");
            let hint = format!("give a key of its own, such as `{key}:claims`");
            self.conflict(Some(&queue::RECOVERY_ZSET), what, hint);
        }
        let ttl = self.value(&queue::RECOVERY_TTL);
        let min_idle = self.or_default(&queue::MIN_IDLE);
        if let Some(ttl) = ttl.filter(|ttl| *ttl <= min_idle) {
            let what = format!(
                "`recovery_ttl` ({}) must be longer than `min_idle` ({}): the records would expire \
                 before a host reads them",
                ttl.show(),
                min_idle.show()
            );
            self.conflict(
                Some(&queue::RECOVERY_TTL),
                what,
                "set several times `min_idle`",
            );
        }
        Some(Reliable {
            recovery: zset.map(|key| Recovery { key, ttl }),
        })
    }

    /// How values are read. `codec = "json"` alone sets it for reading and writing.
    pub(super) fn framing(&self) -> Framing {
        match self.reads_envelopes() {
            true => Framing::Json,
            false => self.or_default(&queue::FRAMING),
        }
    }

    /// The format that every body must have.
    pub(super) fn check_codec(&mut self) -> Option<BodyCodec> {
        let is_stream = self.source(&queue::STREAM).is_some();
        let codec = self.value(&queue::CODEC)?;
        let framing: Framing = self.or_default(&queue::FRAMING);
        if codec == Codec::Frame && (is_stream || matches!(framing, Framing::Raw | Framing::Json)) {
            let (what, hint) = if is_stream {
                let Kinds {
                    otherwise, hint, ..
                } = queue::VALUES;
                (format!("`codec` {otherwise}"), hint)
            } else {
                let contradicted = format!("`framing` `{}`", framing.show());
                let what =
                    format!("`codec` `frame` contradicts {contradicted}: it would be ignored");
                (what, "keep one of them")
            };
            self.conflict(Some(&queue::CODEC), what, hint);
        }
        match codec {
            Codec::Frame => None,
            Codec::Json if self.reads_envelopes() => None,
            Codec::Json => Some(BodyCodec::Json),
            Codec::MsgPack => Some(BodyCodec::MsgPack),
            Codec::Utf8 => Some(BodyCodec::Utf8),
        }
    }

    /// Whether `codec = "json"` sets the form of values, not of bodies.
    pub(super) fn reads_envelopes(&self) -> bool {
        let other = self.source(&queue::STREAM).or(self.source(&queue::FRAMING));
        other.is_none() && self.value(&queue::CODEC) == Some(Codec::Json)
    }

    /// Where messages are published to.
    pub(super) fn check_destination(&mut self) -> Option<Destination> {
        let used: [&'static dyn Definition; 4] = [
            &queue::RELIABLE,
            &queue::FRAMING,
            &queue::BODY_FIELD,
            &queue::MISSING_BODY,
        ];
        for setting in used {
            self.check_setting(self.kind(), setting);
        }
        // Contradictions are errors, as in `run`. Bodies are not checked here.
        self.check_codec();
        // Write values as hosts with the same configuration read them.
        let codec = match self.framing() {
            Framing::Raw => wire::list::Codec::Raw,
            framing => framing.codec(),
        };
        let channel = |name, sharded| Channel {
            name,
            codec,
            sharded,
        };
        match &self.queues_set()[..] {
            ["stream"] => {
                let stream = Stream::new(self.value(&queue::STREAM)?);
                let field: String = self.or_default(&queue::BODY_FIELD);
                Some(stream.body_field(field).into())
            }
            ["list"] => {
                let mut list = List::new(self.value(&queue::LIST)?).codec(codec);
                list.reliable = self.or_default(&queue::RELIABLE);
                Some(list.into())
            }
            ["channel"] => Some(channel(self.value(&queue::CHANNEL)?, false).into()),
            ["sharded_channel"] => Some(channel(self.value(&queue::SHARDED_CHANNEL)?, true).into()),
            set => {
                let what = if set.is_empty() {
                    "no destination is set".to_owned()
                } else {
                    format!("cannot publish to `{}`", set.join("` and `"))
                };
                let hint = "give exactly one of `stream`, `list`, `channel` and `sharded_channel`";
                self.conflict(None, what, hint);
                None
            }
        }
    }

    /// The component.
    pub(super) fn check_handler(&mut self) -> Option<Handler> {
        let file = self.value(&handler::HANDLER);
        if file.is_none() && self.source(&handler::HANDLER).is_none() {
            self.conflict(None, "`handler` is not set", "give `--handler FILE.wasm`");
        }
        let timeout = self.or_default(&handler::TIMEOUT);
        let cpu = self.or_default(&handler::CPU);
        if self.source(&handler::CPU).is_some() && cpu > timeout {
            let (cpu, timeout) = (cpu.show(), timeout.show());
            let what =
                format!("`cpu` ({cpu}) is more than `timeout` ({timeout}): it has no effect");
            self.warn(&handler::CPU, what, None);
        }
        Some(Handler {
            file: file?,
            digest: self.value(&handler::HANDLER_DIGEST),
        })
    }

    /// How another version takes over.
    pub(super) fn swap(&self, pin: Option<&Digest>) -> Swap {
        let at_least = |setting| self.or_default::<NonZeroU32>(setting).get();
        let window = self.or_default(&swap::CANARY_WINDOW);
        Swap {
            accept_deploys: self.or_default(&swap::ACCEPT_DEPLOYS),
            terms: verify::Terms {
                pin: pin.map(|digest| digest.as_str().into()),
                selftests: self.value(&swap::SELFTEST).unwrap_or_default(),
            },
            canary: self.value(&swap::CANARY).map(|share| {
                let max_excess: Share = self.or_default(&swap::CANARY_MAX_EXCESS);
                let rule = canary::CanaryRule {
                    window,
                    min: at_least(&swap::CANARY_MIN_MESSAGES).into(),
                    max_excess: max_excess.as_f64(),
                };
                (share, rule)
            }),
            window,
            breaker: match self.or_default(&swap::BREAKER) {
                BreakAt::Off => None,
                BreakAt::Share(share) => Some(breaker::BreakerRule {
                    window: self.or_default(&swap::BREAKER_WINDOW),
                    min: at_least(&swap::BREAKER_MIN_MESSAGES) as usize,
                    rate: share.as_f64(),
                    timeout: self.or_default(&handler::TIMEOUT),
                }),
            },
            on_break: self.or_default(&swap::ON_BREAK),
        }
    }

    /// The dead-letter queue.
    pub(super) fn check_dead_letter(&mut self, queue: Option<&QueueKind>) -> Option<DeadLetter> {
        let key = self.value(&dead_letters::DEAD_LETTER_KEY)?;
        let routes = self.value(&dead_letters::DEAD_LETTER_ROUTES);
        let routes = routes.unwrap_or_default();
        let cycle = self.value(&dead_letters::DEAD_LETTER_CYCLE_KEY);
        let is_queue = |key: &str| queue.is_some_and(|queue| **queue.name() == *key);
        if cycle.as_deref().is_some_and(is_queue) {
            let what = "`dead_letter.cycle_key` is the queue itself: the cycle would go on";
            self.conflict(
                Some(&dead_letters::DEAD_LETTER_CYCLE_KEY),
                what,
                "give another key, or leave it out",
            );
        }
        self.refuse_own_key(&dead_letters::DEAD_LETTER_KEY, &key);
        for routed in routes.0.values().filter_map(Option::as_deref) {
            self.refuse_own_key(&dead_letters::DEAD_LETTER_ROUTES, routed);
        }
        if let Some(cycle) = &cycle {
            self.refuse_own_key(&dead_letters::DEAD_LETTER_CYCLE_KEY, cycle);
        }
        if is_queue(&key) {
            let what = format!("`dead_letter.key` is the queue itself (`{key}`)");
            let hint = format!("give another key, such as `{key}:dead`");
            self.conflict(Some(&dead_letters::DEAD_LETTER_KEY), what, hint);
        }
        let discarded = routes.discarded();
        let by_reason = routes.0.into_iter();
        let by_reason = by_reason.filter_map(|(reason, key)| Some((reason, key?)));
        Some(DeadLetter {
            key: key.into(),
            routes: Routes {
                discarded,
                by_reason: by_reason.collect(),
                cycle,
            },
            max_len: self.or_default(&dead_letters::DEAD_LETTER_MAX_LEN),
            on_full: self.or_default(&dead_letters::DEAD_LETTER_ON_FULL),
        })
    }

    /// Whether recordings may take much of the memory of Redis.
    pub(super) fn check_recordings(&mut self, dead_letter: Option<&DeadLetter>) {
        let recording: Recording = self.or_default(&dead_letters::RECORDING);
        let Some(dead_letter) = dead_letter.filter(|_| recording == Recording::Full) else {
            return;
        };
        let (len, each) = (dead_letter.max_len.get(), RECORDING_MAX as u64);
        let most = len.saturating_mul(each);
        if most > RECORDINGS_QUIET {
            let what = format!(
                "recordings may take {:.1} GiB of Redis in each dead-letter queue: `dead_letter.max_len` is {len}",
                most as f64 / f64::from(1 << 30)
            );
            let hint = format!(
                "with `max_len = {}`, they take 1 GiB",
                RECORDINGS_QUIET / each
            );
            self.warn(&dead_letters::RECORDING, what, Some(&hint));
        }
    }

    /// How duplicates are found.
    pub(super) fn check_dedup(&mut self, queue: Option<&QueueKind>) -> Option<Dedup> {
        let window = self.value(&dedup::DEDUP_WINDOW)?;
        let header = self.value(&dedup::DEDUP_KEY);
        if header.is_none() && matches!(queue, Some(QueueKind::List { .. })) {
            let what = "`dedup.window` needs `dedup.key` on a list: each value has a fresh id";
            let hint = "name the header that holds the id, such as `x-message-id`";
            self.conflict(Some(&dedup::DEDUP_WINDOW), what, hint);
        }
        Some(Dedup {
            window,
            header: header.map(|header: String| header.to_lowercase()),
            max_ids: self.or_default::<NonZeroU64>(&dedup::DEDUP_MAX_IDS).get(),
        })
    }

    /// The limits of starts.
    pub(super) fn limits(&mut self) -> Arc<[Limit]> {
        let rules: Vec<LimitRule> = self.value(&flow::LIMITS).unwrap_or_default();
        rules.iter().filter_map(LimitRule::limit).collect()
    }

    /// The schedules of the queue.
    pub(super) fn check_schedules(&mut self, queue: Option<&QueueKind>) -> Vec<ScheduleRule> {
        let schedules: Vec<ScheduleRule> = self.value(&schedule::SCHEDULES).unwrap_or_default();
        let skips = schedules
            .iter()
            .find(|rule| rule.written.overlap == Overlap::Skip);
        if let (Some(rule), Some(QueueKind::List { .. })) = (skips, queue) {
            let what = format!(
                "the schedule `{}` has `overlap = \"skip\"`, and a list has no group to look in",
                rule.name
            );
            self.conflict(
                Some(&schedule::SCHEDULES),
                what,
                "leave it out, or use a stream",
            );
        }
        schedules
    }

    /// How journals are kept, if a rule asks for them.
    pub(super) fn check_journal(&mut self, queue: Option<&QueueKind>) -> Option<journal::Rules> {
        let http: Vec<HttpRule> = self.value(&grants::HTTP).unwrap_or_default();
        let keys: Option<KeyRules> = self.value(&grants::KEY_VALUE);
        let of_requests = http.iter().any(|rule| rule.journal);
        let of_keys = keys.is_some_and(|rules| rules.journal);
        if !of_requests && !of_keys && self.source(&grants::JOURNAL).is_none() {
            return None;
        }
        if queue.is_some_and(QueueKind::is_at_most_once) {
            let what = "`journal` means nothing on a queue without acknowledgements: no message comes a second time";
            let hint = "leave it out, or serve a stream or a reliable list";
            self.conflict(Some(&grants::HTTP), what, hint);
        }
        Some(journal::Rules {
            bytes: self.or_default::<ByteSize>(&settings::journal::BYTES).0,
            keep: self.or_default(&settings::journal::KEEP),
        })
    }

    /// Where the handler publishes: not among dead letters, and not into keys that hosts use themselves.
    pub(super) fn check_publish(
        &mut self,
        queue: Option<&QueueKind>,
        dead_letter: Option<&DeadLetter>,
    ) {
        let (Some(table), Some(queue)) = (self.value(&grants::PUBLISH), queue) else {
            return;
        };
        let queue = match queue {
            QueueKind::Stream { key, .. } => Some((&**key, "stream")),
            QueueKind::List { key, .. } => Some((&**key, "list")),
            QueueKind::Channel { .. } => None,
        };
        // What each key holds.
        let mut kinds: BTreeMap<&str, &str> = queue.into_iter().collect();
        for (outlet, destination) in &table {
            let key = destination.name();
            let is_dead = dead_letter.is_some_and(
                |DeadLetter {
                     key: dead, routes, ..
                 }| {
                    **dead == *key
                        || routes.by_reason.values().any(|route| route == key)
                        || routes.cycle.as_deref() == Some(key)
                },
            );
            let kind = destination.kind();
            let held = match destination.is_channel() {
                true => kind,
                false => kinds.entry(key).or_insert(kind),
            };
            let problem = if held != kind {
                "cannot be a stream and a list"
            } else if is_dead {
                "is a dead-letter queue of this queue"
            } else if !destination.is_channel() && keys::is_own(key) {
                "is a key that hostler itself keeps for a queue"
            } else {
                continue;
            };
            let what = format!("`grant.publish` has `{outlet}`, and `{key}` {problem}");
            self.conflict(Some(&grants::PUBLISH), what, "publish to another key");
        }
    }

    /// The keys of the handler lie below those of its queue.
    pub(super) fn check_keys(&mut self, queue: Option<&QueueKind>) {
        let (Some(KeyRules { prefix, .. }), Some(queue)) = (self.value(&grants::KEY_VALUE), queue)
        else {
            return;
        };
        if let Some(wanted) = wanted(&prefix, queue.name()) {
            let what = format!(
                "`grant.key-value` has the prefix `{prefix}`, which is not below `{wanted}`"
            );
            let hint = format!("write `prefix = \"{wanted}\"`, or a longer one that begins so");
            self.conflict(Some(&grants::KEY_VALUE), what, hint);
        }
    }

    /// What follows a failed attempt.
    pub(super) fn check_policy(
        &mut self,
        queue: Option<&QueueKind>,
        dead_letter: Option<&DeadLetter>,
    ) -> Policy {
        let cap = self.value(&failures::MAX_DELIVERIES);
        let on_cap = self.or_default(&failures::ON_CAP);
        let dead_letter_given = self.source(&dead_letters::DEAD_LETTER_KEY).is_some();
        let routes = self.value(&dead_letters::DEAD_LETTER_ROUTES);
        let discarded = routes.unwrap_or_default().discarded();
        if cap.is_some()
            && on_cap == OnCap::DeadLetter
            && !dead_letter_given
            && !discarded.contains(Reason::MaxDeliveries)
            && !self.is_partial
            && !queue.is_some_and(QueueKind::is_at_most_once)
        {
            let what =
                "`max_deliveries` needs `dead_letter.key`: the message would have nowhere to go";
            let hint = "give `--dead-letter KEY`, or `--on-cap discard` to lose it on purpose";
            self.conflict(Some(&failures::MAX_DELIVERIES), what, hint);
        }
        let backoff = Backoff {
            first: self.or_default(&failures::BACKOFF_FIRST),
            factor: self.or_default(&failures::BACKOFF_FACTOR),
            max: self.or_default(&failures::BACKOFF_MAX),
            jitter: self.or_default(&failures::BACKOFF_JITTER),
        };
        if backoff.first > backoff.max {
            let at = match self.source(&failures::BACKOFF_FIRST) {
                Some(_) => &failures::BACKOFF_FIRST,
                None => &failures::BACKOFF_MAX,
            };
            let (first, max) = (backoff.first.show(), backoff.max.show());
            let what = format!("`backoff.first` ({first}) is more than `backoff.max` ({max})");
            self.conflict(Some(at), what, "the first wait is the shortest");
        }
        Policy {
            limit: DeliveryLimit {
                cap: cap.map(Into::into),
                accounting: self.or_default(&queue::ATTEMPT_ACCOUNTING),
                at_most_once: false,
                holds: self.holds(),
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

    /// How often a message may be held, and for how long.
    fn holds(&mut self) -> HoldLimits {
        let max_age = self.hold_limits().max_age;
        let is_pinned = self.or_default::<Retention>(&queue::RETENTION) == Retention::Acked;
        if max_age > settings::DAY && is_pinned {
            let what = format!(
                "`hold.max_age` ({}) is more than 24 hours, and `retention` is `acked`: a held entry pins the stream",
                max_age.show()
            );
            let hint = "hold messages for 24 hours at most, or set another `retention`";
            self.conflict(Some(&hold::MAX_AGE), what, hint);
        }
        self.hold_limits()
    }

    /// The same, not checked.
    pub(super) fn hold_limits(&self) -> HoldLimits {
        HoldLimits {
            max: self.or_default(&hold::MAX),
            max_age: self.or_default(&hold::MAX_AGE),
        }
    }

    /// The rules that may change while a host runs, for this queue if it is known.
    pub(super) fn check_rules(&mut self, queue: Option<&QueueKind>) -> Option<DeadLetter> {
        let sections = [&queue::SECTION, &failures::SECTION, &dead_letters::SECTION];
        self.check(queue.map(QueueKind::of_settings), &sections);
        let dead_letter = self.check_dead_letter(queue);
        self.check_policy(queue, dead_letter.as_ref());
        dead_letter
    }

    /// The collector of telemetry, and what it gets; `None` = no collector.
    pub(super) fn check_telemetry(&mut self) -> Option<otlp::Settings> {
        self.check(self.kind(), &[&telemetry::SECTION]);
        let headers = self.read(&telemetry::OTLP_HEADERS_FILE, read_headers);
        let endpoint = self.value(&telemetry::OTLP_ENDPOINT)?;
        let signals = self.or_default(&telemetry::OTLP_SIGNALS);
        Some(otlp::Settings {
            endpoint,
            protocol: self.or_default(&telemetry::OTLP_PROTOCOL),
            headers: headers.unwrap_or_default(),
            ca: self.readable(&telemetry::OTLP_CA),
            traces: signals.contains(&Signal::Traces),
            metrics: signals.contains(&Signal::Metrics),
            logs: signals.contains(&Signal::Logs),
            sample: self.or_default(&telemetry::OTLP_SAMPLE).as_f64(),
            metrics_every: self.or_default(&telemetry::OTLP_METRICS_EVERY),
            service_name: self.or_default(&telemetry::OTLP_SERVICE_NAME),
        })
    }

    /// The process.
    pub(super) fn check_process(&mut self) -> Process {
        self.check(self.kind(), &[&process::SECTION]);
        if self.or_default(&process::UNTIL_EMPTY) && self.channel().is_some() {
            let what = "`until_empty` cannot be honoured: a channel holds no messages, so it is always \
                        empty and never done";
            let hint = "leave it out, and stop the host yourself";
            self.conflict(Some(&process::UNTIL_EMPTY), what, hint);
        }
        let token = self.read(&process::UI_TOKEN_FILE, read_token);
        let ui = self.or_default(&process::UI).then_some(Dashboard { token });
        Process {
            ui,
            until_empty: self.or_default(&process::UNTIL_EMPTY),
            until_empty_timeout: self.value(&process::UNTIL_EMPTY_TIMEOUT),
            drain_timeout: self.or_default(&process::DRAIN_TIMEOUT),
            summary: self.or_default(&process::SUMMARY),
            admin: self.value(&process::ADMIN),
            log_format: self.or_default(&process::LOG_FORMAT),
            log_level: self.or_default(&process::LOG_LEVEL),
        }
    }
}
