//! Duplicates.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::{DAY, section};

section! { "Duplicates";
    /// For how long after a handler's ack another message with the same id is a duplicate: hostler
    /// acknowledges it without running the handler. Only an ack of the handler counts. A message that was
    /// dead-lettered or discarded is not remembered, so a replay runs.
    DEDUP_WINDOW: Duration = ("dedup.window", "DURATION")
        .unset("duplicates are handled")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (Duration::from_secs(1), Duration::from_secs(31 * DAY.as_secs())));

    /// The header that holds the id. Messages without it are no duplicates. Without this setting, the id of
    /// the message counts, which is fresh for each entry unless producers set `x-message-id`. Reliable lists
    /// need it.
    DEDUP_KEY: String = ("dedup.key", "HEADER")
        .unset("the id of the message")
        .only_with(&DEDUP_WINDOW)
        .kinds(&AT_LEAST_ONCE);

    /// The most ids that are remembered, of 80 bytes each. Beyond them hostler warns, and remembers no more
    /// until old ones expire.
    DEDUP_MAX_IDS: NonZeroU64 = ("dedup.max_ids", "N")
        .default("10000000")
        .idle_without(&DEDUP_WINDOW)
        .kinds(&AT_LEAST_ONCE);
}
