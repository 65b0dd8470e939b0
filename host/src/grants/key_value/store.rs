//! The keys of a handler: values are read, and numbers are added, at once. The sets and deletes of an attempt
//! are part of its acknowledgement, and no matter of this file.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::provider::{KeyPage, Provider, ReadValues, Reading, Stored};
use crate::delivery::key_value::{Seen, too_large};
use crate::key_values::{self, Found, Most, Swapped};
use crate::redis::connection::{Connector, Link};
use crate::redis::error::{Class, Error};

/// Most steps of one call that lists keys, and about how many keys a step looks at.
const STEPS_MAX: usize = 10;
const PER_STEP: usize = 1_000;

/// How long a read waits until it is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// The store, as handlers use it.
///
/// `hostler invoke`, `hostler test` and self-tests have no connection: then it holds the values that they set.
#[derive(Debug, Default)]
pub(in crate::grants) struct Store {
    link: OnceLock<Link>,
    trial: Mutex<BTreeMap<String, Bytes>>,
}

impl Store {
    /// Use this server from now on. Only the first call counts.
    pub(in crate::grants) fn connect(&self, connector: &Connector) {
        self.link.get_or_init(|| connector.link("key-value"));
    }

    /// Set the values of the keys, for use without a connection to Redis.
    pub(in crate::grants) fn try_with(&self, values: BTreeMap<String, Bytes>) {
        *self.trial.lock() = values;
    }
}

#[async_trait]
impl Provider for Store {
    /// The values of these keys, or the first error, for the guest. While Redis is away this waits: its
    /// caller has a deadline.
    async fn read(&self, reading: Reading) -> ReadValues {
        let Some(link) = self.link.get() else {
            let trial = self.trial.lock();
            let value = |key| match trial.get(key) {
                Some(value) if value.len() > reading.value_max => Err(too_large(reading.value_max)),
                value => Ok(value.map(|value| Stored {
                    value: value.clone(),
                    digest: String::new(),
                })),
            };
            return reading.keys.iter().map(value).collect();
        };
        let most = Most {
            each: reading.value_max,
            all: reading.bytes_max,
        };
        let found = loop {
            match key_values::read(link, &reading.keys, most, reading.digests).await {
                Ok(found) => break found,
                Err(error) if matches!(error.class(), Class::Reconnect | Class::Retry) => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return Err(for_guest(&error)),
            }
        };
        let value = |found| match found {
            Found::Nothing => Ok(None),
            Found::Value(value, digest) => Ok(Some(Stored { value, digest })),
            Found::TooLarge => Err(too_large(most.each.min(most.all))),
            Found::OtherKind => Err(OTHER_KIND.to_owned()),
        };
        found.into_iter().map(value).collect()
    }

    /// Add to the number of a key. After a lost answer it is not known whether it happened.
    async fn increment(&self, key: &str, delta: i64) -> Result<i64, String> {
        let Some(link) = self.link.get() else {
            let mut trial = self.trial.lock();
            let number = trial.get(key).map_or(Some(0), |value| {
                str::from_utf8(value).ok()?.parse::<i64>().ok()
            });
            let sum = number.and_then(|number| number.checked_add(delta));
            let sum = sum.ok_or("the value is not a number, or the sum is too large")?;
            trial.insert(key.to_owned(), sum.to_string().into());
            return Ok(sum);
        };
        let sum = key_values::increment(link, key, delta).await;
        sum.map_err(|error| match &error {
            Error::Configuration { code, detail, .. } if code == "ERR" => detail.clone(),
            error => for_guest(error),
        })
    }

    /// Set a value, if the present one is the one that was seen. After a lost answer it is not known whether
    /// it happened.
    async fn swap(&self, key: &str, seen: &Seen, value: &[u8]) -> Result<bool, String> {
        let Some(link) = self.link.get() else {
            let value = Bytes::copy_from_slice(value);
            self.trial.lock().insert(key.to_owned(), value);
            return Ok(true);
        };
        let swapped = key_values::swap(link, key, seen, value).await;
        match swapped.map_err(|error| for_guest(&error))? {
            Swapped::Done => Ok(true),
            Swapped::Changed => Ok(false),
            Swapped::OtherKind => Err(OTHER_KIND.to_owned()),
        }
    }

    /// Some keys that begin so, and the cursor of the next ones. Each step looks at keys of others, too, so
    /// a call takes a few steps only.
    async fn list(&self, prefix: &str, cursor: u64) -> KeyPage {
        let Some(link) = self.link.get() else {
            let trial = self.trial.lock();
            let found = trial.keys().filter(|key| key.starts_with(prefix));
            return Ok((found.cloned().collect(), None));
        };
        let (mut keys, mut cursor) = (Vec::new(), cursor);
        for _ in 0..STEPS_MAX {
            let step = key_values::keys(link, prefix, cursor, PER_STEP).await;
            let (found, next) = step.map_err(|error| for_guest(&error))?;
            keys.extend(found);
            if next == 0 {
                return Ok((keys, None));
            }
            cursor = next;
            if keys.len() >= PER_STEP {
                break;
            }
        }
        Ok((keys, Some(cursor)))
    }
}

/// The error of a key with another kind of data.
const OTHER_KIND: &str = "the key holds something else than a value";

/// An error of Redis, without addresses: a guest sees none.
fn for_guest(error: &Error) -> String {
    match error {
        Error::Configuration { code, .. } if code == "WRONGTYPE" => OTHER_KIND.to_owned(),
        Error::Unavailable { code, .. } | Error::Configuration { code, .. } => {
            format!("the store refused: {code}")
        }
        Error::Deadline { .. } => "the store did not answer in time".to_owned(),
        _ => "the store cannot be reached".to_owned(),
    }
}
