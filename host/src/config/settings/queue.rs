//! The queue, and how deliveries are claimed.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::config::choices::{Codec, HeaderNames};
use crate::config::setting::{Kind, Kinds};
use crate::config::settings::{DAY, section, up_to};
use crate::delivery::attempt::Accounting;
use crate::delivery::policy::Reason;
use crate::queue::pubsub::OnOverflow;
use crate::queue::stream::{GroupStart, Retention};
use crate::values::ByteSize;
use crate::wire::list::Framing;
use crate::wire::stream::MissingBody;

/// Kinds that keep a message until it is settled.
pub(in crate::config) static AT_LEAST_ONCE: Kinds = Kinds {
    kinds: &[Kind::Stream, Kind::ReliableList],
    otherwise: "cannot be honoured: this queue forgets a message when it hands it out, so it cannot \
                retry, delay or dead-letter it",
    hint: "read a `stream`, or a `list` with `reliable`",
};

static RELIABLE_LIST: Kinds = Kinds {
    kinds: &[Kind::ReliableList],
    otherwise: "means nothing without `reliable`: a simple list forgets a message when it hands it out",
    hint: "set `reliable` as well, or neither",
};

static SUBSCRIPTION: Kinds = Kinds {
    kinds: &[Kind::Subscription],
    otherwise: "means nothing here: only the messages of a channel need a buffer",
    hint: "leave it out; `prefetch` says how far a host reads ahead",
};

static FIELDS: Kinds = Kinds {
    kinds: &[Kind::Stream],
    otherwise: "means nothing here: the values of lists and channels have no fields",
    hint: "leave it out, or see `framing`",
};

pub(in crate::config) static VALUES: Kinds = Kinds {
    kinds: &[Kind::ReliableList, Kind::SimpleList, Kind::Subscription],
    otherwise: "means nothing to a stream: its entries have fields",
    hint: "leave it out, or see `body_field`",
};

static DATED: Kinds = Kinds {
    kinds: &[Kind::Stream, Kind::ReliableList, Kind::Subscription],
    otherwise: "cannot be honoured: the values of a simple list do not say when they were pushed",
    hint: "let producers write the header `x-expires-at` (`hostler publish --expires-in`), or set `reliable`",
};

section! { "Queue";
    /// Read this stream, through the consumer group `group`. At least once.
    STREAM: String = ("stream", "KEY")
        .unset("one of `stream`, `list`, `channel`, `pattern` and `sharded_channel` is required");

    /// The consumer group. The host creates it if it does not exist.
    GROUP: String = ("group", "NAME").unset("required with `stream`").only_with(&STREAM);

    /// The first entry of a new group: `0` = the oldest entry of the stream, `$` = the next new entry.
    GROUP_START: GroupStart = ("group_start", "ID").default("0").only_with(&STREAM);

    /// Read this list. At most once, unless `reliable`.
    LIST: String = ("list", "KEY").unset("no list");

    /// Read the list through a processing list, so that no message is lost when a host dies. At least once.
    RELIABLE: bool = ("reliable", "BOOL").default("false").only_with(&LIST);

    /// Record every claim of a reliable list in this sorted set. Hosts then recover single messages whose claim was
    /// not renewed for `min_idle`, also of a host that lives. Messages of dead hosts are recovered with and without
    /// it. All hosts of the list should use the same key, and no other list may use it.
    RECOVERY_ZSET: String = ("recovery_zset", "KEY")
        .unset("the messages of a host are recovered when that host was not seen for `min_idle`")
        .only_with(&LIST)
        .kinds(&RELIABLE_LIST);

    /// How long that sorted set lives after the last claim or renewal. It must be longer than `min_idle`. No
    /// message is stranded when the set expires.
    RECOVERY_TTL: Duration = ("recovery_ttl", "DURATION")
        .unset("it does not expire")
        .only_with(&RECOVERY_ZSET)
        .range(|| (Duration::from_millis(100), 365 * DAY));

    /// Subscribe to this channel. At most once.
    CHANNEL: String = ("channel", "NAME").unset("no channel");

    /// Subscribe to the channels that match this pattern. At most once.
    PATTERN: String = ("pattern", "GLOB").unset("no pattern");

    /// Subscribe to this sharded channel (`SSUBSCRIBE`). At most once.
    SHARDED_CHANNEL: String = ("sharded_channel", "NAME").unset("no sharded channel");

    /// The most messages of a subscription that wait in the host, beyond the prefetched ones.
    BUFFER: NonZeroU32 = ("buffer", "N")
        .default("10000")
        .kinds(&SUBSCRIPTION)
        .range(|| up_to(10_000_000));

    /// The most bytes that these messages have together.
    BUFFER_MEMORY: ByteSize = ("buffer_memory", "SIZE")
        .default("64MiB")
        .kinds(&SUBSCRIPTION)
        .range(|| (ByteSize(64 << 10), ByteSize(64 << 30)));

    /// Which messages a full buffer drops, and counts: `drop-newest` = the arriving message, `drop-oldest` =
    /// the messages that have waited longest.
    ON_OVERFLOW: OnOverflow = ("on_overflow", "RULE").default("drop-newest").kinds(&SUBSCRIPTION);

    /// The base of the name of this host in the group. A random suffix makes the name unique.
    CONSUMER: String = ("consumer", "BASE").unset("the name of the machine");

    /// After this time without a renewal, other hosts take a delivery as an orphan. A live host renews its
    /// leases three times in it, however long its handlers run. If live hosts of a queue have different
    /// values, the longest holds.
    MIN_IDLE: Duration = ("min_idle", "DURATION")
        .default("30s")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (Duration::from_millis(100), DAY));

    /// How often the host looks for orphans.
    ORPHAN_SCAN: Duration = ("orphan_scan", "DURATION")
        .default("1s")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (Duration::from_millis(10), DAY));

    /// The longest pause between two looks for delayed messages that are due. A message whose time this host
    /// knows is taken on time.
    PARKED_SCAN: Duration = ("parked_scan", "DURATION")
        .default("100ms")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (Duration::from_millis(1), DAY));

    /// Which entries of the stream are trimmed: `keep` = none, `acked` = the entries that every group has
    /// acknowledged, `maxlen:N` = the entries older than the newest N, approximately.
    RETENTION: Retention = ("retention", "RULE").default("keep").only_with(&STREAM);

    /// Which starts are recorded in Redis before the handler runs: `lazy` = all but the first of a fresh
    /// delivery, which the claim already charges, `exact` = all (43-80 % more Redis CPU). All hosts of a
    /// group must use the same mode.
    ATTEMPT_ACCOUNTING: Accounting = ("attempt_accounting", "MODE")
        .default("lazy")
        .kinds(&AT_LEAST_ONCE);

    /// How values of lists and channels are read: `auto` = a frame as a frame, any other value as a body
    /// without headers; `frame` = only frames; `json` = only frames and envelopes; `raw` = every value as a
    /// body. With `frame` and `json`, any other value is malformed. On reliable lists these two need
    /// `dead_letter.key`, or a route to `discard`.
    FRAMING: Framing = ("framing", "FORM").default("auto").kinds(&VALUES).loses(|framing| match framing {
        Framing::Frame | Framing::Json => &[Reason::Malformed],
        Framing::Auto | Framing::Raw => &[],
    });

    /// The format that every body must have: `json`, `msgpack` or `utf8`. A message with another body is
    /// dead-lettered as `decode-failed`, without a run. On streams and reliable lists this needs
    /// `dead_letter.key`, or a route to `discard`. On lists and channels without `framing`, `json` means the
    /// readable envelope instead, for reading and writing (a reliable list needs the same key or route), and
    /// `frame` means the binary frame.
    CODEC: Codec = ("codec", "CODEC")
        .unset("bodies are not checked; lists and channels are written as frames")
        .loses(|codec| match codec {
            Codec::Json | Codec::MsgPack | Codec::Utf8 => &[Reason::DecodeFailed],
            Codec::Frame => &[],
        });

    /// The field of a stream entry that holds the body. Lists and channels have no fields.
    BODY_FIELD: String = ("body_field", "FIELD").default("_payload").kinds(&FIELDS);

    /// How a stream entry without that field is read: `json` = its fields are the body, as a JSON object of
    /// strings; `malformed` = it is dead-lettered as `malformed`, without a run. `malformed` needs
    /// `dead_letter.key`, or a route to `discard`.
    MISSING_BODY: MissingBody = ("missing_body", "RULE").default("json").kinds(&FIELDS).loses(|rule| match rule {
        MissingBody::Malformed => &[Reason::Malformed],
        MissingBody::Json => &[],
    });

    /// The headers that every message must have, separated by commas. A message that lacks one is
    /// dead-lettered as `malformed`, without a run. On streams and reliable lists this needs
    /// `dead_letter.key`, or a route to `discard`.
    REQUIRE_HEADERS: HeaderNames = ("require_headers", "NAMES")
        .unset("no header is required")
        .loses(|_| &[Reason::Malformed]);

    /// The time to live of a message, from its enqueueing. A message that has not started by then is
    /// dead-lettered as `expired`, without a run. The header `x-expires-at` may set an earlier end. The values
    /// of a list do not say when they were enqueued: there the time begins with the first claim. On streams
    /// and reliable lists this needs `dead_letter.key`, or a route to `discard`.
    TTL: Duration = ("queue.ttl", "DURATION")
        .live()
        .flag("ttl")
        .unset("no limit")
        .kinds(&DATED)
        .loses(|_| &[Reason::Expired])
        .range(|| (Duration::from_millis(1), DAY * 3650));

    /// The most unread messages. Beyond it the oldest are dead-lettered as `maxlen`, without a run. Pending
    /// messages do not count. This needs `dead_letter.key`, or a route to `discard`.
    MAX_LENGTH: NonZeroU64 = ("queue.max_length", "N")
        .live()
        .flag("max-length")
        .unset("no limit")
        .kinds(&AT_LEAST_ONCE)
        .loses(|_| &[Reason::MaxLen]);

    /// Whether the queue is paused: hosts read nothing from it, and hand back uncharged what has not started; of a
    /// channel, they run it. Running attempts end. `hostler pause` and `hostler resume` set this as a policy.
    PAUSED: bool = ("queue.paused", "BOOL")
        .live()
        .flag("paused")
        .default("false");
}
