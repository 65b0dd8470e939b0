//! Runs the handler, and says what became of the message.

use crate::__private::{Incoming, Outcome};
use crate::host::millis;
use crate::{Drop, Error, Message, RetryAfter};

/// The outcome of one message.
pub fn answer(message: Incoming, handle: impl FnOnce(Message) -> Result<(), Error>) -> Outcome {
    let Err(error) = handle(message.into()) else {
        return Outcome::Ack;
    };
    if error.find::<Drop>().is_some() {
        return Outcome::Drop(Some(error.to_string()));
    }
    if let Some(RetryAfter(delay)) = error.find() {
        eprintln!("{error}");
        return Outcome::NackRequeue(Some(millis(*delay)));
    }
    fail(&error)
}

/// End the attempt as a panic does: the host reads the error, its type and its place on stderr, and makes a cause
/// of them.
fn fail(error: &Error) -> ! {
    let text = error.to_string().replace('\n', "; ");
    let text = match error.type_name() {
        Some(name) => format!("{name}: {text}"),
        None => text,
    };
    eprintln!("thread 'main' panicked at {}:\n{text}", error.place);
    std::process::abort()
}

#[cfg(feature = "async")]
mod tasks {
    use std::cell::{Cell, RefCell};
    use std::future::Future;
    use std::rc::Rc;

    use wstd::runtime;

    use super::fail;
    use crate::Error;

    thread_local! {
        static UNFINISHED: Cell<usize> = const { Cell::new(0) };
    }

    /// Run an async handler to its end, and everything that it has spawned. If one of them waits for something that
    /// does not come, the attempt has failed.
    #[track_caller]
    pub fn run<T: 'static>(handler: impl Future<Output = T> + 'static) -> T {
        UNFINISHED.set(0);
        let result = Rc::new(RefCell::new(None));
        let put = Rc::clone(&result);
        runtime::block_on(async {
            // wstd itself panics about its own root task if that cannot go on.
            runtime::spawn(async move {
                let value = handler.await;
                *put.borrow_mut() = Some(value);
            })
            .detach();
        });
        let Some(value) = result.take() else {
            fail(&Error::from("the handler waits for a future that nothing wakes"));
        };
        match UNFINISHED.get() {
            0 => value,
            1 => fail(&Error::from("the handler returned while 1 task is unfinished")),
            n => fail(&Error::from(format!("the handler returned while {n} tasks are unfinished"))),
        }
    }

    /// Run a future beside the handler. It runs to its end before the outcome counts. If it waits for something that
    /// does not come, the attempt has failed.
    pub fn spawn(future: impl Future<Output = ()> + 'static) {
        UNFINISHED.set(UNFINISHED.get() + 1);
        runtime::spawn(async {
            future.await;
            UNFINISHED.set(UNFINISHED.get() - 1);
        })
        .detach();
    }
}

#[cfg(feature = "async")]
pub use tasks::{run, spawn};
