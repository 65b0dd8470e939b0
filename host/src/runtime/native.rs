//! A native no-op as a [`Handler`]: the floor that the sandbox is measured against.

use std::sync::Arc;

use crate::delivery::outcome::Outcome;
use crate::runtime::handler::{Call, Handler, Report};

/// Acknowledges everything, at once.
#[derive(Debug)]
pub struct NoOp {
    digest: Arc<str>,
}

impl Default for NoOp {
    fn default() -> Self {
        Self {
            digest: Arc::from("native"),
        }
    }
}

impl Handler for NoOp {
    type Slot = ();

    fn slot(&self) {}

    async fn run<'a>(&'a self, _slot: &'a mut (), call: Call<'a>) -> Report {
        Report::new(Outcome::Ack, self.digest(), call.began.elapsed())
    }

    fn digest(&self) -> Arc<str> {
        Arc::clone(&self.digest)
    }
}
