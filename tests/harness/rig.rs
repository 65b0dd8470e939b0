//! A handler and a slot to call it in, without any queue.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::hold::HoldRoom;
use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::{Fault, FaultKind, Outcome};
use hostler::delivery::trace::Traced;
use hostler::sandbox::{Cache, Call, Cancelled, Capture, LogSink, Report, Sandbox, Settings, Slot};

use crate::guests::guest;
use crate::host::cache_home;

/// A handler, a slot, and what it has written.
#[derive(Debug)]
pub struct Rig {
    /// The handler.
    pub sandbox: Sandbox,
    /// The slot that calls run in.
    pub slot: Slot,
    /// What is said to `is-cancelled`.
    pub cancelled: Arc<Cancelled>,
    /// What the guest writes.
    pub capture: Capture,
}

impl Rig {
    /// The guest `scripted`, with these settings.
    pub fn scripted(settings: &Settings) -> Self {
        Self::guest("scripted", settings)
    }

    /// A guest of the tests, with these settings.
    pub fn guest(name: &str, settings: &Settings) -> Self {
        Self::file(&guest(name), settings)
    }

    /// A component in a file, with these settings. Its compiled code is shared by all tests.
    pub fn file(path: &Path, settings: &Settings) -> Self {
        let cache = Cache {
            dir: cache_home().join("hostler"),
            max_bytes: 1 << 30,
        };
        let settings = Settings {
            cache: Some(cache),
            ..settings.clone()
        };
        Self::of(Sandbox::load(path, &settings).expect("the component loads"))
    }

    /// A component in memory, with these settings.
    pub fn bytes(bytes: &[u8], settings: &Settings) -> Self {
        Self::of(Sandbox::load_bytes(bytes, settings).expect("the component loads"))
    }

    /// Another slot of the same handler.
    pub fn of(sandbox: Sandbox) -> Self {
        Self {
            slot: sandbox.slot(),
            sandbox,
            cancelled: Arc::default(),
            capture: Capture::default(),
        }
    }

    /// Call it with a message that has this body, as attempt 1.
    pub async fn run(&mut self, body: &str) -> Report {
        self.call(&message(body), 1).await
    }

    /// Call it.
    pub async fn call(&mut self, message: &Message, attempt: u32) -> Report {
        let call = Call {
            message,
            attempt,
            max_attempts: 5,
            cancelled: &self.cancelled,
            logs: &LogSink::Capture(self.capture.clone()),
            trace: Traced::default(),
            began: std::time::Instant::now(),
            journal: None,
            room: HoldRoom::default(),
        };
        let call = self.sandbox.call(&mut self.slot, call);
        // No limit that works takes longer: a test must not hang.
        tokio::time::timeout(Duration::from_secs(60), call)
            .await
            .expect("the call ends")
    }

    /// The text of its drop.
    pub async fn reason(&mut self, body: &str) -> String {
        match self.run(body).await.outcome {
            Outcome::Drop(Some(reason)) => reason,
            other => format!("{other:?}"),
        }
    }

    /// Its fault.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub async fn fault(&mut self, body: &str) -> Fault {
        fault(self.run(body).await)
    }

    /// The lines it has written since the last time, without the witness.
    pub fn lines(&self) -> Vec<String> {
        self.capture
            .take()
            .into_iter()
            .map(|line| line.text)
            .filter(|text| !text.starts_with("start "))
            .collect()
    }
}

/// The fault of a report.
///
/// # Panics
///
/// If it has none.
pub fn fault(report: Report) -> Fault {
    match report.outcome {
        Outcome::Fault(fault) => fault,
        other => Fault::new(FaultKind::BadOutcome, format!("no fault, but {other:?}")),
    }
}

/// A message with this body.
pub fn message(body: &str) -> Message {
    Message {
        id: "1-1".into(),
        queue: "orders".into(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        headers: Headers::default(),
        enqueued_ms: 0,
    }
}
