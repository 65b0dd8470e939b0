//! Keys of guests that are read and changed at once: their provider, and the calls of one attempt. The sets and
//! deletes of an attempt are part of its acknowledgement.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

use crate::delivery::key_value::Seen;
use crate::delivery::text::hex;
use crate::delivery::trace::StepKind;
use crate::grants::context::{Context, NO_MESSAGE};
use crate::grants::recorded;

/// Keys to read, by their names in Redis.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The keys.
    pub keys: Vec<String>,
    /// The most bytes of a value.
    pub value_max: usize,
    /// The most bytes of all values.
    pub bytes_max: usize,
    /// Whether digests are wanted.
    pub digests: bool,
}

/// The value of each key, if it has one; or an error for the guest.
pub type ReadValues = Result<Vec<Option<Stored>>, String>;

/// Some keys, and the cursor of the next ones; or an error for the guest.
pub type KeyPage = Result<(Vec<String>, Option<u64>), String>;

/// How many calls to the store a page of keys counts as: each looks at many keys of others.
const CALLS_PER_PAGE: usize = 10;

/// A value in Redis.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stored {
    /// The value.
    #[serde(with = "crate::delivery::quoted::as_text")]
    pub value: Bytes,
    /// Its SHA-1 digest in hexadecimal digits; empty if it was not asked for.
    pub digest: String,
}

/// The store of the keys of guests.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// The values of keys, in their order. The error is for the guest.
    async fn read(&self, reading: Reading) -> ReadValues;

    /// Add to the number of a key, at once. The error is for the guest.
    async fn increment(&self, key: &str, delta: i64) -> Result<i64, String>;

    /// Set a value at once, if the present one is the one that was seen; says whether it was. The error is
    /// for the guest.
    async fn swap(&self, key: &str, seen: &Seen, value: &[u8]) -> Result<bool, String>;

    /// Some keys that begin so, from this cursor on, and the cursor of the next ones; 0 = the first ones.
    /// The error is for the guest.
    async fn list(&self, prefix: &str, cursor: u64) -> KeyPage;
}

/// Why a call to the store has no answer.
const TOO_LATE: &str = "the time of the attempt is over";

/// The calls of one attempt.
pub(crate) struct Keys {
    context: Arc<Context>,
    provider: Arc<dyn Provider>,
    calls: AtomicU32,
}

impl Keys {
    pub(in crate::grants) fn new(
        context: &Arc<Context>,
        provider: &Arc<dyn Provider>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            provider: Arc::clone(provider),
            calls: AtomicU32::new(0),
        })
    }

    /// The values of keys.
    pub(crate) async fn read(self: Arc<Self>, reading: Reading) -> ReadValues {
        let calls = reading.keys.len();
        let asked = self.context.track.as_ref().map(|_| reading.keys.join(" "));
        let asked = || asked.unwrap_or_default();
        let read = self.provider.read(reading);
        self.ask_store("get", asked, calls, calls, read).await
    }

    /// Add to the number of a key.
    pub(crate) async fn increment(&self, key: &str, delta: i64) -> Result<i64, String> {
        let increment = self.provider.increment(key, delta);
        let asked = || format!("{key} {delta}");
        self.ask_store("increment", asked, 1, 1, increment).await
    }

    /// The same, once for the message: a later attempt gets the sum.
    pub(crate) async fn increment_once(&self, key: &str, delta: i64) -> Result<i64, String> {
        let journal = self.context.origin.journal.as_ref();
        let Some(journal) = journal else {
            return self.increment(key, delta).await;
        };
        let increment = async {
            let elsewhere = self.provider.increment(key, delta);
            let sum = journal.increment(key, delta, elsewhere).await;
            sum.map_err(|refused| refused.to_string())
        };
        let asked = || format!("{key} {delta}");
        self.ask_store("increment", asked, 1, 1, increment).await
    }

    /// Set a value, if the present one is the one that was seen.
    pub(crate) async fn swap(&self, key: &str, seen: &Seen, value: &[u8]) -> Result<bool, String> {
        let swap = self.provider.swap(key, seen, value);
        let asked = || format!("{key} {seen:?} {}", hex(&Sha256::digest(value)));
        self.ask_store("swap", asked, 1, 1, swap).await
    }

    /// Some keys, and the cursor of the next ones.
    pub(crate) async fn list(&self, prefix: &str, cursor: u64) -> KeyPage {
        let list = self.provider.list(prefix, cursor);
        let asked = || format!("{prefix} {cursor}");
        self.ask_store("list", asked, 1, CALLS_PER_PAGE, list).await
    }

    /// Ask the key-value store about `keys` keys or prefixes, which counts as `calls` calls, until the attempt
    /// ends.
    async fn ask_store<T: Serialize + DeserializeOwned>(
        &self,
        operation: &'static str,
        asked: impl FnOnce() -> String,
        keys: usize,
        calls: usize,
        asking: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        if self.context.is_trial() {
            return Err(NO_MESSAGE.to_owned());
        }
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let before = self.calls.load(Ordering::Relaxed);
        // Only this attempt counts here, one call after the other.
        let after = before.saturating_add(calls);
        self.calls.store(after, Ordering::Relaxed);
        if after > self.context.requests_max {
            let max = self.context.requests_max;
            return Err(format!(
                "the attempt has asked the store {max} times (limit `requests`)"
            ));
        }
        let context = &self.context;
        let ending = context.ending();
        let deadline = tokio::time::Instant::from(context.origin.deadline);
        let recording = context.record(|| StepKind::Store { operation, keys });
        let asking = context.answer(|| recorded::ask(operation, &asked()), asking);
        let answer = tokio::select! {
            biased;
            () = ending => Err(TOO_LATE.to_owned()),
            answer = tokio::time::timeout_at(deadline, asking) => {
                answer.unwrap_or_else(|_| Err(TOO_LATE.to_owned()))
            }
        };
        if let Some(recording) = recording {
            recording.end(answer.as_ref().err().map(|_| "store"));
        }
        answer
    }
}
