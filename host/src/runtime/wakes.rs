//! A waker that counts, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use futures_util::task::{ArcWake, waker};

/// How often a task was woken.
#[derive(Default)]
pub(super) struct Wakes(AtomicUsize);

impl Wakes {
    /// None so far, and the waker that they count.
    pub(super) fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::<Self>::default();
        (Arc::clone(&wakes), waker(wakes))
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl ArcWake for Wakes {
    fn wake_by_ref(wakes: &Arc<Self>) {
        wakes.0.fetch_add(1, Ordering::SeqCst);
    }
}
