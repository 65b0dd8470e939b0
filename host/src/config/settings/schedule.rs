//! Schedules.

use crate::config::settings::queue::AT_LEAST_ONCE;
use crate::config::settings::section;
use crate::schedule::ScheduleRule;

section! { "Schedules";
    /// The schedules of the queue, each a table `[schedule.NAME]`: `cron`, and `zone`, `body` or `body_file`, `headers`,
    /// `catch_up` and `overlap`. Hosts write them to Redis at their start; each tick is one message.
    SCHEDULES: Vec<ScheduleRule> = ("schedule", "JSON")
        .unset("the file has no schedules")
        .kinds(&AT_LEAST_ONCE);
}
