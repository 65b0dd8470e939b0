//! Recorded answers.

use std::time::Duration;

use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::{DAY, section};
use crate::values::ByteSize;

section! { "Journals";
    /// The most bytes of all journals of the queue. A call that has no room is refused before it is made. Journals are there
    /// where a rule says `journal = true`.
    BYTES: ByteSize = ("journal.bytes", "SIZE")
        .default("1GiB")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (ByteSize(1 << 20), ByteSize(1 << 40)));

    /// For how long a journal stays whose message is gone without a settlement, because a client has deleted it.
    KEEP: Duration = ("journal.keep", "DURATION")
        .default("7days")
        .kinds(&AT_LEAST_ONCE)
        .range(|| (Duration::from_secs(60), Duration::from_secs(366 * DAY.as_secs())));
}
