//! Interfaces that a handler gets only on request.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::{section, up_to};
use crate::delivery::key_value::KeyRules;
use crate::grants::configuration::rules::Values;
use crate::grants::files::rules::Directory;
use crate::grants::http::rules::HttpRule;
use crate::grants::journal::rules::JournalGrant;
use crate::grants::secrets::rules::SecretRule;
use crate::grants::tcp::rules::TcpRule;
use crate::outgoing::outbox::Mode;
use crate::publish::Destination;
use crate::values::ByteSize;

section! { "Grants";
    /// Grant `wasi:config/store`, with these values. Without the grant, a component that imports it is
    /// refused. In a file it is a table, `[grant.config]`; in a flag or a variable, a JSON object.
    /// New values in the file apply at once.
    CONFIG: Values = ("grant.config", "JSON").unset("not granted").live_in_file();

    /// Secrets: each is the content of a `file`, or the value of a `variable`. Headers of `grant.http` may
    /// hold them; a handler may read those with `expose = true`. In a file it is a table, `[grant.secret]`.
    SECRETS: Vec<SecretRule> = ("grant.secret", "JSON").unset("not granted");

    /// The HTTP requests that a handler may send. In a file it is an array of tables, `[[grant.http]]`.
    HTTP: Vec<HttpRule> = ("grant.http", "JSON").unset("not granted");

    /// The servers to which a handler may connect by TCP. In a file it is an array of tables,
    /// `[[grant.tcp]]`.
    TCP: Vec<TcpRule> = ("grant.tcp", "JSON").unset("not granted");

    /// Directories that a handler may read, such as the library of an interpreter. In a file it is an array of
    /// tables, `[[grant.files]]`: `path` is the directory on the host, `at` is where the handler finds it. It
    /// never writes there.
    FILES: Vec<Directory> = ("grant.files", "JSON").unset("not granted");

    /// Grant `publisher`: the destinations, by the names that the handler uses. Each is `stream:KEY`, `list:KEY` or
    /// `channel:NAME`, or a table with `to` and `reliable`, `sharded`, `codec` or `body_field`. Messages are
    /// published with the ack of the handler, or not at all. In a file it is a table, `[grant.publish]`; in a flag or
    /// a variable, a JSON object.
    PUBLISH: BTreeMap<String, Destination> = ("grant.publish", "JSON").unset("not granted");

    /// Grant `key-value`, with the keys below `prefix`, which begins with `{orders}:kv:` for the queue `orders`. A
    /// value has at most `value_max` bytes (256KiB). Keys are set and deleted with the ack of the handler, or not at
    /// all; with `commit = "checked"` only if no value that it read has changed since: if one has, the message runs
    /// again. In a file it is a table, `[grant.key-value]`; in a flag or a variable, a JSON object.
    KEY_VALUE: KeyRules = ("grant.key-value", "JSON")
        .unset("not granted")
        .kinds(&AT_LEAST_ONCE);

    /// Grant `journal`: a handler remembers values from attempt to attempt at a message, and recalls them. In a file it is a
    /// table without keys, `[grant.journal]`; in a flag or a variable, `{}`.
    JOURNAL: JournalGrant = ("grant.journal", "JSON")
        .unset("not granted")
        .kinds(&AT_LEAST_ONCE);

    /// The most messages that one attempt may publish, and keys that it may write.
    PUBLISH_MESSAGES: NonZeroU32 = ("publish.max_messages", "N")
        .default("100")
        .range(|| up_to(10_000));

    /// The most bytes that one attempt may publish and write: names, headers and bodies, keys and values.
    PUBLISH_BYTES: ByteSize = ("publish.max_bytes", "SIZE")
        .default("4MiB")
        .range(|| (ByteSize(1), ByteSize(256 << 20)));

    /// The most bytes that all attempts together have published and written, until Redis has confirmed
    /// their acknowledgements. Beyond them `publish` and `set` are errors for the handler.
    PUBLISH_PENDING: ByteSize = ("publish.max_pending", "SIZE")
        .default("256MiB")
        .range(|| (ByteSize(1), ByteSize(16 << 30)));

    /// When messages to another slot than that of the queue go through an outbox. A script that
    /// acknowledges cannot write to two slots of a cluster: it writes to a stream in the slot of the queue,
    /// and hosts relay that. `auto`: on a cluster. `always`: also on a single server, which may become a
    /// cluster later.
    PUBLISH_OUTBOX: Mode = ("publish.outbox", "WHEN").default("auto");

    /// The most messages in one outbox; there is one for each destination. While one is full, acknowledgements
    /// that publish there are refused and tried again, and nothing else starts.
    PUBLISH_OUTBOX_MAX: NonZeroU64 = ("publish.outbox_max", "N").default("100000");

    /// How many handlers in a row may publish, each while it handles the message of the one before. Beyond
    /// them `publish` is an error: so a handler that publishes to its own queue ends.
    PUBLISH_HOPS: NonZeroU32 = ("publish.max_hops", "N")
        .default("64")
        .range(|| up_to(1_000_000));

    /// How many messages may follow from one message, through all handlers that publish. The messages that
    /// an attempt publishes share what is left. Beyond it `publish` is an error: so handlers that publish
    /// several messages each to their own queues end.
    PUBLISH_FOLLOW_UPS: NonZeroU32 = ("publish.max_follow_ups", "N")
        .default("100000")
        .range(|| up_to(1_000_000_000));
}
