//! Schedules, on real servers.

mod schedule_commands;
mod schedule_definitions;
mod schedule_lost_replies;
mod schedule_scene;
mod schedule_show;
mod schedule_ticks;
