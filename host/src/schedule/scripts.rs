//! The scripts of this room: files of `lua`, and of `lua/parts` for what several have in common.

use crate::outgoing::scripts::EFFECTS;
use crate::redis::script::{ASKED, TIME};
use crate::redis::scripts;

pub(crate) const RECORDS: &str = include_str!("lua/parts/records.lua");

scripts! {
    /// Find the schedules that are due.
    SCHEDULE_LOOK = [TIME] "schedule_look";
    /// Read all schedules.
    SCHEDULE_LIST = [TIME] "schedule_list";
    /// Write definitions.
    SCHEDULE_DEFINE = [ASKED, TIME, RECORDS] "schedule_define" durable;
    /// Remove, pause, resume or run a schedule.
    SCHEDULE_CHANGE = [ASKED, TIME, RECORDS] "schedule_change" durable;
    /// Publish the ticks of a schedule that are due.
    SCHEDULE_TICK = [ASKED, TIME, EFFECTS, RECORDS] "schedule_tick" durable;
    /// Set the next ticks by newer zone data.
    SCHEDULE_AGAIN = [ASKED, RECORDS] "schedule_again" durable;
}
