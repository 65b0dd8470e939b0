//! Answers that are recorded, or given again. Nothing is asked outside when they are given again.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::context::Origin;
use super::http::provider::{Body, HttpError, HttpRequest};
use super::key_value::provider::{KeyPage, ReadValues, Reading};
use super::provided::Provided;
use super::tcp::provider::LookupError;
use super::{http, key_value, secrets, tcp};
use crate::delivery::key_value::Seen;
use crate::delivery::text::hex;
use crate::redis::target::Secret;
use crate::wire::recording::{Ask, Track};

/// Why a call has no answer when an attempt runs again: for the guest.
pub(super) const UNRECORDED: &str = "the recording has no answer to this call";

/// The digits of a digest that are kept.
const DIGITS: usize = 32;

/// A call, by everything that it asks for.
pub(crate) fn ask(name: &str, asked: &str) -> Ask {
    let digest = Sha256::digest(format!("{name} {asked}"));
    Ask::new(&format!("{name} {asked}"), short(&digest))
}

/// A digest, in digits.
pub(super) fn short(digest: &[u8]) -> String {
    let mut digits = hex(digest);
    digits.truncate(DIGITS);
    digits
}

/// The answer to a call, over the track of the attempt if it has one.
pub(super) async fn answer<T, E>(
    track: Option<&Arc<Track>>,
    asked: impl FnOnce() -> Ask,
    live: impl Future<Output = Result<T, E>>,
) -> Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: Serialize + DeserializeOwned + From<String>,
{
    match track.map(|track| &**track) {
        None => live.await,
        Some(Track::Records(tape)) => {
            let place = tape.begin(asked());
            let answer = live.await;
            tape.answer(place, None, &answer);
            answer
        }
        Some(Track::Plays(player)) => {
            let recorded = player.next(&asked());
            let recorded = recorded.and_then(|answer| serde_json::from_value(answer).ok());
            recorded.unwrap_or_else(|| Err(UNRECORDED.to_owned().into()))
        }
    }
}

/// The same for an answer that is in memory; `None` = it is not recorded.
pub(crate) fn at_once<T: Serialize + DeserializeOwned>(
    track: Option<&Arc<Track>>,
    asked: impl FnOnce() -> Ask,
    live: impl FnOnce() -> T,
) -> Option<T> {
    match track.map(|track| &**track) {
        None => Some(live()),
        Some(Track::Records(tape)) => {
            let place = tape.begin(asked());
            let answer = live();
            tape.answer(place, None, Ok::<_, ()>(&answer));
            Some(answer)
        }
        Some(Track::Plays(player)) => {
            let recorded = player.next(&asked())?;
            let answer: Result<T, ()> = serde_json::from_value(recorded).ok()?;
            answer.ok()
        }
    }
}

impl Provided {
    /// The same grants, with nothing behind them: every answer comes from a recording.
    #[must_use]
    pub fn offline(&self) -> Self {
        let nothing = || Arc::new(Nothing(self.exposes()));
        Self {
            http: self.http.as_ref().map(|_| nothing() as _),
            tcp: self.tcp.as_ref().map(|_| nothing() as _),
            secrets: self.secrets.as_ref().map(|_| nothing() as _),
            keys: self.keys.as_ref().map(|_| nothing() as _),
        }
    }
}

/// Has no answer. It says whether secrets are exposed.
#[derive(Debug)]
struct Nothing(bool);

#[async_trait]
impl http::provider::Provider for Nothing {
    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    fn refuses_batches(&self) -> Option<String> {
        None
    }

    async fn send(
        &self,
        _: &Origin,
        _: u32,
        _: HttpRequest,
    ) -> Result<::http::Response<Body>, HttpError> {
        Err(HttpError::Protocol(UNRECORDED.to_owned()))
    }
}

#[async_trait]
impl tcp::provider::Provider for Nothing {
    async fn resolve(&self, _: &Origin, _: &str) -> Result<Vec<SocketAddr>, LookupError> {
        Err(LookupError::Unknown)
    }

    fn may_connect(&self, _: SocketAddr) -> bool {
        false
    }

    fn connection_denied(&self, _: &Origin, _: SocketAddr) {}
}

#[async_trait]
impl secrets::provider::Provider for Nothing {
    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    fn exposes(&self) -> bool {
        self.0
    }

    async fn secret(&self, _: &Origin, _: &str) -> Result<String, String> {
        Err(UNRECORDED.to_owned())
    }

    async fn all(&self) -> Vec<(String, Secret)> {
        Vec::new()
    }
}

#[async_trait]
impl key_value::provider::Provider for Nothing {
    async fn read(&self, _: Reading) -> ReadValues {
        Err(UNRECORDED.to_owned())
    }

    async fn increment(&self, _: &str, _: i64) -> Result<i64, String> {
        Err(UNRECORDED.to_owned())
    }

    async fn swap(&self, _: &str, _: &Seen, _: &[u8]) -> Result<bool, String> {
        Err(UNRECORDED.to_owned())
    }

    async fn list(&self, _: &str, _: u64) -> KeyPage {
        Err(UNRECORDED.to_owned())
    }
}
