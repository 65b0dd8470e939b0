//! What the threads of a host share: the hand-over of messages between the driver and the slots, and values that are
//! read for each message and change seldom.
//!
//! `tests/interleavings` runs all of it on the locks and atomics of shuttle, in many orders of the threads.

mod read_mostly;
pub mod slot_events;
mod ticket;
pub mod ticket_queue;

pub use read_mostly::{Cached, ReadMostly};
pub use ticket::{Ticket, Work};
