//! Limits of starts.

use crate::config::limits::LimitRule;
use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::section;

section! { "Flow";
    /// How many messages may start in a time, or run at once, over all hosts, and over all queues that name the same limit. What
    /// may not start yet is no attempt: it waits. In a file it is an array of tables, `[[flow.limit]]`.
    LIMITS: Vec<LimitRule> = ("flow.limit", "JSON")
        .unset("no limit")
        .live()
        .kinds(&AT_LEAST_ONCE);
}
