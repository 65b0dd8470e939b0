//! A task that a thread other than its own may run in between.
//!
//! A message that is alone would pass from the thread of the loop to a thread of slots and back. At low rates all these
//! threads sleep, and to wake a sleeping core takes longer than a short call. So the loop runs a slot on its own
//! thread, until the slot waits for something. What the slot waits for wakes the task where it was spawned.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

/// A task of any kind. All slots are of this type: a second one would have a copy of all the code that a call runs.
pub(super) type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    /// `None` = it has ended.
    future: Option<Boxed>,
    /// Wakes it where it was spawned; `None` = it has not begun there.
    waker: Option<Waker>,
}

impl Task {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else {
            return Poll::Ready(());
        };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

/// The means to run the task elsewhere.
pub(super) struct LentTask(Arc<Mutex<Task>>);

impl std::fmt::Debug for LentTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LentTask")
    }
}

/// The task, to be spawned, and the means to run it elsewhere.
pub(super) fn lend(task: Boxed) -> (impl Future<Output = ()> + Send, LentTask) {
    let task = Arc::new(Mutex::new(Task {
        future: Some(task),
        waker: None,
    }));
    let lent = LentTask(Arc::clone(&task));
    let spawned = poll_fn(move |context| {
        // Whoever runs it elsewhere holds it for one turn. A task that panicked is not polled again.
        let mut task = task.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut task.waker {
            Some(waker) => waker.clone_from(context.waker()),
            waker => *waker = Some(context.waker().clone()),
        }
        task.poll(context)
    });
    (spawned, lent)
}

impl LentTask {
    /// Run the task on this thread until it waits. Does nothing while the task runs elsewhere, and before it first
    /// waited.
    pub(super) fn run_here(&self) {
        let Ok(mut task) = self.0.try_lock() else {
            return;
        };
        let Some(waker) = task.waker.clone() else {
            return;
        };
        if task.poll(&mut Context::from_waker(&waker)).is_ready() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Shared;
    use std::thread::{self, ThreadId};

    use futures_util::FutureExt;
    use futures_util::task::noop_waker;
    use tokio::sync::mpsc;

    use super::*;
    use crate::runtime::wakes::Wakes;

    /// Which numbers reached a task, and on which thread.
    type Notes = Arc<Shared<Vec<(u32, ThreadId)>>>;

    /// A task that notes on which thread each number reached it.
    fn noting() -> (impl Future<Output = ()> + Send, mpsc::Sender<u32>, Notes) {
        let (sender, mut numbers) = mpsc::channel(4);
        let noted = Arc::new(Shared::new(Vec::new()));
        let notes = Arc::clone(&noted);
        let task = async move {
            while let Some(number) = numbers.recv().await {
                let note = (number, thread::current().id());
                notes.lock().unwrap().push(note);
            }
        };
        (task, sender, noted)
    }

    #[test]
    fn a_waiting_task_runs_where_it_is_lent_to_and_is_woken_where_it_was_spawned() {
        let (task, numbers, noted) = noting();
        let (spawned, lent) = lend(Box::pin(task));
        let mut spawned = Box::pin(spawned);
        let (wakes, spawned_waker) = Wakes::new();
        let mut context = Context::from_waker(&spawned_waker);
        // It has not begun.
        lent.run_here();
        assert!(spawned.poll_unpin(&mut context).is_pending());
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                numbers.try_send(1).unwrap();
                lent.run_here();
                thread::current().id()
            });
            let elsewhere = elsewhere.join().unwrap();
            assert_eq!(*noted.lock().unwrap(), [(1, elsewhere)]);
        });
        let before = wakes.count();
        numbers.try_send(2).unwrap();
        assert_eq!(wakes.count(), before + 1);
        assert!(spawned.poll_unpin(&mut context).is_pending());
        assert_eq!(noted.lock().unwrap()[1], (2, thread::current().id()));
    }

    #[test]
    fn a_task_that_ends_elsewhere_has_ended() {
        let (task, numbers, _) = noting();
        let (spawned, lent) = lend(Box::pin(task));
        let mut spawned = Box::pin(spawned);
        let (wakes, spawned_waker) = Wakes::new();
        let mut context = Context::from_waker(&spawned_waker);
        assert!(spawned.poll_unpin(&mut context).is_pending());
        drop(numbers);
        let before = wakes.count();
        lent.run_here();
        assert!(wakes.count() > before);
        assert!(spawned.poll_unpin(&mut context).is_ready());
        lent.run_here();
    }

    #[test]
    fn a_task_that_runs_is_not_waited_for() {
        let (entered, is_entered) = std::sync::mpsc::sync_channel(1);
        let (leave, may_leave) = std::sync::mpsc::sync_channel::<()>(1);
        let mut turns = 0;
        let task = poll_fn(move |_| {
            turns += 1;
            if turns == 2 {
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
            }
            Poll::<()>::Pending
        });
        let (spawned, lent) = lend(Box::pin(task));
        let mut spawned = Box::pin(spawned);
        let mut poll = move || {
            let waker = noop_waker();
            spawned
                .poll_unpin(&mut Context::from_waker(&waker))
                .is_pending()
        };
        assert!(poll());
        let second = thread::spawn(poll);
        is_entered.recv().unwrap();
        lent.run_here();
        leave.send(()).unwrap();
        assert!(second.join().unwrap());
    }
}
