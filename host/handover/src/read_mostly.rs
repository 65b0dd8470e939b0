//! A value that is read for each message, and changes seldom.

use std::sync::{Arc, PoisonError};

use hostler_sync::RwLock;
use hostler_sync::atomic::{AtomicU64, Ordering};

/// A value that is read for each message, and changes seldom. Readers keep what they made of it, and check with
/// one load whether the value has changed: a lock that all cores take would make them wait for each other.
#[derive(Debug)]
pub struct ReadMostly<T> {
    value: RwLock<Arc<T>>,
    /// How often it has changed.
    generation: AtomicU64,
}

/// What one reader made of a value.
#[derive(Debug)]
pub struct Cached<V>(Option<(u64, V)>);

impl<V> Default for Cached<V> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> ReadMostly<T> {
    /// Hold this value.
    pub fn new(value: T) -> Self {
        Self {
            value: RwLock::new(Arc::new(value)),
            generation: AtomicU64::new(0),
        }
    }

    /// The value as it is now.
    pub fn get(&self) -> Arc<T> {
        let value = self.value.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&value)
    }
}

impl<T: Clone> ReadMostly<T> {
    /// Change the value in one step: a read that begins after this has returned gives the new value. `step` says
    /// whether it changed anything; if not, the value stays.
    pub fn change(&self, step: impl FnOnce(&mut T) -> bool) -> bool {
        let mut shared = self.value.write().unwrap_or_else(PoisonError::into_inner);
        let mut value = T::clone(&shared);
        let changed = step(&mut value);
        let before = changed.then(|| {
            let before = std::mem::replace(&mut *shared, Arc::new(value));
            self.generation.fetch_add(1, Ordering::Release);
            before
        });
        drop(shared);
        // The old value may be large, such as a handler: drop it after the lock was released.
        drop(before);
        changed
    }
}

impl<V> Cached<V> {
    /// The result of `make` for the current value. `make` runs at the first call, and after a change.
    pub fn get<T>(&mut self, of: &ReadMostly<T>, make: impl FnOnce(Arc<T>) -> V) -> &V {
        let generation = of.generation.load(Ordering::Acquire);
        if self.0.as_ref().is_some_and(|seen| seen.0 != generation) {
            self.0 = None;
        }
        // A change between the two reads is seen at the next call.
        &self.0.get_or_insert_with(|| (generation, make(of.get()))).1
    }
}
