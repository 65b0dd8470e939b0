//! The sign that the host stops, as guests see it.

use std::ops::Deref;
use std::sync::atomic::AtomicBool;

/// Says that the host stops. It has cache lines of its own, because each call counts itself as a user: a slot
/// that shared it with others would wait for them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Cancelled(AtomicBool);

impl Deref for Cancelled {
    type Target = AtomicBool;

    fn deref(&self) -> &AtomicBool {
        &self.0
    }
}
