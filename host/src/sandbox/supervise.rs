//! Runs the future of an attempt until it ends, its deadline passes, or the host panics.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::{Sleep, sleep_until};

use super::engine::Pace;
use super::meter::Meter;

/// How the future of an attempt ended.
pub(super) enum End<T> {
    Returned(wasmtime::Result<T>),
    TimedOut,
    Panicked(Box<dyn Any + Send>),
}

/// Run the future of an attempt until it ends, the deadline passes, or the host panics. Then it is dropped.
pub(super) async fn supervise<T>(
    mut attempt: Pin<&mut Option<impl Future<Output = wasmtime::Result<T>>>>,
    meter: &Meter,
    pace: &Pace,
    deadline: Instant,
) -> End<T> {
    // Made when the attempt first waits; most attempts never wait.
    let mut timer = pin!(None::<Sleep>);
    let mut first = true;
    let end = poll_fn(|cx| {
        if !std::mem::take(&mut first) {
            meter.resume();
        }
        pace.begin();
        let polled = poll_caught(attempt.as_mut(), cx);
        meter.pause();
        match polled {
            Ok(Poll::Ready(result)) => return Poll::Ready(End::Returned(result)),
            Ok(Poll::Pending) => {}
            Err(payload) => return Poll::Ready(End::Panicked(payload)),
        }
        if timer.is_none() {
            timer.set(Some(sleep_until(deadline.into())));
        }
        match timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(End::TimedOut),
            _ => Poll::Pending,
        }
    })
    .await;
    // Dropping the attempt unwinds the guest, which may panic too.
    match catch_unwind(AssertUnwindSafe(|| attempt.set(None))) {
        Ok(()) => end,
        Err(payload) => End::Panicked(payload),
    }
}

/// Drop a value whose drop may panic.
pub(super) fn drop_caught<T>(value: T) -> Result<(), Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(|| drop(value)))
}

fn poll_caught<F: Future>(
    future: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Result<Poll<F::Output>, Box<dyn Any + Send>> {
    let Some(future) = future.as_pin_mut() else {
        return Ok(Poll::Pending);
    };
    // After a panic the store is dropped, so its half-changed state is never read.
    catch_unwind(AssertUnwindSafe(|| future.poll(cx)))
}
