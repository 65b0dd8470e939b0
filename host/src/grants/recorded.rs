//! Answers that are recorded, or given again. Nothing is asked outside when they are given again.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::delivery::recording::{Ask, Track};
use crate::delivery::text::hex;

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
            let place = tape.begin(asked(), Instant::now());
            let answer = live.await;
            tape.answer(place, None, &answer, Instant::now());
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
            let now = Instant::now();
            let place = tape.begin(asked(), now);
            let answer = live();
            tape.answer(place, None, Ok::<_, ()>(&answer), now);
            Some(answer)
        }
        Some(Track::Plays(player)) => {
            let recorded = player.next(&asked())?;
            let answer: Result<T, ()> = serde_json::from_value(recorded).ok()?;
            answer.ok()
        }
    }
}
