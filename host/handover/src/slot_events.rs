//! The events that the slots send to the driver, handed over in chunks.
//!
//! A slot that runs one short call after the other leaves its events here. The driver takes them when they are
//! a chunk, or as soon as a slot stops running: when it waits for a message, for a record, or inside a call. A
//! slot runs at most a few milliseconds between two such stops, so no event waits behind a slow call. A driver
//! that is awake leaves a part of a chunk, too: otherwise each reply of Redis would send the few messages
//! that ended meanwhile, and the driver would take the core from the slots each time.
//!
//! The tickets bound the events: each ticket brings at most two.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use hostler_sync::{Mutex, MutexGuard};

/// The driver takes this number of events at once: few enough that it does not idle for long.
const CHUNK: usize = 64;

#[derive(Debug)]
struct State<E> {
    events: Vec<E>,
    /// A slot has stopped running since the driver last took events.
    is_flushed: bool,
    /// The driver sleeps.
    driver: Option<Waker>,
    is_closed: bool,
}

impl<E> State<E> {
    /// Whether the driver should take the events now.
    fn is_due(&self) -> bool {
        self.events.len() >= CHUNK || self.is_flushed
    }

    /// The driver, if it sleeps and should not.
    fn wake(&mut self) -> Option<Waker> {
        match self.is_due() {
            true => self.driver.take(),
            false => None,
        }
    }
}

/// The end of a slot. Clones share one buffer.
#[derive(Debug)]
pub struct EventSender<E>(Arc<Mutex<State<E>>>);

impl<E> Clone for EventSender<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The end of the driver.
#[derive(Debug)]
pub struct EventReceiver<E>(Arc<Mutex<State<E>>>);

/// Both ends of a buffer.
pub fn channel<E>() -> (EventSender<E>, EventReceiver<E>) {
    let state = Arc::new(Mutex::new(State {
        events: Vec::new(),
        is_flushed: false,
        driver: None,
        is_closed: false,
    }));
    (EventSender(Arc::clone(&state)), EventReceiver(state))
}

fn lock<E>(state: &Mutex<State<E>>) -> MutexGuard<'_, State<E>> {
    // A panic elsewhere leaves no event half-written.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<E> EventSender<E> {
    /// Send this to the driver, now or with the events that follow. `None`: the host is ending.
    pub fn send(&self, event: E) -> Option<()> {
        let mut state = lock(&self.0);
        if state.is_closed {
            return None;
        }
        state.events.push(event);
        let woken = state.wake();
        drop(state);
        wake(woken);
        Some(())
    }

    /// Let the driver take now what is here.
    pub fn flush(&self) {
        let mut state = lock(&self.0);
        state.is_flushed = !state.events.is_empty();
        let woken = state.wake();
        drop(state);
        wake(woken);
    }

    /// Run the task of a slot. Whenever the task stops running, wake the driver for the events that it sent.
    pub async fn flushing<T>(&self, slot: impl Future<Output = T>) -> T {
        let mut slot = pin!(slot);
        poll_fn(|context| {
            let polled = slot.as_mut().poll(context);
            self.flush();
            polled
        })
        .await
    }
}

impl<E> EventReceiver<E> {
    /// Add what is due, without waiting.
    pub fn take(&self, out: &mut Vec<E>) {
        take(&mut lock(&self.0), out);
    }

    /// Wait until something is due, and add it.
    pub async fn wait(&self, out: &mut Vec<E>) {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if take(&mut state, out) {
                return Poll::Ready(());
            }
            match &mut state.driver {
                Some(driver) => driver.clone_from(context.waker()),
                driver => *driver = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

impl<E> Drop for EventReceiver<E> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        state.events.clear();
    }
}

/// Move the events out if they are due. Says whether they were.
fn take<E>(state: &mut State<E>, out: &mut Vec<E>) -> bool {
    if !state.is_due() {
        return false;
    }
    state.is_flushed = false;
    // It is awake.
    state.driver = None;
    match out.is_empty() {
        true => std::mem::swap(&mut state.events, out),
        false => out.append(&mut state.events),
    }
    true
}

fn wake(woken: Option<Waker>) {
    if let Some(driver) = woken {
        driver.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use futures_util::FutureExt;

    use super::*;

    /// How often a task was woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wakes {
        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A driver that sleeps, and how often it is woken.
    fn asleep(receiver: &EventReceiver<usize>) -> Arc<Wakes> {
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut none = Vec::new();
        let mut waits = pin!(receiver.wait(&mut none));
        assert!(
            waits
                .poll_unpin(&mut Context::from_waker(&waker))
                .is_pending()
        );
        wakes
    }

    #[test]
    fn a_sleeping_driver_is_woken_once_for_a_chunk() {
        let (sender, receiver) = channel();
        let wakes = asleep(&receiver);
        for id in 0..CHUNK - 1 {
            sender.send(id).unwrap();
        }
        assert_eq!(wakes.count(), 0);
        for id in 0..2 * CHUNK {
            sender.send(id).unwrap();
        }
        assert_eq!(wakes.count(), 1);
        let mut events = Vec::new();
        receiver.take(&mut events);
        assert_eq!(events.len(), 3 * CHUNK - 1);
    }

    #[test]
    fn a_driver_that_is_awake_leaves_a_part_of_a_chunk_until_the_slot_stops() {
        let (sender, receiver) = channel();
        let mut events = Vec::new();
        sender.send(1).unwrap();
        receiver.take(&mut events);
        assert!(events.is_empty());
        sender.flush();
        receiver.take(&mut events);
        assert_eq!(events, [1]);
        // After a stop without events, the next event is not due.
        sender.flush();
        sender.send(2).unwrap();
        receiver.take(&mut events);
        assert_eq!(events, [1]);
    }

    #[tokio::test]
    async fn what_a_slot_left_is_told_as_soon_as_it_waits_inside_a_call() {
        let (sender, receiver) = channel();
        let wakes = asleep(&receiver);
        let slot = sender.flushing(async {
            sender.send(1).unwrap();
            // A call that does not end.
            std::future::pending::<()>().await;
        });
        assert!(slot.now_or_never().is_none());
        assert_eq!(wakes.count(), 1);
        let mut events = Vec::new();
        receiver.take(&mut events);
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn a_slot_learns_that_the_host_ends() {
        let (sender, receiver) = channel();
        assert!(sender.send(1).is_some());
        drop(receiver);
        assert!(sender.send(2).is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn no_event_is_lost_between_threads() {
        const EACH: usize = 20_000;
        let (sender, receiver) = channel();
        for _ in 0..2 {
            let sender = sender.clone();
            tokio::spawn(async move {
                let slot = async {
                    for id in 0..EACH {
                        sender.send(id).unwrap();
                        if id.is_multiple_of(7) {
                            tokio::task::yield_now().await;
                        }
                    }
                };
                sender.flushing(slot).await;
            });
        }
        let mut events = Vec::new();
        while events.len() < 2 * EACH {
            receiver.wait(&mut events).await;
        }
        assert_eq!(events.len(), 2 * EACH);
    }
}
