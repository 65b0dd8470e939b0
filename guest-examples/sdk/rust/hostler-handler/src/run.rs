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
    // The host makes a cause of the error, its type and its place.
    let mut text = error.to_string().replace('\n', "; ");
    if let Some(name) = error.type_name() {
        text.insert_str(0, ": ");
        text.insert_str(0, name);
    }
    let place = format!(", at {}", error.place);
    let room = LINE_MAX.saturating_sub(place.len());
    if text.len() > room {
        eprintln!("{text}");
        text.truncate(text.floor_char_boundary(room));
    }
    eprintln!("{text}{place}");
    Outcome::NackRequeue(None)
}

/// Bytes of the last line that the host keeps: the place must be among them.
const LINE_MAX: usize = 256;

#[cfg(feature = "async")]
mod tasks {
    use std::cell::{Cell, RefCell};
    use std::future::Future;
    use std::rc::Rc;

    use wstd::runtime;

    thread_local! {
        static UNFINISHED: Cell<usize> = const { Cell::new(0) };
    }

    /// Run an async handler to its end, and everything that it has spawned. If one of them waits for something that
    /// does not come, the attempt is a fault. After an error nothing waits for the others.
    #[track_caller]
    pub fn run<E: 'static>(
        handler: impl Future<Output = Result<(), E>> + 'static,
    ) -> Result<(), E> {
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
        let result = result.take().expect("the handler waits for a future that nothing wakes");
        let unfinished = match UNFINISHED.get() {
            0 => return result,
            1 => "1 task is".to_owned(),
            n => format!("{n} tasks are"),
        };
        assert!(result.is_err(), "the handler returned while {unfinished} unfinished");
        result
    }

    /// Run a future beside the handler. It runs to its end before the outcome counts. If it waits for something that
    /// does not come, the attempt is a fault.
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
