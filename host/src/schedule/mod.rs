//! Schedules: a queue gets messages at certain times.
//!
//! - [`ticks`]: when a schedule is due, and what is missed. Pure.
//! - [`definition`]: what a schedule is, and the message of a tick. [`rule`]: `[schedule.NAME]` of a configuration.
//! - [`store`]: definitions, records and next ticks in Redis, and the scripts about them.
//! - [`keeper`]: the part of a host that publishes ticks.
//! - [`seen`]: what people see of all this.

pub mod definition;
pub mod keeper;
pub mod rule;
pub mod scripts;
pub mod seen;
pub mod store;
pub mod ticks;

pub use definition::{BODY_MAX, CLI, Defined, Definition, origin};
pub use keeper::{Keeper, OfFile};
pub use rule::{HeaderTable, Overlap, ScheduleRule, check_name};
pub use seen::{ScheduleSeen, seen};
pub use store::{Changed, Store};
pub use ticks::{CatchUp, Timing, zone_data};
