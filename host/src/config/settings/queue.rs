//! What is read, and how it is claimed.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::config::choices::{Codec, HeaderNames};
use crate::config::setting::Setting;
use crate::config::settings::{DAY, Section, at_most, between, sized};
use crate::config::value::ByteSize;
use crate::delivery::attempt::Accounting;
use crate::queue::pubsub::OnOverflow;
use crate::queue::stream::{GroupStart, Retention};
use crate::wire::list::Framing;
use crate::wire::stream::MissingBody;

pub(super) static SECTION: Section = Section {
    title: "Queue",
    settings: &[
        &STREAM,
        &GROUP,
        &GROUP_START,
        &LIST,
        &RELIABLE,
        &RECOVERY_ZSET,
        &RECOVERY_TTL,
        &CHANNEL,
        &PATTERN,
        &SHARDED_CHANNEL,
        &BUFFER,
        &BUFFER_MEMORY,
        &ON_OVERFLOW,
        &CONSUMER,
        &MIN_IDLE,
        &ORPHAN_SCAN,
        &PARKED_SCAN,
        &RETENTION,
        &ATTEMPT_ACCOUNTING,
        &FRAMING,
        &CODEC,
        &BODY_FIELD,
        &MISSING_BODY,
        &REQUIRE_HEADERS,
        &TTL,
        &MAX_LENGTH,
    ],
};

pub(in crate::config) static STREAM: Setting<String> = Setting::new(
    "stream",
    "KEY",
    "Read this stream, through the consumer group `group`. At least once.",
)
.unset("one of `stream`, `list`, `channel`, `pattern` and `sharded_channel` is required");

pub(in crate::config) static GROUP: Setting<String> = Setting::new(
    "group",
    "NAME",
    "The consumer group. It is made if it does not exist.",
)
.unset("required with `stream`");

pub(in crate::config) static GROUP_START: Setting<GroupStart> = Setting::new(
    "group_start",
    "ID",
    "Where a group that has to be made starts: `0` = with everything that the stream holds, `$` = \
     with what comes from now on.",
)
.default("0");

pub(in crate::config) static LIST: Setting<String> = Setting::new(
    "list",
    "KEY",
    "Read this list. At most once, unless `reliable`.",
)
.unset("no list");

pub(in crate::config) static RELIABLE: Setting<bool> = Setting::new(
    "reliable",
    "BOOL",
    "Read the list through a processing list, so that nothing is lost when a host dies. At least \
     once.",
)
.default("false");

pub(in crate::config) static RECOVERY_ZSET: Setting<String> = Setting::new(
    "recovery_zset",
    "KEY",
    "Record every claim of a reliable list in this sorted set, so that every host recovers what any \
     other one left. All hosts of the list must agree on it.",
)
.unset("a host recovers what earlier starts with its own `consumer` left");

pub(in crate::config) static RECOVERY_TTL: Setting<Duration> = Setting::new(
    "recovery_ttl",
    "DURATION",
    "How long that sorted set lives after the last claim or renewal; longer than `min_idle`. \
     Nothing is stranded by its end.",
)
.unset("it does not expire")
.check(|d| between(d, Duration::from_millis(100), 365 * DAY));

pub(in crate::config) static CHANNEL: Setting<String> = Setting::new(
    "channel",
    "NAME",
    "Subscribe to this channel. At most once.",
)
.unset("no channel");

pub(in crate::config) static PATTERN: Setting<String> = Setting::new(
    "pattern",
    "GLOB",
    "Subscribe to the channels that this pattern matches. At most once.",
)
.unset("no pattern");

pub(in crate::config) static SHARDED_CHANNEL: Setting<String> = Setting::new(
    "sharded_channel",
    "NAME",
    "Subscribe to this sharded channel (`SSUBSCRIBE`). At most once.",
)
.unset("no sharded channel");

pub(in crate::config) static BUFFER: Setting<NonZeroU32> = Setting::new(
    "buffer",
    "N",
    "How many messages of a subscription wait in the host at most, beyond those that it has \
     prefetched.",
)
.default("10000")
.check(|n| at_most(n, 10_000_000));

pub(in crate::config) static BUFFER_MEMORY: Setting<ByteSize> = Setting::new(
    "buffer_memory",
    "SIZE",
    "How many bytes they have together at most.",
)
.default("64MiB")
.check(|size| sized(size, ByteSize(64 << 10), ByteSize(64 << 30)));

pub(in crate::config) static ON_OVERFLOW: Setting<OnOverflow> = Setting::new(
    "on_overflow",
    "RULE",
    "What is dropped, and counted, when a message of a subscription finds no room: `drop-newest` = \
     that message, `drop-oldest` = those that have waited longest.",
)
.default("drop-newest");

pub(in crate::config) static CONSUMER: Setting<String> = Setting::new(
    "consumer",
    "BASE",
    "The base of this host's name in the group; a random suffix makes it unique.",
)
.unset("the name of the machine");

pub(in crate::config) static MIN_IDLE: Setting<Duration> = Setting::new(
    "min_idle",
    "DURATION",
    "How long a delivery must go unrenewed until other hosts take it for an orphan. Live hosts \
     renew three times in it, however long their handlers run.",
)
.default("30s")
.check(|d| between(d, Duration::from_millis(100), DAY));

pub(in crate::config) static ORPHAN_SCAN: Setting<Duration> = Setting::new(
    "orphan_scan",
    "DURATION",
    "How often orphans are looked for.",
)
.default("1s")
.check(|d| between(d, Duration::from_millis(10), DAY));

pub(in crate::config) static PARKED_SCAN: Setting<Duration> = Setting::new(
    "parked_scan",
    "DURATION",
    "How often delayed messages are looked for that are due, at the least: one whose time this \
     host knows is taken when it has come.",
)
.default("100ms")
.check(|d| between(d, Duration::from_millis(1), DAY));

pub(in crate::config) static RETENTION: Setting<Retention> = Setting::new(
    "retention",
    "RULE",
    "What is trimmed from the stream: `keep` = nothing, `acked` = what every group has \
     acknowledged, `maxlen:N` = what is older than the newest N entries, approximately.",
)
.default("keep");

pub(in crate::config) static ATTEMPT_ACCOUNTING: Setting<Accounting> = Setting::new(
    "attempt_accounting",
    "MODE",
    "Which starts are recorded in Redis before the handler runs: `lazy` = all but the first of a \
     fresh delivery, which the hand-out already stands for, `exact` = all (43-80 % more Redis CPU). All hosts of a group must agree.",
)
.default("lazy");

pub(in crate::config) static FRAMING: Setting<Framing> = Setting::new(
    "framing",
    "FORM",
    "How values of lists and channels are read: `auto` = as frames, and what is none as a body without headers, \
     `frame` or `json` = what is neither frame nor (with `json`) envelope is malformed, `raw` = as \
     bodies, whatever they look like. On reliable lists, `frame` and `json` need `dead_letter.key`, or \
     a route to `discard`.",
)
.default("auto");

pub(in crate::config) static CODEC: Setting<Codec> = Setting::new(
    "codec",
    "CODEC",
    "What every body must parse as: `json`, `msgpack` or `utf8`; one that does not is dead-lettered \
     as `decode-failed`, unrun. On streams and reliable lists this needs `dead_letter.key`, or a route \
     to `discard`. On lists and channels, where `framing` is not set, `json` means the readable \
     envelope instead, read and written (on a reliable list, with the same need), and `frame` the \
     binary frame.",
)
.unset("bodies are not looked at; lists and channels are written as frames");

pub(in crate::config) static BODY_FIELD: Setting<String> = Setting::new(
    "body_field",
    "FIELD",
    "The field of a stream entry that holds the body. Lists and channels have no fields.",
)
.default("_payload");

pub(in crate::config) static MISSING_BODY: Setting<MissingBody> = Setting::new(
    "missing_body",
    "RULE",
    "What a stream entry without that field means: `json` = its fields are the body, as a JSON \
     object of strings, `malformed` = it is dead-lettered as `malformed`, unrun; this needs \
     `dead_letter.key`, or a route to `discard`.",
)
.default("json");

pub(in crate::config) static REQUIRE_HEADERS: Setting<HeaderNames> = Setting::new(
    "require_headers",
    "NAMES",
    "The headers that every message must have, separated by commas. One without is dead-lettered as \
     `malformed`, unrun. On streams and reliable lists this needs `dead_letter.key`, or a route to \
     `discard`.",
)
.unset("none");

pub(in crate::config) static TTL: Setting<Duration> = Setting::new(
    "queue.ttl",
    "DURATION",
    "How long after it was enqueued a message is worth handling. Later it is dead-lettered as \
     `expired`, unrun. The header `x-expires-at` of a message may say that it is sooner. A value of a \
     list does not say when it was enqueued: there the time begins with its first claim. On streams \
     and reliable lists this needs `dead_letter.key`, or a route to `discard`.",
)
.live()
.flag("ttl")
.unset("for ever")
.check(|d| between(d, Duration::from_millis(1), DAY * 3650));

pub(in crate::config) static MAX_LENGTH: Setting<NonZeroU64> = Setting::new(
    "queue.max_length",
    "N",
    "How many messages may be unread. Beyond that the oldest are dead-lettered as `maxlen`, unrun; \
     what is pending is not counted. This needs `dead_letter.key`, or a route to `discard`.",
)
.live()
.flag("max-length")
.unset("any number");
